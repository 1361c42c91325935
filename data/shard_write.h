/* Writes one HDF5 shard; the only writer of shards. The format is described in this folder's README.
 *
 * Rows go to disk as they come. The same rows give the same bytes. A failure is STATUS_STORAGE. */
#ifndef CONVOY_DATA_SHARD_WRITE_H
#define CONVOY_DATA_SHARD_WRITE_H

#include <stdint.h>

#include "model/base/error.h"

struct shard_shape {
  int height, width, channels, classes;
  const char *const *class_name; /* classes names, UTF-8; NULL: only their number is written */
};

struct shard_writer;

/* Creates `path`, replacing a file there, for exactly `count` rows. */
enum status shard_writer_create(const char *path, const struct shard_shape *shape, int64_t count,
                                struct shard_writer **writer);

/* Appends rows: images N,H,W,C, labels 0..classes-1. */
enum status shard_writer_append(struct shard_writer *writer, int64_t count, const uint8_t *images,
                                const int32_t *labels);

/* Writes the attributes, closes and syncs the file; all rows must have been appended. */
enum status shard_writer_finish(struct shard_writer *writer);

/* Adds the attributes `mean` and `std` of the set's training images, one number a channel, to a finished
 * file.
 */
enum status shard_write_moments(const char *path, int channels, const double *mean, const double *std);

/* Frees the writer; an unfinished file is removed. NULL: nothing. */
void shard_writer_destroy(struct shard_writer *writer);

#endif
