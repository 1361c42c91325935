/* Reads ranges of rows of one shard as N,H,W,C bytes. The only reader of shards; the format is described in
 * this folder's README.
 *
 * Faults are STATUS_INPUT and name the file, the data set, the row, what was found and what was expected. */
#ifndef CONVOY_DATA_SHARD_READ_H
#define CONVOY_DATA_SHARD_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/dataset.h"
#include "model/base/error.h"

#define SHARD_FORMAT "convoy-shard-1"

enum { SHARD_IMAGE_BYTES = 1 << 26 }; /* of one image, at most */

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

/* Opens a shard of which `info` is known, from shard_survey here or on another rank: its rows are read by
 * their place where it is contiguous, else by HDF5 in a child process. A file that is not as `info` says is
 * refused, at once or by the first read. */
enum status shard_open_known(const char *path, const struct shard_info *info, struct shard **shard);

/* Surveys and opens one shard. */
enum status shard_open(const char *path, struct shard **shard);
void shard_close(struct shard *shard); /* NULL: nothing */

/* Both are the shard's and last as long as it. */
const struct shard_info *shard_describe(const struct shard *shard);
const char *shard_path(const struct shard *shard);

/* Rows [first, first + count): images[count * H * W * C] as N,H,W,C, labels[count] as stored, unchecked. */
enum status shard_read(struct shard *shard, int64_t first, int64_t count, uint8_t *images, int64_t *labels);

/* Images N,C,H,W to N,H,W,C. */
void shard_interleave(const struct shard_info *info, int64_t count, const uint8_t *planar, uint8_t *images);

/* Where a read that begins at row `first` should end, at most `last`: a piece that stays in the cache and
 * does not cut a chunk, since HDF5 unpacks a whole chunk for any row in it. */
int64_t shard_piece_end(const struct shard_info *info, int64_t first, int64_t last);

#endif
