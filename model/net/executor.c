/* One batch size's step: for each lane gather, forward, loss and backward; the sum over lanes and ranks; the
 * update. The bodies only enqueue; the backend may record them once and replay them. */
#include <stdlib.h>
#include <string.h>

#include "model/backend/trace.h"
#include "model/net/net_state.h"

/* Cuts `batch` samples into the executor's lanes, the first ones one larger. */
static enum status lanes_create(struct executor *executor) {
  int64_t count = executor->lane_count, first = 0;
  for (int i = 0; i < executor->lane_count; i++) {
    struct lane *lane = &executor->lane[i];
    int64_t samples = executor->batch / count + (i < executor->batch % count ? 1 : 0);
    lane->first = first;
    first += samples;
    if (samples == 0) continue;
    TRY(shape_get(executor->net, samples, executor->training, &lane->shape));
    lane->io = calloc((size_t)lane->shape->plan.count, sizeof *lane->io);
    if (!lane->io) return RAISE(STATUS_INPUT, "out of memory");
  }
  return STATUS_OK;
}

enum status executor_create(struct net *net, int64_t batch, bool training, struct executor *executor) {
  int lanes = training && net->options.lanes > 0 ? net->options.lanes : 1;
  *executor = (struct executor){.net = net, .training = training, .batch = batch, .lane_count = lanes};
  executor->lane = calloc((size_t)lanes, sizeof *executor->lane);
  enum status status = executor->lane ? lanes_create(executor) : RAISE(STATUS_INPUT, "out of memory");
  if (status != STATUS_OK) executor_destroy(executor);
  return status;
}

void executor_destroy(struct executor *executor) {
  if (!executor->net) return;
  executor->net->backend->table->program_destroy(executor->net->backend, executor->program);
  for (int i = 0; executor->lane && i < executor->lane_count; i++) free(executor->lane[i].io);
  free(executor->lane);
  *executor = (struct executor){0};
}

void executor_bind(struct executor *executor) {
  const struct net *net = executor->net;
  for (int i = 0; i < executor->lane_count; i++) {
    struct lane *lane = &executor->lane[i];
    lane->gradients = net->gradients + i * net->lane_stride;
    if (lane->shape) shape_bind(net, lane);
  }
}

/* ---- stamps ---- */

static enum status mark_begin(const struct executor *executor) {
  if (!executor->timeline) return STATUS_OK;
  executor->timeline->count = 0;
  return executor->net->backend->table->stamp(executor->net->backend, 0);
}

/* What was enqueued since the last mark belongs to that part. */
static enum status mark(const struct executor *executor, enum net_part part) {
  struct net_timeline *timeline = executor->timeline;
  if (!timeline) return STATUS_OK;
  if (timeline->count >= NET_MARKS) return RAISE(STATUS_INTERNAL, "a step of more than %d parts", NET_MARKS);
  timeline->part[timeline->count++] = part;
  return executor->net->backend->table->stamp(executor->net->backend, timeline->count);
}

/* ---- a lane ---- */

enum status executor_gather(const struct executor *executor, const struct lane *lane) {
  const struct net *net = executor->net;
  const struct backend_table *table = net->backend->table;
  const struct plan *plan = &lane->shape->plan;
  struct gather_desc gather = {.images = executor->data.images,
                               .labels = executor->data.labels,
                               .count = plan->batch,
                               .height = net->graph->height,
                               .width = net->graph->width,
                               .channels = net->graph->channels};
  memcpy(gather.mean, executor->data.mean, sizeof gather.mean);
  memcpy(gather.std, executor->data.std, sizeof gather.std);
  return table->gather(net->backend, &gather, net->control, net->list + lane->first,
                       net->activations + plan->images, (int32_t *)(void *)(net->activations + plan->labels));
}

static enum status forward(const struct executor *executor, const struct lane *lane) {
  const struct net *net = executor->net;
  TRY(TRACE("data", executor_gather(executor, lane)));
  TRY(mark(executor, NET_DATA));
  for (int i = 0; i < lane->shape->plan.count; i++)
    TRY(shape_op(net, lane->shape, i)->forward(net->backend->context, lane->shape->state[i], &lane->io[i]));
  return mark(executor, NET_FORWARD);
}

enum status executor_reduce(const struct net *net, const struct bucket *bucket) {
  const struct backend_table *table = net->backend->table;
  float *first = net->gradients + bucket->first;
  int64_t low = 0; /* statistics and metrics, which lie last, are summed in fp32 */
  if (net->reduced) low = net->layout.parameter_count - bucket->first;
  if (low < 0) low = 0;
  if (low > bucket->count) low = bucket->count;
  if (low > 0) TRY(table->allreduce_low(net->backend, first, net->reduced + bucket->first, low));
  if (low < bucket->count) TRY(table->allreduce(net->backend, first + low, bucket->count - low));
  return STATUS_OK;
}

/* Starts the all-reduce of each bucket that is complete once node's backward is done. */
static enum status reduce_buckets(const struct executor *executor, int node, int *next) {
  const struct net *net = executor->net;
  for (; *next < net->bucket_count && net->bucket[*next].node >= node; (*next)++) {
    const struct bucket *bucket = &net->bucket[*next];
    TRY(mark(executor, NET_BACKWARD));
    TRY(TRACE("all-reduce", executor_reduce(net, bucket)));
    TRY(mark(executor, NET_EXPOSED));
  }
  return STATUS_OK;
}

static enum status backward(const struct executor *executor, const struct lane *lane) {
  const struct net *net = executor->net;
  int next = 0;
  for (int i = lane->shape->plan.count - 1; i >= 0; i--) {
    if (lane->shape->plan.node[i].backward)
      TRY(shape_op(net, lane->shape, i)
              ->backward(net->backend->context, lane->shape->state[i], &lane->io[i]));
    TRY(reduce_buckets(executor, i, &next));
  }
  return mark(executor, NET_BACKWARD);
}

/* A lane without samples adds zeros: gradients, statistics and metrics, all but the rank's wish to stop,
 * which stands in the first lane's. */
static enum status contribute_nothing(const struct executor *executor, const struct lane *lane) {
  const struct net *net = executor->net;
  int64_t metrics = lane->gradients == net->gradients ? 0 : METRIC_COUNT;
  int next = 0;
  TRY(net->backend->table->zero(net->backend, lane->gradients,
                                (size_t)(net->layout.total_count + metrics) * sizeof(float)));
  return reduce_buckets(executor, 0, &next);
}

/* ---- the step ---- */

/* The tree over all ranks' lanes; the result lies in the first lane's gradients. */
static enum status sum_lanes(const struct executor *executor) {
  const struct net *net = executor->net;
  const struct backend_table *table = net->backend->table;
  const struct lane *lane = executor->lane;
  const struct world *world = net->backend->world;
  int64_t count = net->layout.total_count + METRIC_COUNT;
  for (int stride = 1; stride < executor->lane_count; stride *= 2)
    for (int i = 0; i < executor->lane_count; i += 2 * stride)
      TRY(table->add(net->backend, lane[i].gradients, lane[i + stride].gradients, count));
  for (int stride = 1; stride < world->size; stride *= 2)
    TRY(table->exchange_add(net->backend, net->gradients, net->received, count, world->rank ^ stride));
  return STATUS_OK;
}

enum status executor_update(const struct net *net) {
  return net->backend->table->update(net->backend, &net->update, net->control, net->params, net->low,
                                     net->gradients, net->slot[0], net->slot[1], net->metrics);
}

enum status executor_body(void *argument) {
  const struct executor *executor = argument;
  struct net *net = executor->net;
  const struct backend_table *table = net->backend->table;
  TRY(mark_begin(executor));
  TRY(table->step_begin(net->backend, net->control, net->rows, net->stop, net->metrics));
  for (int i = 0; i < executor->lane_count; i++) {
    const struct lane *lane = &executor->lane[i];
    if (lane->shape) TRY(TRACE("forward", forward(executor, lane)));
    if (executor->training)
      TRY(TRACE("backward", lane->shape ? backward(executor, lane) : contribute_nothing(executor, lane)));
  }
  if (executor->training) {
    if (net->options.lanes > 0) TRY(sum_lanes(executor));
    TRY(table->comm_join(net->backend));
    TRY(mark(executor, NET_EXPOSED));
    TRY(TRACE("update", executor_update(net)));
  }
  TRY(table->publish(net->backend, net->control, net->metrics, net->ring));
  return mark(executor, NET_UPDATE);
}

static bool same_data(const struct net_data *a, const struct net_data *b) {
  bool same = a->images == b->images && a->labels == b->labels;
  for (int c = 0; c < 4; c++) same = same && a->mean[c] == b->mean[c] && a->std[c] == b->std[c];
  return same;
}

enum status executor_run(struct executor *executor, const struct net_data *data, uint64_t *run) {
  const struct backend *backend = executor->net->backend;
  if (!same_data(data, &executor->data)) { /* other data: the recording does not fit */
    backend->table->program_destroy(executor->net->backend, executor->program);
    executor->program = NULL;
    executor->data = *data;
  }
  return backend->table->run(executor->net->backend, &executor->program, executor_body, executor, run);
}
