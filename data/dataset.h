/* A data directory of HDF5 shards, opened, checked and held in memory (design: README in this folder).
 *
 * Every shard is checked before anything is returned; a fault is STATUS_INPUT and names file, data set, row,
 * what was found and what was expected. Each rank reads its own slice; the ranks of a host share one copy. */
#ifndef CONVOY_DATA_DATASET_H
#define CONVOY_DATA_DATASET_H

#include <stdbool.h>
#include <stdint.h>

#include "model/base/error.h"
#include "model/base/world.h"

enum { DATASET_MAX_CLASSES = 1000, DATASET_CLASS_NAME = 64 };

struct dataset_plan;

struct split {
  int64_t count; /* images over all shards, in name order */
  int shard_count;
  const uint8_t *images; /* N,H,W,C; NULL for training images that are streamed or only checked */
  const int32_t *labels; /* N, 0..classes-1 */
};

struct dataset {
  int height, width, channels, classes;
  bool classes_given; /* the shards name them; else classes = max(10, largest label + 1) */
  char (*class_name)[DATASET_CLASS_NAME];
  struct split train, test; /* count 0: that split has no shard */
  uint64_t digest;          /* of images and labels in N,H,W,C order: the same for any sharding and layout */
  double mean[4], std[4];   /* of the training images, per channel, pixels scaled to 0..1 */
  int64_t packed_rows;      /* rows of the largest compressed chunk of images; 0: none is compressed */
  int moments_stored;       /* shards that give mean and std; `note` tells if they are not these */
  char note[256];           /* what a reader should know: "(N,C,H,W) shards transposed"; "" for nothing */
  bool streamed;            /* the training images are not in memory: read them through data/stream.h */
  struct world_shared *memory; /* owned */
  struct dataset_plan *plan;   /* owned: what the shards are; only where streamed */
  char *directory;             /* owned; only where streamed */
};

/* Which splits a command needs; one that is needed and has no shard is STATUS_INPUT. DATASET_CHECKED: the
 * training images are verified and described, but not kept (train.images is NULL), whatever their size. */
enum dataset_need { DATASET_TRAIN = 1, DATASET_TEST = 2, DATASET_CHECKED = 4 };

/* As dataset_open, for training images that take more than `limit` bytes of memory (rank 0's counts):
 * they are verified as all others, but not kept: `streamed`. */
enum status dataset_open_limited(const struct world *world, const char *directory, unsigned need,
                                 int64_t limit, struct dataset **dataset);

/* Collective; all ranks return the same status. All images are held in memory, but see DATASET_CHECKED. */
enum status dataset_open(const struct world *world, const char *directory, unsigned need,
                         struct dataset **dataset);
void dataset_close(struct dataset *dataset); /* NULL: nothing; collective */

#endif
