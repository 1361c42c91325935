/* What rank 0 learns of a data directory before any row is read, sent to all ranks; used by dataset.c only.
 */
#ifndef CONVOY_DATA_DATASET_PLAN_H
#define CONVOY_DATA_DATASET_PLAN_H

#include "data/dataset.h"
#include "data/shard_list.h"
#include "data/shard_survey.h"

struct plan_shard {
  char name[SHARD_NAME];
  int64_t first; /* number of its first row in its split */
  struct shard_info info;
};

struct dataset_plan {
  int32_t height, width, channels;
  int32_t classes; /* 0: no shard says */
  int32_t named;   /* 1: class_name holds the shards' names */
  int32_t planar_shards;
  int32_t streamed; /* 1: the training images do not fit in memory and are read by the steps */
  int32_t checked;  /* 1: nobody wants the training images: they are verified and not kept */
  int32_t shard_count[SPLIT_COUNT];
  int64_t count[SPLIT_COUNT];
  struct plan_shard *shard;               /* owned: the training shards, then the test shards */
  char (*class_name)[DATASET_CLASS_NAME]; /* owned: classes, where named */
};

/* Reads the metadata of every shard of the directory; all must agree in shape and classes. Not collective. */
enum status dataset_plan_read(const char *directory, unsigned need, struct dataset_plan *plan);

/* Adds what one shard without faults says to the plan: the first one sets shape and classes, the others are
 * held to them. Names that the plan takes over are gone from the metadata. */
enum status dataset_plan_join_shape(struct dataset_plan *plan, const char *path,
                                    const struct shard_info *info);
enum status dataset_plan_join_classes(struct dataset_plan *plan, const char *path,
                                      struct shard_metadata *metadata);

/* Decides whether the training images are streamed: they take more than `limit` bytes. Shards that cannot be
 * read by place are refused then. Not collective. */
enum status dataset_plan_limit(struct dataset_plan *plan, const char *directory, int64_t limit);

/* Collective: rank 0's plan on all ranks. On the others plan is an output. */
enum status dataset_plan_send(const struct world *world, struct dataset_plan *plan);

/* The rows [first, first + count) of a split that a rank reads: parts of nearly one size, but none cuts a
 * shard that HDF5 must read (chunks, filters), so that it is opened, read and unpacked by one rank. */
void dataset_plan_part(const struct dataset_plan *plan, int split, int rank, int size, int64_t *first,
                       int64_t *count);

void dataset_plan_free(struct dataset_plan *plan);

/* Warns of the first two of a split's shards that say they hold the same rows: one may be a copy under
 * another's name. Metadata with faults and shards without a digest are left out. */
enum status dataset_plan_warn_twins(const char *const *path, const struct shard_metadata *metadata,
                                    int count);

#endif
