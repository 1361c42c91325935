/* Makes shards from image files: CIFAR-10's binary version, or a tree train|test/CLASS/NAME.jpg|png, each as
 * a folder or in an archive (`convoy data import`). */
#ifndef CONVOY_DATA_IMPORT_H
#define CONVOY_DATA_IMPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "model/base/error.h"

struct import_options {
  const char *from, *out;
  int train_shards, test_shards; /* at least 1 */
  uint64_t seed;                 /* of the permutation of the images */
  bool overwrite;                /* replace shards in a non-empty `out` */
};

/* The decoded images must fit in memory. Images are sorted by name and then shuffled, so that the same images
 * and seed give the same bytes whatever the kind of archive and its order. On failure `out` is as it was
 * before: a member that cannot be taken is STATUS_INPUT with its name. Not collective: one rank does it. */
enum status import_run(const struct import_options *options);

#endif
