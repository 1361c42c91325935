/* Reading the rows of one HDF5 shard; see shard_read.h. Opening: shard_open.c, attributes: shard_attribute.c.
 */
#include "data/shard_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/shard_hdf5.h"
#include "data/shard_raw.h"

enum { PIECE_BYTES = 1 << 20 };

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

void shard_close(struct shard *shard) {
  if (!shard) return;
  if (shard->images >= 0) H5Dclose(shard->images);
  if (shard->labels >= 0) H5Dclose(shard->labels);
  if (shard->file >= 0) H5Fclose(shard->file);
  shard_raw_close(shard->raw);
  free(shard->scratch);
  free(shard);
}

const struct shard_info *shard_describe(const struct shard *shard) {
  return &shard->info;
}
const char *shard_path(const struct shard *shard) {
  return shard->path;
}

int64_t shard_piece_end(const struct shard *shard, int64_t first, int64_t last) {
  const struct shard_info *info = &shard->info;
  int64_t chunk = info->chunk_rows > 0 ? info->chunk_rows : 1;
  int64_t rows = PIECE_BYTES / ((int64_t)info->height * info->width * info->channels);
  int64_t end = (first + (rows > 1 ? rows : 1) + chunk - 1) / chunk * chunk;
  return end < last ? end : last;
}

/* H5Dread of rows [first, first + count) of a data set whose dimension 0 is the row. */
static enum status read_rows(struct shard *shard, const char *name, hid_t dataset, hid_t type, int64_t first,
                             int64_t count, void *memory) {
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

void shard_interleave(const struct shard_info *info, int64_t count, const uint8_t *planar, uint8_t *images) {
  size_t pixels = (size_t)info->height * (size_t)info->width, channels = (size_t)info->channels;
  for (int64_t n = 0; n < count; n++, planar += pixels * channels, images += pixels * channels)
    for (size_t p = 0; p < pixels; p++)
      for (size_t c = 0; c < channels; c++) images[p * channels + c] = planar[c * pixels + p];
}

static enum status read_images(struct shard *shard, int64_t first, int64_t count, uint8_t *images) {
  if (shard->raw) return shard_raw_images(shard->raw, first, count, images);
  return read_rows(shard, "images", shard->images, H5T_NATIVE_UINT8, first, count, images);
}

enum status shard_read(struct shard *shard, int64_t first, int64_t count, uint8_t *images, int64_t *labels) {
  const struct shard_info *info = &shard->info;
  if (count == 0) return STATUS_OK;
  if (shard->raw)
    TRY(shard_raw_labels(shard->raw, first, count, labels));
  else
    TRY(read_rows(shard, "labels", shard->labels, H5T_NATIVE_INT64, first, count, labels));
  if (!info->planar) return read_images(shard, first, count, images);
  size_t bytes = (size_t)count * (size_t)info->height * (size_t)info->width * (size_t)info->channels;
  if (bytes > shard->scratch_bytes) {
    free(shard->scratch);
    shard->scratch_bytes = 0;
    shard->scratch = malloc(bytes);
    if (!shard->scratch) return RAISE(STATUS_INPUT, "no memory to read %s", shard->path);
    shard->scratch_bytes = bytes;
  }
  TRY(read_images(shard, first, count, shard->scratch));
  shard_interleave(info, count, shard->scratch, images);
  return STATUS_OK;
}
