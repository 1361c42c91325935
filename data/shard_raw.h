/* Rows of a shard whose data sets are contiguous, by their place in the file: no HDF5, any thread. */
#ifndef CONVOY_DATA_SHARD_RAW_H
#define CONVOY_DATA_SHARD_RAW_H

#include "data/shard_read.h"

struct shard_raw;

/* Opens `path`, of which `info` (info->contiguous) is known, perhaps from another rank: a file of another
 * size is refused. */
enum status shard_raw_open(const char *path, const struct shard_info *info, struct shard_raw **raw);
void shard_raw_close(struct shard_raw *raw); /* NULL: nothing */

/* Rows [first, first + count): the images as stored (N,H,W,C, or N,C,H,W where info->planar), the labels
 * widened. */
enum status shard_raw_images(const struct shard_raw *raw, int64_t first, int64_t count, uint8_t *images);
enum status shard_raw_labels(struct shard_raw *raw, int64_t first, int64_t count, int64_t *labels);

/* Rows [first, first + count), count at most IOV_MAX, each to its own place to[i]; as stored. */
enum status shard_raw_scatter(const struct shard_raw *raw, int64_t first, int count, uint8_t *const *to);

#endif
