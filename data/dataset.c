/* Opens a data directory on all ranks: rank 0 reads the metadata, each rank its own slice of the rows into
 * memory that the ranks of its host share, and all agree on what was found; see dataset.h. */
#include "data/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_plan.h"
#include "data/row_read.h"
#include "model/base/cores.h"

/* Where the arrays of a split begin in the shared memory. */
struct placement {
  size_t images[SPLIT_COUNT], labels[SPLIT_COUNT], bytes;
};

struct reading {
  const struct world *world;
  const char *directory;
  const struct dataset_plan *plan;
  size_t row_bytes;
  int64_t limit; /* labels are 0..limit-1 */
  int threads;   /* of this rank, to read with */
  struct placement place;
  struct world_shared *shared;
  char *memory; /* its address */
};

/* What all ranks add up: one block of 64-bit integers, so that one sum does it. */
struct totals {
  int64_t sum[4], square[4];
  int64_t digest[SPLIT_COUNT];
  int64_t shard_digest[]; /* of each shard */
};

static size_t align(size_t offset) {
  return (offset + 63) & ~(size_t)63;
}

/* Whether a split's images stay in memory. */
static bool kept(const struct dataset_plan *plan, int split) {
  return split != SPLIT_TRAIN || !(plan->streamed || plan->checked);
}

static struct placement place(const struct dataset_plan *plan, size_t row_bytes) {
  struct placement place = {.bytes = 0};
  for (int split = 0; split < SPLIT_COUNT; split++) {
    place.images[split] = place.bytes;
    size_t images = kept(plan, split) ? (size_t)plan->count[split] * row_bytes : 0;
    place.labels[split] = align(place.bytes + images);
    place.bytes = align(place.labels[split] + (size_t)plan->count[split] * sizeof(int32_t));
  }
  return place;
}

/* The sum is taken modulo 2^64; the addition itself is unsigned. */
static void add_wrapping(int64_t *total, uint64_t value) {
  *total = (int64_t)((uint64_t)*total + value);
}

/* Reads this rank's rows of one shard. `rows` are [first, last) in the split. */
static enum status read_from_shard(const struct reading *reading, int split, const struct plan_shard *entry,
                                   int64_t first, int64_t last, struct shard_tally *tally) {
  char *path = shard_list_path(reading->directory, entry->name);
  if (!path) return RAISE(STATUS_INPUT, "no memory to open %s", entry->name);
  size_t at = reading->place.images[split] + (size_t)first * reading->row_bytes;
  bool keep = kept(reading->plan, split), direct = world_shared_direct(reading->shared);
  char *labels = reading->memory + reading->place.labels[split] + (size_t)first * sizeof(int32_t);
  struct row_range range = {.path = path,
                            .info = &entry->info,
                            .first = first - entry->first,
                            .last = last - entry->first,
                            .global_first = first,
                            .limit = reading->limit,
                            .images = keep && direct ? (uint8_t *)reading->memory + at : NULL,
                            .labels = (int32_t *)(void *)labels,
                            .shared = keep && !direct ? reading->shared : NULL,
                            .at = at};
  enum status status = row_read(&range, reading->threads, tally);
  free(path);
  return status;
}

/* Reads this rank's part of a split and adds it to the totals; not collective. */
static enum status read_part(const struct reading *reading, int split, struct totals *totals,
                             int64_t *label_max) {
  const struct dataset_plan *plan = reading->plan;
  int begin = split == SPLIT_TRAIN ? 0 : plan->shard_count[SPLIT_TRAIN];
  int64_t part_first, part_count;
  dataset_plan_part(plan, split, reading->world->rank, reading->world->size, &part_first, &part_count);
  for (int i = begin; i < begin + plan->shard_count[split]; i++) {
    const struct plan_shard *entry = &plan->shard[i];
    int64_t first = entry->first, last = entry->first + entry->info.count;
    if (first < part_first) first = part_first;
    if (last > part_first + part_count) last = part_first + part_count;
    if (first >= last) continue;
    struct shard_tally tally;
    shard_tally_clear(&tally);
    TRY(read_from_shard(reading, split, entry, first, last, &tally));
    add_wrapping(&totals->shard_digest[i], tally.shard_digest);
    add_wrapping(&totals->digest[split], tally.global_digest);
    if (tally.label_max > *label_max) *label_max = tally.label_max;
    for (int c = 0; c < 4 && split == SPLIT_TRAIN; c++) {
      totals->sum[c] += tally.sum[c];
      totals->square[c] += tally.square[c];
    }
  }
  return STATUS_OK;
}

/* Collective: each host's copy of an array gets the rows that the other hosts' ranks read. */
static enum status exchange(const struct reading *reading, struct world_shared *shared, int split,
                            size_t offset, size_t row_bytes) {
  int size = reading->world->size;
  size_t *first = malloc(2 * (size_t)size * sizeof *first), *bytes = first ? first + size : NULL;
  enum status status = first ? STATUS_OK : RAISE(STATUS_INPUT, "no memory for %d ranks", size);
  TRY_OUT(world_agree(reading->world, status));
  for (int rank = 0; rank < size; rank++) {
    int64_t part_first, part_count;
    dataset_plan_part(reading->plan, split, rank, size, &part_first, &part_count);
    first[rank] = offset + (size_t)part_first * row_bytes;
    bytes[rank] = (size_t)part_count * row_bytes;
  }
  TRY_OUT(world_shared_exchange(reading->world, shared, first, bytes));
out:
  free(first);
  return status;
}

/* Collective: reads all rows and checks them against labels' range and the shards' digests. */
static enum status read_rows(struct reading *reading, struct dataset *dataset, struct totals *totals) {
  const struct dataset_plan *plan = reading->plan;
  const struct world *world = reading->world;
  int shards = plan->shard_count[SPLIT_TRAIN] + plan->shard_count[SPLIT_TEST];
  int64_t label_max = -1;
  enum status status = read_part(reading, SPLIT_TRAIN, totals, &label_max);
  if (status == STATUS_OK) status = read_part(reading, SPLIT_TEST, totals, &label_max);
  TRY(world_agree(world, status));
  TRY(world_sum_i64(world, (int64_t *)totals, (int)(sizeof *totals / sizeof(int64_t)) + shards));
  TRY(world_max_i64(world, &label_max, 1));
  for (int i = 0; i < shards && status == STATUS_OK; i++) {
    char *path = shard_list_path(reading->directory, plan->shard[i].name);
    status = path ? shard_tally_digest(path, &plan->shard[i].info, (uint64_t)totals->shard_digest[i])
                  : RAISE(STATUS_INPUT, "no memory for a path");
    free(path);
  }
  TRY(world_agree(world, status));
  for (int split = 0; split < SPLIT_COUNT; split++) {
    if (kept(plan, split))
      TRY(exchange(reading, dataset->memory, split, reading->place.images[split], reading->row_bytes));
    TRY(exchange(reading, dataset->memory, split, reading->place.labels[split], sizeof(int32_t)));
  }
  dataset->classes = plan->classes ? plan->classes : label_max >= 10 ? (int)label_max + 1 : 10;
  return STATUS_OK;
}

/* The digest of both splits: XXH3 terms of (rows' digest, count), which no sharding or layout changes. */
static uint64_t join_digest(const struct dataset_plan *plan, const struct totals *totals) {
  uint64_t shape = (uint64_t)plan->height << 40 | (uint64_t)plan->width << 16 | (uint64_t)plan->channels;
  uint64_t digest = shard_digest_term(shape, 0);
  for (int split = 0; split < SPLIT_COUNT; split++)
    digest = shard_digest_term(
        digest ^ shard_digest_term((uint64_t)totals->digest[split], plan->count[split]), split + 1);
  return digest;
}

static enum status set_classes(struct dataset *dataset, struct dataset_plan *plan) {
  dataset->classes_given = plan->classes > 0;
  if (plan->named) {
    dataset->class_name = plan->class_name;
    plan->class_name = NULL;
    return STATUS_OK;
  }
  dataset->class_name = calloc((size_t)dataset->classes, sizeof *dataset->class_name);
  if (!dataset->class_name) return RAISE(STATUS_INPUT, "no memory for %d class names", dataset->classes);
  for (int i = 0; i < dataset->classes; i++) snprintf(dataset->class_name[i], DATASET_CLASS_NAME, "%d", i);
  return STATUS_OK;
}

/* Whether a shard's mean and std are those that were measured. */
static bool moments_fit(const struct dataset *dataset, const struct shard_info *info) {
  for (int c = 0; c < dataset->channels; c++)
    if (!(fabs(info->mean[c] - dataset->mean[c]) <= 1e-6 && fabs(info->std[c] - dataset->std[c]) <= 1e-6))
      return false;
  return true;
}

static void set_note(struct dataset *dataset, const struct dataset_plan *plan) {
  int plain = 0, shards = plan->shard_count[SPLIT_TRAIN] + plan->shard_count[SPLIT_TEST], used = 0, other = 0;
  for (int i = 0; i < shards; i++) {
    const struct shard_info *info = &plan->shard[i].info;
    plain += !info->has_digest;
    if (info->compressed && info->chunk_rows > dataset->packed_rows) dataset->packed_rows = info->chunk_rows;
    if (!info->has_moments || dataset->train.count == 0) continue;
    dataset->moments_stored++;
    other += !moments_fit(dataset, info);
  }
  char *note = dataset->note;
  size_t capacity = sizeof dataset->note;
  if (plan->planar_shards)
    used = snprintf(note, capacity, "%d of %d shards (N,C,H,W), transposed", plan->planar_shards, shards);
  if (plain)
    used += snprintf(note + used, capacity - (size_t)used, "%s%d of %d shards without a digest",
                     used ? "; " : "", plain, shards);
  if (other)
    used += snprintf(note + used, capacity - (size_t)used,
                     "%s%d of %d shards store another mean or std than is measured", used ? "; " : "", other,
                     shards);
  if (!plan->classes)
    snprintf(note + used, capacity - (size_t)used, "%sno classes given, taken as %d", used ? "; " : "",
             dataset->classes);
}

static void set_split(struct split *split, const struct reading *reading, int which) {
  split->count = reading->plan->count[which];
  split->shard_count = reading->plan->shard_count[which];
  if (kept(reading->plan, which))
    split->images = (const uint8_t *)(reading->memory + reading->place.images[which]);
  split->labels = (const int32_t *)(const void *)(reading->memory + reading->place.labels[which]);
}

/* Collective: everything after the plan is known on all ranks. */
static enum status fill(struct reading *reading, struct dataset_plan *plan, struct dataset *dataset) {
  size_t shards = (size_t)plan->shard_count[SPLIT_TRAIN] + (size_t)plan->shard_count[SPLIT_TEST];
  struct totals *totals = calloc(1, sizeof *totals + shards * sizeof(int64_t));
  enum status status = totals ? STATUS_OK : RAISE(STATUS_INPUT, "no memory for %zu shards", shards);
  TRY_OUT(world_agree(reading->world, status));
  TRY_OUT(world_agree(reading->world, cores_share(reading->world, &reading->threads)));
  dataset->height = plan->height;
  dataset->width = plan->width;
  dataset->channels = plan->channels;
  reading->row_bytes = (size_t)plan->height * (size_t)plan->width * (size_t)plan->channels;
  reading->limit = plan->classes ? plan->classes : DATASET_MAX_CLASSES;
  reading->place = place(plan, reading->row_bytes);
  void *memory;
  TRY_OUT(world_agree(reading->world,
                      world_shared_create(reading->world, reading->place.bytes, &dataset->memory, &memory)));
  reading->memory = memory;
  reading->shared = dataset->memory;
  set_split(&dataset->train, reading, SPLIT_TRAIN);
  set_split(&dataset->test, reading, SPLIT_TEST);
  TRY_OUT(read_rows(reading, dataset, totals));
  shard_tally_moments(totals->sum, totals->square, dataset->channels,
                      (double)dataset->train.count * dataset->height * dataset->width, dataset->mean,
                      dataset->std);
  dataset->digest = join_digest(plan, totals);
  set_note(dataset, plan);
  TRY_OUT(world_agree(reading->world, set_classes(dataset, plan)));
out:
  free(totals);
  return status;
}

/* Hands the plan over to a data set that is streamed. */
static enum status keep_plan(const char *directory, struct dataset_plan *plan, struct dataset *dataset) {
  dataset->streamed = plan->streamed;
  if (!plan->streamed) return STATUS_OK;
  dataset->directory = strdup(directory);
  dataset->plan = malloc(sizeof *plan);
  if (!dataset->directory || !dataset->plan) return RAISE(STATUS_INPUT, "no memory for the data set");
  *dataset->plan = *plan;
  *plan = (struct dataset_plan){.height = 0};
  return STATUS_OK;
}

enum status dataset_open_limited(const struct world *world, const char *directory, unsigned need,
                                 int64_t limit, struct dataset **opened) {
  struct dataset_plan plan = {.height = 0};
  struct reading reading = {.world = world, .directory = directory, .plan = &plan};
  struct dataset *dataset = calloc(1, sizeof *dataset);
  enum status status = dataset ? STATUS_OK : RAISE(STATUS_INPUT, "no memory for the data set");
  if (status == STATUS_OK && world->rank == 0) status = dataset_plan_read(directory, need, &plan);
  plan.checked = (need & DATASET_CHECKED) != 0;
  if (status == STATUS_OK && world->rank == 0 && !plan.checked)
    status = dataset_plan_limit(&plan, directory, limit);
  TRY_OUT(world_agree(world, status));
  TRY_OUT(dataset_plan_send(world, &plan));
  TRY_OUT(fill(&reading, &plan, dataset));
  TRY_OUT(world_agree(world, keep_plan(directory, &plan, dataset)));
  *opened = dataset;
  dataset = NULL;
out:
  dataset_plan_free(&plan);
  dataset_close(dataset);
  return status;
}

enum status dataset_open(const struct world *world, const char *directory, unsigned need,
                         struct dataset **dataset) {
  return dataset_open_limited(world, directory, need, INT64_MAX, dataset);
}

void dataset_close(struct dataset *dataset) {
  if (!dataset) return;
  if (dataset->memory) world_shared_destroy(dataset->memory);
  if (dataset->plan) dataset_plan_free(dataset->plan);
  free(dataset->plan);
  free(dataset->directory);
  free(dataset->class_name);
  free(dataset);
}
