/* The metadata of a data directory; see dataset_plan.h. */
#include "data/dataset_plan.h"

#include <stdlib.h>
#include <string.h>

#include "data/sampler.h"
#include "model/base/log.h"

enum status dataset_plan_join_shape(struct dataset_plan *plan, const char *path,
                                    const struct shard_info *info) {
  if (plan->height == 0) {
    plan->height = info->height;
    plan->width = info->width;
    plan->channels = info->channels;
  }
  if (info->height != plan->height || info->width != plan->width || info->channels != plan->channels)
    return RAISE(STATUS_INPUT, "%s: images of %dx%dx%d (H,W,C), expected %dx%dx%d as in the other shards",
                 path, info->height, info->width, info->channels, plan->height, plan->width, plan->channels);
  if (info->planar) plan->planar_shards++;
  return STATUS_OK;
}

enum status dataset_plan_join_classes(struct dataset_plan *plan, const char *path,
                                      struct shard_metadata *metadata) {
  const struct shard_info *info = &metadata->info;
  if (!info->classes) return STATUS_OK;
  if (plan->classes && plan->classes != info->classes)
    return RAISE(STATUS_INPUT, "%s: %d classes, expected %d as in the other shards", path, info->classes,
                 plan->classes);
  plan->classes = info->classes;
  if (!info->named) return STATUS_OK;
  if (!plan->named) {
    plan->named = 1;
    plan->class_name = metadata->class_name;
    metadata->class_name = NULL;
    return STATUS_OK;
  }
  for (int i = 0; i < info->classes; i++)
    if (strcmp(metadata->class_name[i], plan->class_name[i]) != 0)
      return RAISE(STATUS_INPUT, "%s: class %d is '%s', expected '%s' as in the other shards", path, i,
                   metadata->class_name[i], plan->class_name[i]);
  return STATUS_OK;
}

/* Joins one shard to the plan, the rows of which begin where those before it ended. */
static enum status join_shard(struct dataset_plan *plan, int split, const char *path,
                              struct shard_metadata *metadata, struct plan_shard *entry) {
  TRY(shard_metadata_refuse(metadata));
  TRY(dataset_plan_join_shape(plan, path, &metadata->info));
  TRY(dataset_plan_join_classes(plan, path, metadata));
  entry->info = metadata->info;
  entry->first = plan->count[split];
  plan->count[split] += entry->info.count;
  if (plan->count[split] > UINT32_MAX)
    return RAISE(STATUS_INPUT, "%s: more than %u images in the %s shards", path, UINT32_MAX,
                 split_name(split));
  return STATUS_OK;
}

static enum status check_need(const char *directory, unsigned need, const struct dataset_plan *plan) {
  for (int split = 0; split < SPLIT_COUNT; split++) {
    if (!(need & (split == SPLIT_TRAIN ? DATASET_TRAIN : DATASET_TEST))) continue;
    const char *name = split_name(split);
    if (plan->shard_count[split] == 0)
      return RAISE(
          STATUS_INPUT,
          "data directory %s has no %s shard (expected %s-*.h5); make them with `convoy data import` or "
          "`synth`",
          directory, name, name);
    if (plan->count[split] == 0)
      return RAISE(STATUS_INPUT, "data directory %s: its %s shards hold 0 images, expected at least 1",
                   directory, name);
  }
  if (plan->shard_count[SPLIT_TRAIN] + plan->shard_count[SPLIT_TEST] == 0)
    return RAISE(
        STATUS_INPUT,
        "data directory %s has no shard (expected train-*.h5, test-*.h5); make them with `convoy data "
        "import` or `synth`",
        directory);
  return STATUS_OK;
}

struct twin {
  uint64_t digest;
  int64_t count;
  const char *path;
};

static int compare_twins(const void *left, const void *right) {
  const struct twin *a = left, *b = right;
  if (a->digest != b->digest) return a->digest < b->digest ? -1 : 1;
  return (a->count > b->count) - (a->count < b->count);
}

enum status dataset_plan_warn_twins(const char *const *path, const struct shard_metadata *metadata,
                                    int count) {
  struct twin *twin = calloc((size_t)count + 1, sizeof *twin);
  int known = 0;
  if (!twin) return RAISE(STATUS_INPUT, "no memory for %d shards", count);
  for (int i = 0; i < count; i++) {
    const struct shard_info *info = &metadata[i].info;
    if (metadata[i].faults == 0 && info->has_digest && info->count > 0)
      twin[known++] = (struct twin){info->digest, info->count, path[i]};
  }
  qsort(twin, (size_t)known, sizeof *twin, compare_twins);
  for (int i = 1; i < known; i++)
    if (compare_twins(&twin[i - 1], &twin[i]) == 0) {
      log_warning("%s and %s hold the same images and labels: is one a copy under the other's name?",
                  twin[i - 1].path, twin[i].path);
      break;
    }
  free(twin);
  return STATUS_OK;
}

static enum status read_shards(const char *directory, const struct shard_list *list, char **path,
                               struct shard_metadata *metadata, struct dataset_plan *plan) {
  int total = list->count[SPLIT_TRAIN] + list->count[SPLIT_TEST];
  TRY(shard_list_paths(directory, list, path));
  TRY(shard_survey((const char *const *)path, total, metadata));
  struct plan_shard *entry = plan->shard;
  for (int split = 0; split < SPLIT_COUNT; split++) {
    TRY(shard_list_complete(directory, list, split));
    plan->shard_count[split] = list->count[split];
    for (int i = 0; i < list->count[split]; i++, entry++) {
      int at = (int)(entry - plan->shard);
      memcpy(entry->name, list->name[split][i], SHARD_NAME);
      TRY(join_shard(plan, split, path[at], &metadata[at], entry));
    }
    int first = (int)(entry - plan->shard) - list->count[split];
    TRY(dataset_plan_warn_twins((const char *const *)path + first, metadata + first, list->count[split]));
  }
  return STATUS_OK;
}

enum status dataset_plan_read(const char *directory, unsigned need, struct dataset_plan *plan) {
  struct shard_list list;
  enum status status = STATUS_OK;
  *plan = (struct dataset_plan){.height = 0};
  TRY(shard_list_read(directory, &list));
  int total = list.count[SPLIT_TRAIN] + list.count[SPLIT_TEST];
  char **path = calloc((size_t)total + 1, sizeof *path);
  struct shard_metadata *metadata = calloc((size_t)total + 1, sizeof *metadata);
  plan->shard = calloc((size_t)total + 1, sizeof *plan->shard);
  if (!plan->shard || !path || !metadata) TRY_OUT(RAISE(STATUS_INPUT, "no memory for %d shards", total));
  TRY_OUT(read_shards(directory, &list, path, metadata, plan));
  TRY_OUT(check_need(directory, need, plan));
out:
  if (metadata) shard_metadata_free(metadata, total);
  free(metadata);
  shard_list_free_paths(path, total);
  shard_list_free(&list);
  if (status != STATUS_OK) dataset_plan_free(plan);
  return status;
}

enum status dataset_plan_limit(struct dataset_plan *plan, const char *directory, int64_t limit) {
  int64_t bytes = plan->count[SPLIT_TRAIN] * plan->height * plan->width * plan->channels;
  plan->streamed = bytes > limit;
  for (int i = 0; i < plan->shard_count[SPLIT_TRAIN] && plan->streamed; i++)
    if (plan->shard[i].info.count > 0 && !plan->shard[i].info.contiguous)
      return RAISE(
          STATUS_INPUT,
          "%s/%s: %.1f MiB of training images exceed the memory limit of %.1f MiB, but its rows are chunked "
          "and cannot be streamed; rewrite the set: convoy data import --from %s --out NEW --rechunk",
          directory, plan->shard[i].name, (double)bytes / 0x1p20, (double)limit / 0x1p20, directory);
  return STATUS_OK;
}

enum status dataset_plan_send(const struct world *world, struct dataset_plan *plan) {
  struct plan_shard *shard = plan->shard;
  char(*class_name)[DATASET_CLASS_NAME] = plan->class_name;
  enum status status = world_broadcast(world, plan, sizeof *plan, 0);
  plan->shard = shard; /* its own pointers, also after a failure: they are freed */
  plan->class_name = class_name;
  TRY(status);
  size_t shards = (size_t)plan->shard_count[SPLIT_TRAIN] + (size_t)plan->shard_count[SPLIT_TEST];
  size_t names = plan->named ? (size_t)plan->classes : 0;
  if (world->rank != 0) {
    plan->shard = calloc(shards ? shards : 1, sizeof *plan->shard);
    plan->class_name = calloc(names ? names : 1, sizeof *plan->class_name);
    if (!plan->shard || !plan->class_name) status = RAISE(STATUS_INPUT, "no memory for %zu shards", shards);
  }
  TRY(world_agree(world, status));
  TRY(world_broadcast(world, plan->shard, shards * sizeof *plan->shard, 0));
  return names ? world_broadcast(world, plan->class_name, names * sizeof *plan->class_name, 0) : STATUS_OK;
}

/* Where a rank's part begins: an even share. A shard that HDF5 must read is not cut: one rank opens it. */
static int64_t part_begin(const struct dataset_plan *plan, int split, int rank, int size) {
  int64_t begin, count;
  if (rank == size) return plan->count[split];
  sampler_part(plan->count[split], rank, size, &begin, &count);
  const struct plan_shard *shard = plan->shard + (split == SPLIT_TRAIN ? 0 : plan->shard_count[SPLIT_TRAIN]);
  for (int i = 0; i < plan->shard_count[split]; i++) {
    int64_t row = begin - shard[i].first, rows = shard[i].info.count;
    if (row <= 0 || row >= rows || shard[i].info.contiguous) continue;
    return row <= rows / 2 ? shard[i].first : shard[i].first + rows;
  }
  return begin;
}

void dataset_plan_part(const struct dataset_plan *plan, int split, int rank, int size, int64_t *first,
                       int64_t *count) {
  *first = part_begin(plan, split, rank, size);
  *count = part_begin(plan, split, rank + 1, size) - *first;
}

void dataset_plan_free(struct dataset_plan *plan) {
  free(plan->shard);
  free(plan->class_name);
  *plan = (struct dataset_plan){.height = 0};
}
