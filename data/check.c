/* All faults of a data directory; see check.h. */
#include "data/check.h"

#include <stdlib.h>
#include <string.h>

#include "data/dataset_plan.h"
#include "data/shard_tally.h"

struct checking {
  void (*fault)(void *context, const char *line);
  void *context;
  int64_t faults;
  struct dataset_plan plan; /* what the good shards agree on */
};

/* Reports a refusal and goes on. */
static void report(void *context, enum status status) {
  struct checking *checking = context;
  if (status == STATUS_OK) return;
  checking->fault(checking->context, error_message());
  checking->faults++;
  error_clear();
}

static void check_rows(struct checking *checking, struct shard *shard) {
  const struct shard_info *info = shard_describe(shard);
  size_t row_bytes = (size_t)info->height * (size_t)info->width * (size_t)info->channels;
  int64_t limit = checking->plan.classes ? checking->plan.classes : DATASET_MAX_CLASSES, capacity = 0;
  uint8_t *images = NULL;
  int32_t *labels = NULL;
  struct shard_tally tally;
  enum status status = STATUS_OK;
  shard_tally_clear(&tally);
  for (int64_t begin = 0, end; begin < info->count && status == STATUS_OK; begin = end) {
    end = shard_piece_end(info, begin, info->count);
    if (end - begin > capacity) {
      capacity = end - begin;
      free(images);
      free(labels);
      images = malloc((size_t)capacity * row_bytes);
      labels = malloc((size_t)capacity * sizeof *labels);
    }
    if (!images || !labels)
      status = RAISE(STATUS_INPUT, "no memory to check %s", shard_path(shard));
    else
      status = shard_tally_read(shard, begin, end, begin, limit, images, labels, &tally);
  }
  report(checking, status);
  if (status == STATUS_OK) {
    report(checking, shard_tally_labels(shard_path(shard), &tally, limit));
    report(checking, shard_tally_digest(shard_path(shard), info, tally.shard_digest));
  }
  free(images);
  free(labels);
}

/* All lines of a shard that cannot be read. */
static void report_faults(struct checking *checking, const struct shard_metadata *metadata) {
  const char *line = metadata->fault;
  for (int i = 0; i < metadata->faults; i++, line += strlen(line) + 1)
    report(checking, RAISE(STATUS_INPUT, "%s", line));
}

/* Two passes over those without faults, since a later shard may be the one that gives the classes. */
static enum status check_shards(struct checking *checking, const char *const *path, int count,
                                struct shard_metadata *metadata) {
  TRY(shard_survey(path, count, metadata));
  for (int i = 0; i < count; i++) {
    report_faults(checking, &metadata[i]);
    if (metadata[i].faults > 0) continue;
    report(checking, dataset_plan_join_shape(&checking->plan, path[i], &metadata[i].info));
    report(checking, dataset_plan_join_classes(&checking->plan, path[i], &metadata[i]));
  }
  for (int i = 0; i < count; i++) {
    struct shard *shard = NULL;
    if (metadata[i].faults > 0) continue;
    enum status status = shard_open_known(path[i], &metadata[i].info, &shard);
    report(checking, status);
    if (status == STATUS_OK) check_rows(checking, shard);
    shard_close(shard);
  }
  return STATUS_OK;
}

enum status dataset_check(const char *directory, void (*fault)(void *context, const char *line),
                          void *context, int64_t *faults) {
  struct checking checking = {.fault = fault, .context = context};
  struct shard_list list;
  enum status status = STATUS_OK;
  TRY(shard_list_read(directory, &list));
  int total = list.count[SPLIT_TRAIN] + list.count[SPLIT_TEST];
  char **path = calloc((size_t)total + 1, sizeof *path);
  struct shard_metadata *metadata = calloc((size_t)total + 1, sizeof *metadata);
  if (!path || !metadata) TRY_OUT(RAISE(STATUS_INPUT, "no memory for %d shards", total));
  if (total == 0)
    report(&checking,
           RAISE(STATUS_INPUT, "data directory %s has no shard (expected train-*.h5, test-*.h5)", directory));
  for (int split = 0; split < SPLIT_COUNT; split++)
    report(&checking, shard_list_complete(directory, &list, split));
  TRY_OUT(shard_list_paths(directory, &list, path));
  TRY_OUT(check_shards(&checking, (const char *const *)path, total, metadata));
  for (int split = 0; split < SPLIT_COUNT; split++) {
    int first = split == SPLIT_TRAIN ? 0 : list.count[SPLIT_TRAIN];
    TRY_OUT(dataset_plan_warn_twins((const char *const *)path + first, metadata + first, list.count[split]));
  }
  *faults = checking.faults;
out:
  dataset_plan_free(&checking.plan);
  if (metadata) shard_metadata_free(metadata, total);
  free(metadata);
  shard_list_free_paths(path, total);
  shard_list_free(&list);
  return status;
}
