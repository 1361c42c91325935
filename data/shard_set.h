/* Writes a whole data directory of shards, all or nothing: every file under a temporary name first, then
 * named. A failure leaves no new shard behind and, with `overwrite`, the old set as it was (shard_publish.h).
 */
#ifndef CONVOY_DATA_SHARD_SET_H
#define CONVOY_DATA_SHARD_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "data/shard_list.h"
#include "data/shard_write.h"
#include "model/base/error.h"

struct shard_rows {
  int64_t count; /* 0: no shard is written */
  int shards;    /* sizes differ by at most one row; fewer where there are fewer rows */
  /* Gives row `row` of the split: image[H*W*C], *label. */
  enum status (*get)(void *context, int64_t row, uint8_t *image, int32_t *label);
  void *context;
};

struct shard_set {
  struct shard_shape shape;
  struct shard_rows split[SPLIT_COUNT];
};

/* Puts in order what calls that were killed left (shard_stage_recover). Then STATUS_INPUT if the directory
 * holds anything (left-over *.tmp aside) and overwrite is false, holds shards that such a call had renamed
 * (NAME.h5.old), or is no directory. One that does not exist is fine. To be asked before any long work. */
enum status shard_set_check(const char *directory, bool overwrite);

/* Creates the directory where needed and writes the shards; with overwrite, they take the place of
 * older ones at the end. STATUS_STORAGE before anything is written where there is too little room. */
enum status shard_set_write(const struct shard_set *set, const char *directory, bool overwrite);

#endif
