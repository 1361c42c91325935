/* Rows of a shard that only HDF5 can read (chunks, filters, unusual layouts): a child process opens the file
 * and hands the rows over, so that what HDF5 makes of a damaged file cannot end the program. */
#ifndef CONVOY_DATA_SHARD_CHILD_H
#define CONVOY_DATA_SHARD_CHILD_H

#include "data/shard_read.h"

struct shard_child;

/* Starts the child; `info` is what shard_survey found, perhaps on another rank: if the file is not so, or
 * cannot be opened, the first read says it. The path is borrowed. */
enum status shard_child_open(const char *path, const struct shard_info *info, struct shard_child **child);
void shard_child_close(struct shard_child *child); /* NULL: nothing */

/* Rows [first, first + count), count > 0, as stored (N,C,H,W where info->planar); labels widened. */
enum status shard_child_read(struct shard_child *child, int64_t first, int64_t count, uint8_t *images,
                             int64_t *labels);

#endif
