/* All faults of a data directory; see check.h. */
#include "data/check.h"

#include <stdlib.h>

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
    end = shard_piece_end(shard, begin, info->count);
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

/* A shard may differ from the others in its shape and in its classes. */
static void join(struct checking *checking, struct shard *shard) {
  report(checking, dataset_plan_join_shape(&checking->plan, shard));
  report(checking, dataset_plan_join_classes(&checking->plan, shard));
}

/* Opens one shard and holds it to the others; with `rows`, reads them instead. Two passes, since a later
 * shard may be the one that gives the classes. */
static enum status check_shard(struct checking *checking, const char *directory, const char *name,
                               bool rows) {
  char *path = shard_list_path(directory, name);
  if (!path) return RAISE(STATUS_INPUT, "no memory to check %s", name);
  struct shard *shard = NULL;
  enum status status = shard_open(path, &shard);
  if (status == STATUS_OK && rows) {
    check_rows(checking, shard);
  } else if (status == STATUS_OK) {
    join(checking, shard);
  } else {
    error_clear();
    if (!rows) report(checking, shard_inspect(path, report, checking));
  }
  shard_close(shard);
  free(path);
  return STATUS_OK;
}

enum status dataset_check(const char *directory, void (*fault)(void *context, const char *line),
                          void *context, int64_t *faults) {
  struct checking checking = {.fault = fault, .context = context};
  struct shard_list list;
  enum status status = STATUS_OK;
  TRY(shard_list_read(directory, &list));
  if (list.count[SPLIT_TRAIN] + list.count[SPLIT_TEST] == 0)
    report(&checking,
           RAISE(STATUS_INPUT, "data directory %s has no shard (expected train-*.h5, test-*.h5)", directory));
  for (int split = 0; split < SPLIT_COUNT; split++)
    report(&checking, shard_list_complete(directory, &list, split));
  for (int pass = 0; pass < 2; pass++)
    for (int split = 0; split < SPLIT_COUNT; split++)
      for (int i = 0; i < list.count[split]; i++)
        TRY_OUT(check_shard(&checking, directory, list.name[split][i], pass == 1));
  *faults = checking.faults;
out:
  dataset_plan_free(&checking.plan);
  shard_list_free(&list);
  return status;
}
