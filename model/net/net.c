/* Memory and plans of steps; see net.h. */
#include "model/net/net_state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A step's METRIC_STOP is the sum over the ranks: stop wishes of up to 65535 ranks, and one for a save, stay
 * apart in it and are exact in a float. */
enum { WISH_STOP = 1, WISH_SAVE = 1 << 16 };
enum { BUCKET_BYTES = 8 << 20 }; /* default: two thirds of a ResNet stage's largest filter */

/* ---- creation ---- */

/* Cuts GRADIENTS into buckets, for one rank too, which sums nothing; the last holds everything that is
 * complete only after the whole backward pass. */
static enum status buckets_create(struct net *net) {
  size_t least = net->options.bucket_bytes ? net->options.bucket_bytes : BUCKET_BYTES;
  const struct layout *layout = &net->layout;
  int64_t begin = 0;
  if (net->options.lanes > 0) return STATUS_OK;
  net->bucket = calloc((size_t)net->graph->node_count + 1, sizeof *net->bucket);
  if (!net->bucket) return RAISE(STATUS_INPUT, "out of memory");
  for (int i = net->graph->node_count - 1; i > 0; i--) {
    int64_t count = layout->decay_end[i] - begin;
    if ((size_t)count * sizeof(float) < least) continue;
    net->bucket[net->bucket_count++] = (struct bucket){.first = begin, .count = count, .node = i};
    begin = layout->decay_end[i];
  }
  net->bucket[net->bucket_count++] =
      (struct bucket){.first = begin, .count = layout->total_count + METRIC_COUNT - begin, .node = 0};
  return STATUS_OK;
}

static enum status executors_create(struct net *net) {
  for (int i = 0; i < NET_MAX_BATCHES; i++) {
    if (net->options.train_batch[i] > 0)
      TRY(executor_create(net, net->options.train_batch[i], true, &net->train[i]));
    if (net->options.eval_batch[i] > 0)
      TRY(executor_create(net, net->options.eval_batch[i], false, &net->eval[i]));
  }
  return executor_create(net, 0, true, &net->idle);
}

static enum status region_alloc(struct net *net, size_t bytes, void *region) {
  void *memory = NULL;
  TRY(net->backend->table->alloc(net->backend, bytes, &memory));
  memcpy(region, &memory, sizeof memory);
  net->bytes += bytes;
  return STATUS_OK;
}

static enum status regions_create(struct net *net) {
  const struct backend_table *table = net->backend->table;
  const struct net_options *o = &net->options;
  size_t learned = (size_t)net->layout.parameter_count, total = (size_t)net->layout.total_count;
  size_t all = (size_t)net->layout.all_count;
  TRY(region_alloc(net, all * sizeof(float), &net->params));
  size_t lanes = o->lanes > 0 ? (size_t)o->lanes : 1;
  TRY(region_alloc(net, lanes * (size_t)net->lane_stride * sizeof(float), &net->gradients));
  net->metrics = net->gradients + total;
  if (o->lanes > 0 && net->backend->world->size > 1)
    TRY(region_alloc(net, (size_t)net->lane_stride * sizeof(float), &net->received));
  if (o->reduce_low && net->backend->world->size > 1)
    TRY(region_alloc(net, learned * sizeof *net->reduced, &net->reduced));
  TRY(region_alloc(net, learned * sizeof(float), &net->slot[0]));
  if (o->optimizer != OPTIMIZER_SGD) TRY(region_alloc(net, learned * sizeof(float), &net->slot[1]));
  if (net->backend->context->compute == DTYPE_BF16) TRY(region_alloc(net, all * sizeof(uint16_t), &net->low));
  TRY(region_alloc(net, net->activation_bytes, &net->activations));
  TRY(region_alloc(net, net->workspace_bytes, &net->workspace));
  TRY(region_alloc(net, sizeof *net->control, &net->control));
  TRY(region_alloc(net, 2 * (size_t)o->plan_samples * sizeof *net->list, &net->list));
  TRY(region_alloc(net, 2 * (size_t)o->plan_steps * sizeof *net->rows, &net->rows));
  void *host = NULL;
  TRY(table->alloc_host(net->backend, NET_RING * METRIC_COUNT * sizeof(float), &host));
  net->ring = host;
  TRY(table->alloc_host(net->backend, sizeof *net->stop, &host));
  net->stop = host;
  return STATUS_OK;
}

static bool is_power_of_two(int number) {
  return number > 0 && (number & (number - 1)) == 0;
}

/* The tree of sums has a partner for each lane and each rank. */
static enum status check_lanes(const struct world *world, int lanes) {
  if (lanes == 0 || (is_power_of_two(lanes) && is_power_of_two(world->size))) return STATUS_OK;
  return RAISE(STATUS_INTERNAL, "%d lanes on each of %d ranks: expected powers of two", lanes, world->size);
}

/* Lists and rows are numbered in 32 bits, over the two plans that are held. */
static enum status check_plan(const struct net_options *o) {
  int64_t longest = o->plan_samples > o->plan_steps ? o->plan_samples : o->plan_steps;
  if (longest <= UINT32_MAX / 2) return STATUS_OK;
  return RAISE(STATUS_INPUT,
               "a rank would take %" PRId64 " samples in %" PRId64
               " steps an epoch; expected at most %u of each: use more ranks",
               o->plan_samples, o->plan_steps, UINT32_MAX / 2);
}

enum status net_create(struct backend *backend, const struct graph *graph, const struct net_options *options,
                       struct net **out) {
  struct net *net = calloc(1, sizeof *net);
  if (!net) return RAISE(STATUS_INPUT, "out of memory");
  enum status status = STATUS_OK;
  net->backend = backend;
  net->graph = graph;
  net->options = *options;
  TRY_OUT(check_lanes(backend->world, options->lanes));
  TRY_OUT(check_plan(options));
  TRY_OUT(layout_create(graph, &net->layout));
  net->lane_stride =
      (net->layout.total_count + METRIC_COUNT + LAYOUT_ALIGN - 1) / LAYOUT_ALIGN * LAYOUT_ALIGN;
  net->update = (struct update_desc){.kind = options->optimizer,
                                     .momentum = options->momentum,
                                     .beta1 = options->beta1,
                                     .beta2 = options->beta2,
                                     .epsilon = options->epsilon,
                                     .weight_decay = options->weight_decay,
                                     .nesterov = options->nesterov,
                                     .decay_count = net->layout.decay_count,
                                     .parameter_count = net->layout.parameter_count,
                                     .total_count = net->layout.total_count,
                                     .statistic_momentum = 0.1f}; /* PyTorch's default */
  TRY_OUT(buckets_create(net));
  TRY_OUT(executors_create(net));
  TRY_OUT(regions_create(net));
  for (int i = 0; i < NET_MAX_BATCHES; i++) {
    if (net->train[i].net) executor_bind(&net->train[i]);
    if (net->eval[i].net) executor_bind(&net->eval[i]);
  }
  executor_bind(&net->idle);
out:
  if (status != STATUS_OK)
    net_destroy(net);
  else
    *out = net;
  return status;
}

void net_destroy(struct net *net) {
  if (!net) return;
  struct backend *backend = net->backend;
  const struct backend_table *table = backend->table;
  for (int i = 0; i < NET_MAX_BATCHES; i++) {
    executor_destroy(&net->train[i]);
    executor_destroy(&net->eval[i]);
  }
  executor_destroy(&net->idle);
  for (int i = 0; i < net->shape_count; i++) shape_destroy(net, &net->shape[i]);
  void *device[] = {net->params, net->gradients,   net->received,  net->reduced, net->slot[0], net->slot[1],
                    net->low,    net->activations, net->workspace, net->control, net->list,    net->rows};
  for (size_t i = 0; i < sizeof device / sizeof *device; i++) table->release(backend, device[i]);
  table->release_host(backend, net->ring);
  table->release_host(backend, net->stop);
  layout_destroy(&net->layout);
  free(net->bucket);
  free(net);
}

/* ---- steps ---- */

enum status net_plan(struct net *net, const struct sample *list, int64_t list_count,
                     const struct step_row *rows, int64_t row_count) {
  struct backend *backend = net->backend;
  const struct backend_table *table = backend->table;
  const struct net_options *o = &net->options;
  enum status status = STATUS_OK;
  if (list_count > o->plan_samples || row_count > o->plan_steps)
    return RAISE(STATUS_INTERNAL,
                 "a plan of %" PRId64 " samples and %" PRId64 " steps exceeds %" PRId64 " and %" PRId64,
                 list_count, row_count, o->plan_samples, o->plan_steps);
  int half = 1 - net->half;
  if (net->half_used[half]) TRY(table->wait(backend, net->half_run[half]));
  uint32_t first_row = (uint32_t)(half * o->plan_steps), first_sample = (uint32_t)(half * o->plan_samples);
  struct step_row *planned = malloc(((size_t)row_count + 1) * sizeof *planned);
  if (!planned) return RAISE(STATUS_INPUT, "out of memory");
  for (int64_t i = 0; i < row_count; i++) {
    planned[i] = rows[i];
    planned[i].first += first_sample;
    planned[i].slot = (uint32_t)((net->step + (uint64_t)i) % NET_RING);
  }
  TRY_OUT(table->upload(backend, net->list + first_sample, list, (size_t)list_count * sizeof *list));
  TRY_OUT(table->upload(backend, net->rows + first_row, planned, (size_t)row_count * sizeof *planned));
  TRY_OUT(table->upload(backend, &net->control->next, &first_row, sizeof first_row));
  net->half = half;
  net->half_used[half] = false;
out:
  free(planned);
  return status;
}

static enum status step(struct net *net, struct executor *executor, const struct net_data *data,
                        uint64_t *ticket) {
  uint64_t run;
  TRY(executor_run(executor, data, &run));
  net->run[net->step % NET_RING] = run;
  net->half_used[net->half] = true;
  net->half_run[net->half] = run;
  *ticket = net->step++;
  return STATUS_OK;
}

static struct executor *find(struct executor *executors, int64_t batch) {
  for (int i = 0; i < NET_MAX_BATCHES; i++)
    if (executors[i].net && executors[i].batch == batch) return &executors[i];
  return NULL;
}

enum status net_train_step(struct net *net, const struct net_data *data, int64_t batch, uint64_t *ticket) {
  struct executor *executor = batch == 0 ? &net->idle : find(net->train, batch);
  if (!executor) return RAISE(STATUS_INTERNAL, "no plan for a training batch of %" PRId64, batch);
  return step(net, executor, data, ticket);
}

enum status net_eval_step(struct net *net, const struct net_data *data, int64_t batch, uint64_t *ticket) {
  struct executor *executor = find(net->eval, batch);
  if (!executor) return RAISE(STATUS_INTERNAL, "no plan for an evaluation batch of %" PRId64, batch);
  return step(net, executor, data, ticket);
}

enum status net_metrics(struct net *net, uint64_t ticket, struct net_metrics *metrics) {
  if (ticket >= net->step || net->step - ticket > NET_RING)
    return RAISE(STATUS_INTERNAL, "the metrics of step %" PRIu64 " are not kept at step %" PRIu64, ticket,
                 net->step);
  TRY(net->backend->table->wait(net->backend, net->run[ticket % NET_RING]));
  const float *slot = net->ring + METRIC_COUNT * (ticket % NET_RING);
  *metrics = (struct net_metrics){
      .loss_sum = slot[METRIC_LOSS],
      .correct = slot[METRIC_CORRECT],
      .stop = ((int32_t)slot[METRIC_STOP] & (WISH_SAVE - 1)) != 0,
      .save = (int32_t)slot[METRIC_STOP] >= WISH_SAVE,
  };
  return STATUS_OK;
}

/* The loss, a plan's last node, reads the logits; nothing is placed over them before the next step. */
enum status net_logits(struct net *net, int64_t batch, float *logits) {
  const struct executor *executor = find(net->eval, batch);
  if (!executor) return RAISE(STATUS_INTERNAL, "no plan for an evaluation batch of %" PRId64, batch);
  const struct lane *lane = &executor->lane[0];
  int loss = lane->shape->plan.count - 1;
  struct tensor shape = lane->shape->plan.node[loss].desc.in[0];
  int64_t count = tensor_count(&shape);
  TRY(net->backend->table->download(net->backend, logits, lane->io[loss].in[0], tensor_bytes(&shape)));
  if (shape.dtype == DTYPE_F32) return STATUS_OK;
  const uint16_t *low = (const uint16_t *)(const void *)logits;
  for (int64_t i = count - 1; i >= 0; i--) { /* from the end: the wider ones overwrite what was read */
    uint16_t value;
    memcpy(&value, low + i, sizeof value);
    logits[i] = bf16_to_float(value);
  }
  return STATUS_OK;
}

void net_request_stop(struct net *net) {
  volatile int32_t *wish = net->stop; /* the device reads it at any time */
  *wish |= WISH_STOP;
}

void net_request_save(struct net *net, bool wanted) {
  volatile int32_t *wish = net->stop;
  *wish = wanted ? *wish | WISH_SAVE : *wish & ~WISH_SAVE;
}
