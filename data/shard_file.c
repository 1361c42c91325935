/* Rows of a shard that HDF5 has opened, and the reasons that HDF5 gives; see shard_hdf5.h. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "data/shard_hdf5.h"

/* H5Ewalk calls this from the innermost function outwards: the first text is the cause. */
static herr_t first_reason(unsigned level, const H5E_error2_t *error, void *text) {
  if (level == 0 && error->desc) snprintf(text, 256, "%s", error->desc);
  return 0;
}

const char *shard_reason(char *text, size_t capacity) {
  char reason[256] = "";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first_reason, reason);
  for (char *at = reason; *at; at++)
    if ((unsigned char)*at < ' ') *at = ' ';
  const char *system = strstr(reason, "error message = '");
  if (system) { /* "file write failed: time = ..., errno = 28, error message = 'No space left on device', ..."
                 */
    system += strlen("error message = '");
    snprintf(text, capacity, "%.*s: %.*s", (int)strcspn(reason, ":,"), reason, (int)strcspn(system, "'"),
             system);
    return text;
  }
  snprintf(text, capacity, "%s", reason[0] ? reason : "HDF5 gives no reason");
  return text;
}

/* H5Dread of rows [first, first + count) of a data set whose dimension 0 is the row. */
static enum status read_rows(struct shard_file *shard, const char *name, hid_t dataset, hid_t type,
                             int64_t first, int64_t count, void *memory) {
  hid_t space = H5Dget_space(dataset), rows = H5I_INVALID_HID;
  hsize_t size[H5S_MAX_RANK], start[H5S_MAX_RANK] = {(hsize_t)first};
  enum status status = STATUS_OK;
  char reason[256];
  bool good = H5Sget_simple_extent_dims(space, size, NULL) > 0;
  size[0] = (hsize_t)count;
  good = good && H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, size, NULL) >= 0;
  rows = H5Screate_simple(H5Sget_simple_extent_ndims(space), size, NULL);
  if (!good || rows < 0 || H5Dread(dataset, type, rows, space, H5P_DEFAULT, memory) < 0)
    status = RAISE(STATUS_INPUT, "%s: data set '%s', rows %lld..%lld cannot be read: %s; copy the file again",
                   shard->path, name, (long long)first, (long long)(first + count - 1),
                   shard_reason(reason, sizeof reason));
  if (rows >= 0) H5Sclose(rows);
  if (space >= 0) H5Sclose(space);
  return status;
}

enum status shard_file_read(struct shard_file *shard, int64_t first, int64_t count, uint8_t *images,
                            int64_t *labels) {
  TRY(read_rows(shard, "labels", shard->labels, H5T_NATIVE_INT64, first, count, labels));
  return read_rows(shard, "images", shard->images, H5T_NATIVE_UINT8, first, count, images);
}
