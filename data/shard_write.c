/* Writing one HDF5 shard; see shard_write.h. Contiguous data sets: the fastest to read, and any range of rows
 * costs only itself; the digest replaces the per-chunk checksum that only chunked data sets can have. */
#include "data/shard_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hdf5.h>

#include "data/shard_hdf5.h"
#include "data/shard_tally.h"

struct shard_writer {
  char *path; /* owned */
  struct shard_shape shape;
  hid_t file, images, labels;
  int64_t count, written;
  uint64_t digest;
  bool finished;
  char reason[256]; /* HDF5's for the last failure, kept before a further call forgets it */
};

static bool failed(struct shard_writer *writer, bool failure) {
  if (failure) shard_reason(writer->reason, sizeof writer->reason);
  return failure;
}

static enum status refuse(const struct shard_writer *writer, const char *what) {
  return RAISE(STATUS_STORAGE, "cannot write %s (%s): %s", writer->path, what, writer->reason);
}

static hid_t create_dataset(struct shard_writer *writer, const char *name, hid_t type, int rank,
                            const hsize_t *dim) {
  hid_t space = H5Screate_simple(rank, dim, NULL), properties = H5Pcreate(H5P_DATASET_CREATE);
  hid_t dataset = H5I_INVALID_HID;
  if (space >= 0 && properties >= 0 && H5Pset_obj_track_times(properties, false) >= 0 &&
      H5Pset_fill_time(properties, H5D_FILL_TIME_NEVER) >= 0)
    dataset = H5Dcreate2(writer->file, name, type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
  failed(writer, dataset < 0);
  if (properties >= 0) H5Pclose(properties);
  if (space >= 0) H5Sclose(space);
  return dataset;
}

enum status shard_writer_create(const char *path, const struct shard_shape *shape, int64_t count,
                                struct shard_writer **created) {
  struct shard_writer *writer = calloc(1, sizeof *writer);
  if (!writer) return RAISE(STATUS_INPUT, "no memory to write %s", path);
  enum status status = STATUS_OK;
  writer->file = writer->images = writer->labels = H5I_INVALID_HID;
  writer->shape = *shape;
  writer->count = count;
  writer->path = strdup(path);
  if (!writer->path) TRY_OUT(RAISE(STATUS_INPUT, "no memory to write %s", path));
  H5dont_atexit(); /* its clean-up at exit crashes on a file that it could not close */
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  writer->file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  if (failed(writer, writer->file < 0)) TRY_OUT(refuse(writer, "create"));
  hsize_t dim[4] = {(hsize_t)count, (hsize_t)shape->height, (hsize_t)shape->width, (hsize_t)shape->channels};
  writer->images = create_dataset(writer, "images", H5T_STD_U8LE, 4, dim);
  writer->labels =
      create_dataset(writer, "labels", shape->classes <= 256 ? H5T_STD_U8LE : H5T_STD_U16LE, 1, dim);
  if (writer->images < 0 || writer->labels < 0) TRY_OUT(refuse(writer, "data sets"));
  *created = writer;
  return STATUS_OK;
out:
  shard_writer_destroy(writer);
  return status;
}

static bool write_rows(struct shard_writer *writer, hid_t dataset, hid_t type, int rank, int64_t first,
                       int64_t count, const void *memory) {
  hsize_t size[4] = {0}, start[4] = {(hsize_t)first};
  hid_t space = H5Dget_space(dataset), rows = H5I_INVALID_HID;
  bool good = false;
  if (space >= 0 && H5Sget_simple_extent_dims(space, size, NULL) == rank) {
    size[0] = (hsize_t)count;
    rows = H5Screate_simple(rank, size, NULL);
    if (rows >= 0 && H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, size, NULL) >= 0)
      good = H5Dwrite(dataset, type, rows, space, H5P_DEFAULT, memory) >= 0;
  }
  failed(writer, !good);
  if (rows >= 0) H5Sclose(rows);
  if (space >= 0) H5Sclose(space);
  return good;
}

enum status shard_writer_append(struct shard_writer *writer, int64_t count, const uint8_t *images,
                                const int32_t *labels) {
  if (count == 0) return STATUS_OK;
  if (count > writer->count - writer->written)
    return RAISE(STATUS_INTERNAL, "%s: more than %lld rows", writer->path, (long long)writer->count);
  const struct shard_shape *shape = &writer->shape;
  size_t row_bytes = (size_t)shape->height * (size_t)shape->width * (size_t)shape->channels;
  for (int64_t i = 0; i < count; i++) {
    if (labels[i] < 0 || labels[i] >= shape->classes)
      return RAISE(STATUS_INTERNAL, "%s: label %d, expected 0..%d", writer->path, labels[i],
                   shape->classes - 1);
    uint64_t row_digest = shard_row_digest(images + (size_t)i * row_bytes, row_bytes, labels[i]);
    writer->digest += shard_digest_term(row_digest, writer->written + i);
  }
  if (!write_rows(writer, writer->images, H5T_NATIVE_UINT8, 4, writer->written, count, images) ||
      !write_rows(writer, writer->labels, H5T_NATIVE_INT32, 1, writer->written, count, labels))
    return refuse(writer, "rows");
  writer->written += count;
  return STATUS_OK;
}

/* Writes one attribute of the root: a scalar if count is 0. */
static bool write_attribute(struct shard_writer *writer, const char *name, hid_t type, hsize_t count,
                            const void *value) {
  hid_t space = count ? H5Screate_simple(1, &count, NULL) : H5Screate(H5S_SCALAR);
  hid_t attribute = space < 0 ? space : H5Acreate2(writer->file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  bool good = attribute >= 0 && H5Awrite(attribute, type, value) >= 0;
  failed(writer, !good);
  if (attribute >= 0) good = H5Aclose(attribute) >= 0 && good;
  if (space >= 0) H5Sclose(space);
  return good;
}

static hid_t utf8_string(size_t size) {
  hid_t type = H5Tcopy(H5T_C_S1);
  if (type >= 0 && H5Tset_size(type, size) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0) return type;
  return H5I_INVALID_HID;
}

static bool write_attributes(struct shard_writer *writer) {
  hid_t format = utf8_string(strlen(SHARD_FORMAT)), name = utf8_string(H5T_VARIABLE);
  const struct shard_shape *shape = &writer->shape;
  bool good = format >= 0 && name >= 0 && write_attribute(writer, "format", format, 0, SHARD_FORMAT) &&
              write_attribute(writer, "digest", H5T_NATIVE_UINT64, 0, &writer->digest);
  if (good && shape->class_name)
    good = write_attribute(writer, "classes", name, (hsize_t)shape->classes, shape->class_name);
  else if (good)
    good = write_attribute(writer, "classes", H5T_NATIVE_INT, 0, &shape->classes);
  if (format >= 0) H5Tclose(format);
  if (name >= 0) H5Tclose(name);
  return good;
}

static bool close_file(struct shard_writer *writer) {
  bool good = true;
  if (writer->images >= 0) good = !failed(writer, H5Dclose(writer->images) < 0) && good;
  if (writer->labels >= 0) good = !failed(writer, H5Dclose(writer->labels) < 0) && good;
  if (writer->file >= 0) good = !failed(writer, H5Fclose(writer->file) < 0) && good;
  writer->images = writer->labels = writer->file = H5I_INVALID_HID;
  return good;
}

static enum status sync_file(const char *path) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  bool synced = file >= 0 && fsync(file) == 0;
  int error = errno;
  if (file >= 0) close(file);
  return synced ? STATUS_OK : RAISE(STATUS_STORAGE, "cannot sync %s: %s", path, strerror(error));
}

enum status shard_writer_finish(struct shard_writer *writer) {
  if (writer->written != writer->count)
    return RAISE(STATUS_INTERNAL, "%s: %lld of %lld rows written", writer->path, (long long)writer->written,
                 (long long)writer->count);
  if (!write_attributes(writer)) return refuse(writer, "attributes");
  if (failed(writer, H5Fflush(writer->file, H5F_SCOPE_GLOBAL) < 0)) return refuse(writer, "flush");
  if (!close_file(writer)) return refuse(writer, "close");
  TRY(sync_file(writer->path));
  writer->finished = true;
  return STATUS_OK;
}

enum status shard_write_moments(const char *path, int channels, const double *mean, const double *std) {
  struct shard_writer writer = {.images = H5I_INVALID_HID, .labels = H5I_INVALID_HID, .path = strdup(path)};
  if (!writer.path) return RAISE(STATUS_INPUT, "no memory to write %s", path);
  writer.file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  hsize_t count = (hsize_t)channels;
  bool good = !failed(&writer, writer.file < 0) &&
              write_attribute(&writer, "mean", H5T_NATIVE_DOUBLE, count, mean) &&
              write_attribute(&writer, "std", H5T_NATIVE_DOUBLE, count, std);
  good = close_file(&writer) && good;
  enum status status = good ? sync_file(path) : refuse(&writer, "mean and std");
  free(writer.path);
  return status;
}

void shard_writer_destroy(struct shard_writer *writer) {
  if (!writer) return;
  close_file(writer);
  if (!writer->finished && writer->path) unlink(writer->path);
  free(writer->path);
  free(writer);
}
