/* Parts of the world that measure; see scaling_run.h. */
#include "app/scaling_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "app/bench_work.h"
#include "app/train_options.h"
#include "model/base/clock.h"
#include "model/base/cores.h"
#include "model/base/sort.h"

/* ---- who takes part ---- */

struct seat {
  int node, local_rank;
};

static bool before(const struct seat *a, const struct seat *b, int place) {
  int first = place == SCALING_PACKED ? a->node - b->node : a->local_rank - b->local_rank;
  int second = place == SCALING_PACKED ? a->local_rank - b->local_rank : a->node - b->node;
  return first < 0 || (first == 0 && second < 0);
}

enum status scaling_ranks_open(const struct world *world, const struct bench_options *options,
                               struct scaling_ranks *ranks) {
  struct seat mine = {.node = world->node, .local_rank = world->local_rank};
  struct seat *all = calloc((size_t)world->size, sizeof *all);
  enum status status = world_agree(world, all ? STATUS_OK : RAISE(STATUS_INPUT, "out of memory"));
  *ranks = (struct scaling_ranks){.world = world, .threads = (int)options->threads};
  if (status == STATUS_OK) status = world_allgather(world, &mine, sizeof mine, all);
  for (int r = 0; status == STATUS_OK && r < world->size; r++)
    ranks->order += before(&all[r], &mine, options->place);
  free(all);
  if (status == STATUS_OK && ranks->threads == 0) status = cores_share(world, &ranks->threads);
  return status;
}

enum status scaling_counts(const char *text, int size, int count[SCALING_COUNTS], int *counts) {
  *counts = 0;
  if (text[0] == '\0') {
    for (int n = 1; n < size; n *= 2) count[(*counts)++] = n;
    count[(*counts)++] = size;
    return STATUS_OK;
  }
  for (const char *at = text;; at++) {
    char *end = NULL;
    long number = at[0] >= '0' && at[0] <= '9' ? strtol(at, &end, 10) : 0;
    if (number < 1 || (*end != ',' && *end != '\0') || *counts == SCALING_COUNTS ||
        (*counts > 0 && number <= count[*counts - 1]))
      return RAISE(STATUS_INPUT,
                   "--ranks is '%s'; expected up to %d whole numbers above 0, ascending, as 1,2,4", text,
                   SCALING_COUNTS);
    if (number > size)
      return RAISE(STATUS_INPUT, "--ranks is '%s', but the job has %d rank%s: start more, or ask for fewer",
                   text, size, size == 1 ? "" : "s");
    count[(*counts)++] = (int)number;
    at = end;
    if (*at == '\0') return STATUS_OK;
  }
}

/* ---- a measurement of steps ---- */

static enum status take_buckets(const struct bench_work *work, const struct net_timeline *timeline,
                                double scale, struct scaling_buckets *buckets) {
  int count = net_bucket_count(work->net);
  *buckets = (struct scaling_buckets){.count = count,
                                      .ready = calloc((size_t)count + 1, sizeof *buckets->ready),
                                      .bytes = calloc((size_t)count + 1, sizeof *buckets->bytes)};
  if (!buckets->ready || !buckets->bytes) {
    free(buckets->ready);
    free(buckets->bytes);
    *buckets = (struct scaling_buckets){0};
    return RAISE(STATUS_INPUT, "out of memory");
  }
  net_bucket_ready(timeline, buckets->ready);
  for (int i = 0; i < count; i++) {
    buckets->ready[i] *= scale;
    buckets->bytes[i] = net_bucket_bytes(work->net, i);
  }
  return STATUS_OK;
}

static enum status time_work(struct bench_work *work, const struct bench_options *o, double *window,
                             struct scaling_result *result, struct scaling_buckets *buckets) {
  int windows = (int)o->windows;
  struct net_timeline timeline;
  double sum = 0;
  TRY(bench_work_time(work, o->steps, windows, window));
  *result = (struct scaling_result){.ranks = work->world->size,
                                    .hosts = work->world->nodes,
                                    .windows = windows,
                                    .batch = work->batch,
                                    .step = window[windows / 2],
                                    .least = window[0],
                                    .lower = window[windows / 4],
                                    .upper = window[windows - 1 - windows / 4],
                                    .most = window[windows - 1],
                                    .images_per_s = (double)work->batch / window[windows / 2]};
  snprintf(result->device, sizeof result->device, "%s", work->backend->description);
  TRY(bench_work_plan(work, o->steps + BENCH_WARM_STEPS));
  TRY(net_time_parts(work->net, &work->data, (int)o->steps, &timeline));
  for (int p = 0; p < NET_PARTS; p++) {
    result->part[p] = net_part_seconds(&timeline, (enum net_part)p) / work->world->size;
    sum += net_part_seconds(&timeline, (enum net_part)p);
  }
  TRY(world_sum_f64(work->world, result->part, NET_PARTS));
  return buckets && work->world->rank == 0 ? take_buckets(work, &timeline, result->step / sum, buckets)
                                           : STATUS_OK;
}

static enum status measure(const struct world *part, int threads, const struct bench_options *o,
                           int64_t batch, struct scaling_result *result, struct scaling_buckets *buckets) {
  struct bench_work work;
  double *window = calloc((size_t)o->windows, sizeof *window);
  enum status status = world_agree(part, window ? STATUS_OK : RAISE(STATUS_INPUT, "out of memory"));
  if (status == STATUS_OK) {
    status = bench_work_open(part, o, batch, threads, &work);
    if (status == STATUS_OK) {
      status = time_work(&work, o, window, result, buckets);
      if (status == STATUS_OK) status = world_agree(part, STATUS_OK);
      bench_work_close(&work, status);
    }
  }
  free(window);
  return status;
}

/* All ranks are together again, if those of the part are together themselves. */
static enum status leave_part(const struct world *world, struct world *part, bool member,
                              enum status status) {
  if (member && !world_agreed(part, status)) return status;
  world_part_close(part);
  TRY(world_rest(world));
  return world_agree(world, status);
}

enum status scaling_measure(const struct scaling_ranks *ranks, const struct bench_options *o, int count,
                            int64_t batch, struct scaling_result *result, struct scaling_buckets *buckets) {
  bool member = ranks->order < count;
  struct world part;
  TRY(world_part_open(ranks->world, member ? 0 : -1, &part));
  enum status status = member ? measure(&part, ranks->threads, o, batch, result, buckets) : STATUS_OK;
  return leave_part(ranks->world, &part, member, status);
}

/* ---- a measurement of all-reduces ---- */

struct sums {
  struct backend *backend;
  float *data;
  int64_t count; /* of elements */
  int repeats;
};

static enum status body(void *argument) {
  const struct sums *sums = argument;
  const struct backend_table *table = sums->backend->table;
  TRY(table->stamp(sums->backend, 0));
  for (int i = 0; i < sums->repeats; i++) /* one after the other, as a step's buckets */
    TRY(table->allreduce(sums->backend, sums->data, sums->count));
  TRY(table->comm_join(sums->backend));
  return table->stamp(sums->backend, 1);
}

/* Seconds of one sum, the median of the windows, in each of them on the slowest rank. */
static enum status time_sums(struct sums *sums, int windows, double *window, double *seconds) {
  struct backend *backend = sums->backend;
  struct program *program = NULL;
  enum status status = STATUS_OK;
  for (int w = -1; w < windows; w++) {
    uint64_t ticket;
    double passed;
    TRY_OUT(backend->table->sync(backend));
    TRY_OUT(world_barrier(backend->world));
    TRY_OUT(backend->table->run(backend, &program, body, sums, &ticket));
    TRY_OUT(backend->table->wait(backend, ticket));
    TRY_OUT(backend->table->stamp_seconds(backend, 1, &passed));
    int64_t nanoseconds = (int64_t)(passed * 1e9);
    TRY_OUT(world_max_i64(backend->world, &nanoseconds, 1));
    if (w >= 0) window[w] = (double)nanoseconds * 1e-9 / sums->repeats;
  }
  sort_doubles(window, (size_t)windows);
  *seconds = window[windows / 2];
out:
  backend->table->program_destroy(backend, program);
  return status;
}

enum { SMALLEST = 4 << 10, LARGEST_CPU = 16 << 20, LARGEST_CUDA = 256 << 20, MOST_REPEATS = 200 };
static const double window_seconds = 5e-3;

static size_t largest(const struct backend *backend) {
  return backend->table->device ? LARGEST_CUDA : LARGEST_CPU;
}

/* The repeats that fill a window, the same on all ranks, come from a first try. */
static enum status sweep(struct backend *backend, float *data, int windows, double *window,
                         struct scaling_point *point, int *points) {
  struct sums sums = {.backend = backend, .data = data};
  *points = 0;
  for (size_t bytes = SMALLEST; bytes <= largest(backend); bytes *= 2) {
    double seconds;
    sums.count = (int64_t)(bytes / sizeof *data);
    sums.repeats = 1;
    TRY(body(&sums)); /* not recorded: a library may connect the ranks anew for a size */
    TRY(time_sums(&sums, BENCH_WINDOWS_LEAST, window, &seconds));
    double fill = window_seconds / (seconds > 1e-9 ? seconds : 1e-9);
    sums.repeats = fill < 1 ? 1 : fill > MOST_REPEATS ? MOST_REPEATS : (int)fill;
    TRY(time_sums(&sums, windows, window, &seconds));
    point[(*points)++] = (struct scaling_point){.bytes = (double)bytes, .seconds = seconds};
  }
  return STATUS_OK;
}

static enum status open_and_sweep(const struct world *part, int threads, const struct bench_options *o,
                                  struct scaling_point *point, int *points) {
  const struct backend_table *table;
  struct backend_options device = {.threads = threads, .init_timeout_seconds = (int)o->init_timeout};
  struct backend *backend = NULL;
  void *data = NULL;
  double *window = calloc((size_t)o->windows, sizeof *window);
  enum status status =
      window ? backend_find(backend_choices[o->backend], &table) : RAISE(STATUS_INPUT, "out of memory");
  status = world_agree(part, status);
  if (status == STATUS_OK) status = world_agree(part, table->open(part, &device, &backend));
  if (status == STATUS_OK) status = world_agree(part, table->alloc(backend, largest(backend), &data));
  if (status == STATUS_OK) status = sweep(backend, data, (int)o->windows, window, point, points);
  if (status == STATUS_OK) status = world_agree(part, STATUS_OK);
  if (backend && world_agreed(part, status)) {
    table->release(backend, data);
    table->close(backend);
  }
  free(window);
  return status;
}

enum status scaling_allreduces(const struct scaling_ranks *ranks, const struct bench_options *o, int group,
                               struct scaling_point point[SCALING_SIZES], int *points, int *size) {
  struct world part;
  TRY(world_part_open(ranks->world, group, &part));
  *size = part.size;
  *points = 0;
  enum status status = STATUS_OK;
  world_set_step(ranks->world, 1);
  if (part.size > 1) status = open_and_sweep(&part, ranks->threads, o, point, points);
  return leave_part(ranks->world, &part, group >= 0, status);
}
