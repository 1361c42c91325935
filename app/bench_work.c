/* A step to time; see bench_work.h. */
#include "app/bench_work.h"

#include <stdio.h>
#include <stdlib.h>

#include "app/plan_cache.h"
#include "app/train_options.h"
#include "data/sampler.h"
#include "model/base/clock.h"
#include "model/base/random.h"
#include "model/base/sort.h"
#include "model/zoo/zoo.h"

enum { DATA_STEPS = 4 }; /* of different images */

static enum status make_data(struct bench_work *work, const struct bench_options *o) {
  const struct backend_table *table = work->backend->table;
  size_t count = (size_t)(DATA_STEPS * work->part), bytes = count * (size_t)(o->size * o->size) * 3;
  struct random_key key = random_key(1, RANDOM_SYNTH, (uint32_t)work->world->rank);
  work->images = malloc(bytes);
  work->labels = calloc(count, sizeof *work->labels);
  work->list = calloc(count, sizeof *work->list);
  work->rows = calloc((size_t)work->steps, sizeof *work->rows);
  if (!work->images || !work->labels || !work->list || !work->rows)
    return RAISE(STATUS_INPUT, "out of memory");
  for (size_t i = 0; i < bytes; i++) work->images[i] = (uint8_t)random_below(key, i, 256);
  for (size_t i = 0; i < count; i++) {
    work->labels[i] = (int32_t)random_below(key, bytes + i, (uint32_t)o->classes);
    work->list[i] =
        (struct sample){.index = (uint32_t)i, .shift_y = (int8_t)(i % 9 - 4), .flip = (uint8_t)(i % 2)};
  }
  for (int64_t s = 0; s < work->steps; s++)
    work->rows[s] = (struct step_row){.first = (uint32_t)(s % DATA_STEPS * work->part),
                                      .learning_rate = 1e-4f,
                                      .scale = 1.0f / (float)work->batch,
                                      .correction1 = 0.1f,
                                      .correction2 = 0.001f};
  const void *images, *labels;
  TRY(table->resident(work->backend, work->images, bytes, &images));
  work->data.images = images;
  TRY(table->resident(work->backend, work->labels, count * sizeof *work->labels, &labels));
  work->data.labels = labels;
  for (int c = 0; c < 4; c++) work->data.mean[c] = 0.5f, work->data.std[c] = 0.25f;
  return STATUS_OK;
}

static enum status build(struct bench_work *work, const struct bench_options *o,
                         const struct backend_table **table) {
  int64_t first;
  if (work->batch < work->world->size)
    return RAISE(STATUS_INPUT,
                 "%lld images for %d ranks: a larger --batch is needed, at least one image a rank",
                 (long long)work->batch, work->world->size);
  sampler_part(work->batch, work->world->rank, work->world->size, &first, &work->part);
  TRY(zoo_build(o->model, (int)o->size, (int)o->size, 3, (int)o->classes, &work->graph));
  TRY(graph_fuse(work->graph));
  return backend_find(backend_choices[o->backend], table);
}

/* On one number of ranks as on another: algorithms that were chosen once are kept. */
static enum status make_net(struct bench_work *work, const struct bench_options *o) {
  struct net_options net = {.optimizer = (enum optimizer_kind)o->optimizer,
                            .momentum = 0.9f,
                            .beta1 = 0.9f,
                            .beta2 = 0.999f,
                            .epsilon = 1e-8f,
                            .weight_decay = 5e-4f,
                            .train_batch = {work->part},
                            .plan_samples = DATA_STEPS * work->part,
                            .plan_steps = work->steps};
  char key[BACKEND_KIND];
  struct plan_cache cache;
  snprintf(key, sizeof key, "bench, %.32s, %lldx%lldx3, %lld classes, batch %lld", o->model,
           (long long)o->size, (long long)o->size, (long long)o->classes, (long long)work->part);
  TRY(plan_cache_begin(&cache, o->plan_cache, key, work->backend));
  enum status status = net_create(work->backend, work->graph, &net, &work->net);
  status = plan_cache_end(&cache, work->backend, status);
  return status == STATUS_OK ? status : error_trace(status, __func__);
}

static enum status fill_net(struct bench_work *work, const struct bench_options *o) {
  TRY(make_data(work, o));
  return net_init(work->net, 1);
}

enum status bench_work_open(const struct world *world, const struct bench_options *o, int64_t batch,
                            int threads, struct bench_work *work) {
  const struct backend_table *table;
  struct backend_options device = {.precision = (enum precision)o->precision,
                                   .deterministic = o->deterministic,
                                   .threads = threads,
                                   .init_timeout_seconds = (int)o->init_timeout};
  *work = (struct bench_work){.world = world, .batch = batch, .steps = o->steps + BENCH_WARM_STEPS};
  enum status status = world_agree(world, build(work, o, &table));
  if (status == STATUS_OK) status = world_agree(world, table->open(world, &device, &work->backend));
  if (status == STATUS_OK) status = world_agree(world, make_net(work, o));
  if (status == STATUS_OK) status = world_agree(world, fill_net(work, o));
  if (status != STATUS_OK) bench_work_close(work, status);
  return status;
}

void bench_work_close(struct bench_work *work, enum status status) {
  if (!work->world || !world_agreed(work->world, status)) return;
  if (work->backend) {
    const struct backend_table *table = work->backend->table;
    if (work->data.images) table->release_resident(work->backend, work->data.images);
    if (work->data.labels) table->release_resident(work->backend, work->data.labels);
    net_destroy(work->net);
    table->close(work->backend);
  }
  if (work->graph) graph_destroy(work->graph);
  free(work->images);
  free(work->labels);
  free(work->list);
  free(work->rows);
  *work = (struct bench_work){0};
}

enum status bench_work_plan(struct bench_work *work, int64_t steps) {
  return world_agree(work->world,
                     net_plan(work->net, work->list, DATA_STEPS * work->part, work->rows, steps));
}

/* Seconds of a window on the slowest rank. */
static enum status time_window(struct bench_work *work, int64_t steps, double *seconds) {
  uint64_t ticket = 0;
  struct net_metrics metrics;
  TRY(bench_work_plan(work, steps));
  TRY(world_barrier(work->world));
  double begin = clock_seconds();
  for (int64_t s = 0; s < steps; s++) TRY(net_train_step(work->net, &work->data, work->part, &ticket));
  TRY(net_metrics(work->net, ticket, &metrics));
  int64_t nanoseconds = (int64_t)((clock_seconds() - begin) * 1e9);
  TRY(world_max_i64(work->world, &nanoseconds, 1));
  *seconds = (double)nanoseconds * 1e-9 / (double)steps;
  return STATUS_OK;
}

enum status bench_work_time(struct bench_work *work, int64_t steps, int windows, double *seconds) {
  double warm;
  world_set_step(work->world, 1); /* from here on a job that stands still is stuck */
  TRY(time_window(work, steps, &warm));
  for (int w = 0; w < windows; w++) TRY(time_window(work, steps, &seconds[w]));
  sort_doubles(seconds, (size_t)windows);
  return STATUS_OK;
}
