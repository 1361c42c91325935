/* From shards to shards (`convoy data import --from` a folder of shards): contiguous whatever the source's
 * chunks and layout, other sizes, a part of the images. The rows keep their order and are never all in
 * memory. */
#ifndef CONVOY_DATA_IMPORT_SHARDS_H
#define CONVOY_DATA_IMPORT_SHARDS_H

#include <stdbool.h>
#include <stdint.h>

#include "model/base/error.h"

struct import_shards_options {
  const char *from, *out;
  int train_shards, test_shards; /* 0: as many as the source has */
  const char *classes;           /* names or numbers of the classes to keep, "cat,dog"; NULL: all */
  double fraction;               /* of each class of each split to keep, at least one image; 1: all */
  uint64_t seed;                 /* of the images that a fraction keeps */
  bool overwrite;
};

/* Verifies the source wholly before it writes. Errors and `out` as import_run's. */
enum status import_shards_run(const struct import_shards_options *options);

#endif
