/* Opens and closes what a command computes with; see session.h. */
#include "app/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "app/plan_cache.h"
#include "data/sampler.h"
#include "model/net/adapt.h"
#include "model/zoo/zoo.h"

enum status session_open(const struct world *world, const char *data, unsigned need,
                         struct session *session) {
  return session_open_limited(world, data, need, INT64_MAX, session);
}

enum status session_open_limited(const struct world *world, const char *data, unsigned need, int64_t limit,
                                 struct session *session) {
  *session = (struct session){.world = world};
  return world_agree(world, dataset_open_limited(world, data, need, limit, &session->dataset));
}

void session_add_batch(int64_t batches[NET_MAX_BATCHES], int64_t batch) {
  for (int i = 0; batch > 0 && i < NET_MAX_BATCHES; i++) {
    if (batches[i] == batch) return;
    if (batches[i] != 0) continue;
    batches[i] = batch;
    return;
  }
}

static enum status build(struct session *session, const struct session_plan *plan) {
  const struct dataset *d = session->dataset;
  TRY(zoo_build(plan->model, d->height, d->width, d->channels, d->classes, &session->graph));
  if (plan->lora > 0) TRY(graph_adapt(session->graph, plan->lora, plan->lora_alpha));
  if (plan->freeze && plan->freeze[0]) TRY(graph_freeze(session->graph, plan->freeze));
  return plan->fuse ? graph_fuse(session->graph) : STATUS_OK;
}

enum status session_build(struct session *session, const struct session_plan *plan) {
  return world_agree(session->world, build(session, plan));
}

void session_test_part(const struct session *session, int64_t *first, int64_t *count) {
  int64_t total = session->dataset->test.count, batch = session->eval_batch;
  int64_t batches = (total + batch - 1) / batch, last;
  sampler_part(batches, session->world->rank, session->world->size, first, count);
  last = (*first + *count) * batch;
  *first *= batch;
  *count = (last < total ? last : total) - (*first < total ? *first : total);
}

/* What an evaluation of this rank's part of the test images needs. */
static void add_evaluation(const struct session *session, struct net_options *options) {
  int64_t first, part, batch = session->eval_batch;
  session_test_part(session, &first, &part);
  session_add_batch(options->eval_batch, part < batch ? part : batch);
  session_add_batch(options->eval_batch, part % batch);
  int64_t steps = (part + batch - 1) / batch;
  if (options->plan_samples < part) options->plan_samples = part;
  if (options->plan_steps < steps) options->plan_steps = steps;
}

static enum status make_resident(struct session *session, const struct split *split, struct net_data *data) {
  const struct dataset *d = session->dataset;
  struct backend *backend = session->backend;
  if (split->count == 0) return STATUS_OK;
  size_t bytes = (size_t)split->count * (size_t)(d->height * d->width * d->channels);
  const void *memory;
  TRY(backend->table->resident(backend, split->images, bytes, &memory));
  data->images = memory;
  TRY(backend->table->resident(backend, split->labels, (size_t)split->count * sizeof *split->labels,
                               &memory));
  data->labels = memory;
  return STATUS_OK;
}

/* The ring that the steps read from, in memory that host and device see, and the thread that fills it. */
static enum status start_stream(struct session *session, const struct session_plan *plan) {
  const struct dataset *d = session->dataset;
  struct backend *backend = session->backend;
  struct stream_ring *ring = &session->ring;
  stream_ring_plan(ring, plan->window_rows, session->world->size, plan->held_rows);
  void *memory;
  size_t row_bytes = (size_t)d->height * (size_t)d->width * (size_t)d->channels;
  TRY(backend->table->alloc_host(backend, (size_t)ring->slots * row_bytes, &memory));
  session->train.images = ring->images = memory;
  TRY(backend->table->alloc_host(backend, (size_t)ring->slots * sizeof *ring->labels, &memory));
  session->train.labels = ring->labels = memory;
  return stream_create(d, ring, &session->stream);
}

static void took(const struct session_plan *plan, const char *part) {
  if (plan->start) start_part(plan->start, part);
}

/* What the ops of this net depend on, beside the device. */
static void shape_key(const struct session *session, const struct session_plan *plan,
                      const struct net_options *options, char *text, size_t capacity) {
  const struct dataset *d = session->dataset;
  size_t used = (size_t)snprintf(text, capacity, "%.32s%s, %dx%dx%d, %d classes", plan->model,
                                 plan->fuse ? "" : " in parts", d->height, d->width, d->channels, d->classes);
  if (plan->lora > 0 && used < capacity)
    used += (size_t)snprintf(text + used, capacity - used, ", adapters %d", plan->lora);
  if (plan->freeze && plan->freeze[0] && used < capacity)
    used += (size_t)snprintf(text + used, capacity - used, ", frozen in part");
  for (int i = 0; i < 2 * NET_MAX_BATCHES && used < capacity; i++)
    used += (size_t)snprintf(text + used, capacity - used, "%s %" PRId64, i == 0 ? ", batches" : "",
                             i < NET_MAX_BATCHES ? options->train_batch[i]
                                                 : options->eval_batch[i - NET_MAX_BATCHES]);
}

/* The net; its ops' algorithms are the same on all ranks where their shapes are. */
static enum status make_net(struct session *session, const struct session_plan *plan) {
  struct net_options options = plan->net;
  struct plan_cache cache;
  char key[BACKEND_KIND];
  add_evaluation(session, &options);
  shape_key(session, plan, &options, key, sizeof key);
  TRY(plan_cache_begin(&cache, plan->plan_cache, key, session->backend));
  enum status status = net_create(session->backend, session->graph, &options, &session->net);
  status = plan_cache_end(&cache, session->backend, status);
  took(plan, cache.known ? "plans (kept)" : "plans");
  return status == STATUS_OK ? status : error_trace(status, __func__);
}

/* Data and its normalisation. */
static enum status fill(struct session *session, const struct session_plan *plan) {
  for (int c = 0; c < 4; c++) {
    session->train.mean[c] = session->test.mean[c] = plan->mean[c];
    session->train.std[c] = session->test.std[c] = plan->std[c];
  }
  if (plan->net.train_batch[0] > 0) {
    if (session->dataset->streamed)
      TRY(start_stream(session, plan));
    else
      TRY(make_resident(session, &session->dataset->train, &session->train));
  }
  return make_resident(session, &session->dataset->test, &session->test);
}

enum status session_start(struct session *session, const struct session_plan *plan) {
  const struct world *world = session->world;
  session->eval_batch = plan->eval_batch;
  if (!session->graph) TRY(session_build(session, plan));
  const struct backend_table *table;
  TRY(world_agree(world, backend_find(plan->backend, &table)));
  TRY(world_agree(world, table->open(world, &plan->device, &session->backend)));
  if (plan->start) start_part_within(plan->start, "communicator", session->backend->comm_seconds);
  took(plan, "device");
  TRY(world_agree(world, make_net(session, plan)));
  TRY(world_agree(world, fill(session, plan)));
  took(plan, "upload");
  return STATUS_OK;
}

static void release(struct session *session, struct net_data *data) {
  struct backend *backend = session->backend;
  if (data->images) backend->table->release_resident(backend, data->images);
  if (data->labels) backend->table->release_resident(backend, data->labels);
  data->images = NULL;
  data->labels = NULL;
}

static void release_ring(struct session *session) {
  struct backend *backend = session->backend;
  if (session->ring.images) backend->table->release_host(backend, session->ring.images);
  if (session->ring.labels) backend->table->release_host(backend, session->ring.labels);
}

/* Frees the net and what the device holds of the data. */
static void release_device(struct session *session) {
  net_destroy(session->net);
  session->net = NULL;
  if (session->dataset && !session->dataset->streamed) release(session, &session->train);
  release(session, &session->test);
}

void session_leave(struct session *session) {
  release_device(session);
  session->backend->table->leave(session->backend);
}

void session_close(struct session *session, enum status status) {
  if (!session->world || !world_agreed(session->world, status)) return;
  release_device(session);
  stream_destroy(session->stream);
  if (session->dataset && session->dataset->streamed) release_ring(session);
  if (session->backend) session->backend->table->close(session->backend);
  if (session->graph) graph_destroy(session->graph);
  dataset_close(session->dataset);
  *session = (struct session){0};
}
