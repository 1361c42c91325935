/* From shards to shards; see import_shards.h. */
#include "data/import_shards.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_plan.h"
#include "data/shard_set.h"
#include "data/shard_tally.h"
#include "model/base/log.h"
#include "model/base/random.h"

/* A split of the source: the labels of all rows, those that are kept, and the piece that was read last. */
struct source_split {
  const char *directory;
  const struct plan_shard *shard;
  int shard_count;
  size_t row_bytes;
  int64_t count, kept;
  int32_t *label;     /* owned: [count] */
  uint32_t *row;      /* owned: [kept], ascending */
  const int32_t *to;  /* new label of each old one */
  struct shard *open; /* owned */
  int number;         /* of the open shard */
  uint8_t *images;    /* owned: of rows [first, last) of the open shard */
  int32_t *labels;    /* owned */
  int64_t first, last, capacity;
};

struct rewriting {
  struct dataset_plan plan;
  int32_t *to; /* owned: -1: the class is left out */
  int classes;
  const char **class_name; /* owned array of the plan's names; NULL: none */
  struct source_split split[SPLIT_COUNT];
};

/* ---- reading ---- */

/* Reads the piece of the open shard that begins at its row `row`. */
static enum status read_piece(struct source_split *split, int64_t row, int64_t limit,
                              struct shard_tally *tally) {
  const struct plan_shard *entry = &split->shard[split->number];
  int64_t end = shard_piece_end(&entry->info, row, entry->info.count);
  if (end - row > split->capacity) {
    free(split->images);
    free(split->labels);
    split->capacity = end - row;
    split->images = malloc((size_t)split->capacity * split->row_bytes);
    split->labels = malloc((size_t)split->capacity * sizeof *split->labels);
    if (!split->images || !split->labels) {
      split->capacity = 0;
      return RAISE(STATUS_INPUT, "no memory to read %s", entry->name);
    }
  }
  split->first = row;
  split->last = row;
  TRY(shard_tally_read(split->open, row, end, entry->first + row, limit, split->images, split->labels,
                       tally));
  split->last = end;
  return STATUS_OK;
}

static enum status open_shard(struct source_split *split, int number) {
  shard_close(split->open);
  split->open = NULL;
  split->first = split->last = 0;
  char *path = shard_list_path(split->directory, split->shard[number].name);
  if (!path) return RAISE(STATUS_INPUT, "no memory to open %s", split->shard[number].name);
  enum status status = shard_open_known(path, &split->shard[number].info, &split->open);
  free(path);
  split->number = number;
  return status;
}

/* Verifies every row of a split and keeps the labels. */
static enum status read_labels(struct source_split *split, int64_t limit) {
  split->label = calloc((size_t)split->count + 1, sizeof *split->label);
  if (!split->label) return RAISE(STATUS_INPUT, "no memory for %lld labels", (long long)split->count);
  for (int i = 0; i < split->shard_count; i++) {
    const struct plan_shard *entry = &split->shard[i];
    struct shard_tally tally;
    shard_tally_clear(&tally);
    TRY(open_shard(split, i));
    for (int64_t row = 0; row < entry->info.count; row = split->last) {
      TRY(read_piece(split, row, limit, &tally));
      memcpy(split->label + entry->first + row, split->labels,
             (size_t)(split->last - row) * sizeof *split->label);
    }
    TRY(shard_tally_labels(shard_path(split->open), &tally, limit));
    TRY(shard_tally_digest(shard_path(split->open), &entry->info, tally.shard_digest));
  }
  return STATUS_OK;
}

static enum status get_row(void *context, int64_t row, uint8_t *image, int32_t *label) {
  struct source_split *split = context;
  int64_t from = split->row[row];
  int number = split->number;
  while (from < split->shard[number].first) number--;
  while (from >= split->shard[number].first + split->shard[number].info.count) number++;
  if (number != split->number || !split->open) TRY(open_shard(split, number));
  from -= split->shard[number].first;
  struct shard_tally tally;
  shard_tally_clear(&tally);
  if (from < split->first || from >= split->last) TRY(read_piece(split, from, INT32_MAX, &tally));
  int64_t at = from - split->first;
  memcpy(image, split->images + (size_t)at * split->row_bytes, split->row_bytes);
  if (split->labels[at] != split->label[split->row[row]])
    return RAISE(STATUS_INPUT, "%s: changed while it was read", shard_path(split->open));
  *label = split->to[split->labels[at]];
  return STATUS_OK;
}

/* ---- choosing ---- */

static int find_class(const struct rewriting *rewriting, const char *text, int classes) {
  for (int i = 0; i < classes; i++) {
    char number[16];
    snprintf(number, sizeof number, "%d", i);
    if (strcmp(text, number) == 0) return i;
    if (rewriting->plan.named && strcmp(text, rewriting->plan.class_name[i]) == 0) return i;
  }
  return -1;
}

/* Numbers the classes that stay, in their old order. */
static enum status choose_classes(struct rewriting *rewriting, const char *from, const char *wanted,
                                  int classes) {
  if (classes < 1) return RAISE(STATUS_INPUT, "%s has no classes", from);
  rewriting->to = calloc((size_t)classes, sizeof *rewriting->to);
  rewriting->class_name = calloc((size_t)classes, sizeof *rewriting->class_name);
  char *text = wanted ? strdup(wanted) : NULL, *rest = NULL;
  enum status status = STATUS_OK;
  if (!rewriting->to || !rewriting->class_name || (wanted && !text))
    TRY_OUT(RAISE(STATUS_INPUT, "no memory for %d classes", classes));
  for (char *word = text ? strtok_r(text, ",", &rest) : NULL; word; word = strtok_r(NULL, ",", &rest)) {
    int class = find_class(rewriting, word, classes);
    if (class < 0) TRY_OUT(RAISE(STATUS_INPUT, "%s has no class '%s'; see convoy data info", from, word));
    rewriting->to[class] = 1;
  }
  for (int i = 0; i < classes; i++) {
    bool stays = !wanted || rewriting->to[i];
    rewriting->to[i] = stays ? rewriting->classes : -1;
    if (!stays) continue;
    if (rewriting->plan.named) rewriting->class_name[rewriting->classes] = rewriting->plan.class_name[i];
    rewriting->classes++;
  }
  if (rewriting->classes < 1) TRY_OUT(RAISE(STATUS_INPUT, "no class is left of '%s'", wanted));
out:
  free(text);
  return status;
}

static int compare_rows(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* The rows of a split that stay: of each class the same fraction, drawn by the seed. */
static enum status choose_rows(struct source_split *split, double fraction, uint64_t seed, int number,
                               int classes) {
  uint32_t count = (uint32_t)split->count;
  int64_t *left = calloc(classes > 0 ? (size_t)classes : 1, sizeof *left);
  split->row = malloc(((size_t)count + 1) * sizeof *split->row);
  enum status status = STATUS_OK;
  if (!left || !split->row) TRY_OUT(RAISE(STATUS_INPUT, "no memory to choose of %u images", count));
  for (uint32_t i = 0; i < count; i++) left[split->label[i]]++;
  for (int c = 0; c < classes; c++) {
    int64_t wanted = llround((double)left[c] * fraction);
    left[c] = split->to[c] < 0 ? 0 : wanted < 1 && left[c] > 0 ? 1 : wanted;
  }
  random_permutation(random_key(seed, RANDOM_IMPORT, (uint32_t)number), count, split->row);
  for (uint32_t i = 0; i < count; i++) {
    int64_t *of_class = &left[split->label[split->row[i]]];
    if (*of_class == 0) continue;
    (*of_class)--;
    split->row[split->kept++] = split->row[i];
  }
  qsort(split->row, (size_t)split->kept, sizeof *split->row, compare_rows);
out:
  free(left);
  return status;
}

/* ---- the whole ---- */

static enum status read_source(struct rewriting *rewriting, const struct import_shards_options *options) {
  struct dataset_plan *plan = &rewriting->plan;
  TRY(dataset_plan_read(options->from, 0, plan));
  int64_t limit = plan->classes ? plan->classes : DATASET_MAX_CLASSES;
  int classes = plan->classes;
  for (int i = 0; i < SPLIT_COUNT; i++) {
    struct source_split *split = &rewriting->split[i];
    *split = (struct source_split){
        .directory = options->from,
        .shard = plan->shard + (i == SPLIT_TRAIN ? 0 : plan->shard_count[SPLIT_TRAIN]),
        .shard_count = plan->shard_count[i],
        .row_bytes = (size_t)plan->height * (size_t)plan->width * (size_t)plan->channels,
        .count = plan->count[i]};
    TRY(read_labels(split, limit));
    for (int64_t row = 0; row < split->count && !plan->classes; row++)
      if (split->label[row] >= classes) classes = split->label[row] + 1;
  }
  if (!plan->classes && classes < 10) classes = 10;
  TRY(choose_classes(rewriting, options->from, options->classes, classes));
  for (int i = 0; i < SPLIT_COUNT; i++) {
    rewriting->split[i].to = rewriting->to;
    TRY(choose_rows(&rewriting->split[i], options->fraction, options->seed, i, classes));
    shard_close(rewriting->split[i].open);
    rewriting->split[i].open = NULL;
    rewriting->split[i].number = 0;
    rewriting->split[i].first = rewriting->split[i].last = 0;
  }
  return STATUS_OK;
}

static void release(struct rewriting *rewriting) {
  for (int i = 0; i < SPLIT_COUNT; i++) {
    struct source_split *split = &rewriting->split[i];
    shard_close(split->open);
    free(split->label);
    free(split->row);
    free(split->images);
    free(split->labels);
  }
  free(rewriting->to);
  free(rewriting->class_name);
  dataset_plan_free(&rewriting->plan);
}

enum status import_shards_run(const struct import_shards_options *options) {
  struct rewriting rewriting = {.classes = 0};
  enum status status = STATUS_OK;
  TRY(shard_set_check(options->out, options->overwrite));
  TRY_OUT(read_source(&rewriting, options));
  const struct dataset_plan *plan = &rewriting.plan;
  struct shard_set set = {.shape = {plan->height, plan->width, plan->channels, rewriting.classes,
                                    plan->named ? rewriting.class_name : NULL}};
  for (int i = 0; i < SPLIT_COUNT; i++) {
    int shards = i == SPLIT_TRAIN ? options->train_shards : options->test_shards;
    if (shards == 0) shards = plan->shard_count[i] > 0 ? plan->shard_count[i] : 1;
    set.split[i] = (struct shard_rows){rewriting.split[i].kept, shards, get_row, &rewriting.split[i]};
  }
  log_info("%s: %lld of %lld training and %lld of %lld test images, %d classes", options->from,
           (long long)rewriting.split[SPLIT_TRAIN].kept, (long long)plan->count[SPLIT_TRAIN],
           (long long)rewriting.split[SPLIT_TEST].kept, (long long)plan->count[SPLIT_TEST],
           rewriting.classes);
  TRY_OUT(shard_set_write(&set, options->out, options->overwrite));
out:
  release(&rewriting);
  return status;
}
