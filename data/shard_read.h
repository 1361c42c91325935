/* Reads one HDF5 shard: opens and checks it, then reads ranges of rows as N,H,W,C bytes. The only reader of
 * shards; the format is described in this folder's README.
 *
 * Faults are STATUS_INPUT and name the file, the data set, the row, what was found and what was expected.
 * HDF5 is not thread-safe: one thread of a process at a time. */
#ifndef CONVOY_DATA_SHARD_READ_H
#define CONVOY_DATA_SHARD_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/dataset.h"
#include "model/base/error.h"

#define SHARD_FORMAT "convoy-shard-1"

/* What a shard says of itself; plain bytes, so that one rank reads it and sends it to the others. */
struct shard_info {
  int64_t count;
  int32_t height, width, channels;
  int32_t planar;     /* 1: stored as N,C,H,W */
  int32_t classes;    /* 0: not given */
  int32_t named;      /* 1: the classes have names */
  int32_t has_digest; /* 0: a plain file */
  int32_t reserved;
  uint64_t digest;    /* see shard_tally.h */
  int64_t chunk_rows; /* rows of one chunk of the images; 1: not chunked */
  int32_t compressed; /* 1: chunks of the images pass through filters */
  int32_t contiguous; /* 1: both data sets lie in the file as they are in memory; then: */
  int64_t file_bytes, image_offset, label_offset;
  int32_t label_bytes, label_signed, label_big_endian;
  int32_t has_moments; /* 1: mean and std of the training set's channels are given, pixels scaled to 0..1 */
  double mean[4], std[4];
};

struct shard;

/* Opens and checks everything but the rows themselves. */
enum status shard_open(const char *path, struct shard **shard);
void shard_close(struct shard *shard); /* NULL: nothing */

/* As shard_open for a shard of which `info` is known from another rank: of a contiguous one no metadata is
 * read.
 */
enum status shard_open_known(const char *path, const struct shard_info *info, struct shard **shard);

/* As shard_open, but goes on after a fault: fault(context, status) is called for each, with the error's
 * record set. A status other than OK: the file cannot be opened at all. */
enum status shard_inspect(const char *path, void (*fault)(void *context, enum status status), void *context);

const struct shard_info *shard_describe(const struct shard *shard);
const char *shard_path(const struct shard *shard);

/* The names of the classes, name[info.classes]; only where info.named. */
enum status shard_class_names(struct shard *shard, char (*name)[DATASET_CLASS_NAME]);

/* Rows [first, first + count): images[count * H * W * C] as N,H,W,C, labels[count] as stored, unchecked. */
enum status shard_read(struct shard *shard, int64_t first, int64_t count, uint8_t *images, int64_t *labels);

/* Images N,C,H,W to N,H,W,C. */
void shard_interleave(const struct shard_info *info, int64_t count, const uint8_t *planar, uint8_t *images);

/* Where a read that begins at row `first` should end, at most `last`: a piece that stays in the cache and
 * does not cut a chunk, since HDF5 unpacks a whole chunk for any row in it. */
int64_t shard_piece_end(const struct shard *shard, int64_t first, int64_t last);

/* The innermost reason that HDF5 recorded for its last failure, in text[capacity]. */
const char *shard_reason(char *text, size_t capacity);

#endif
