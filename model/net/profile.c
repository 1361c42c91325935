/* Timing the parts of a step; see profile.h. Each part is run in the step's order, when its inputs are valid.
 * Parts may be repeated: they overwrite what they made, but for gradients that add up, whose values do not
 * matter here. */
#include "model/net/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/clock.h"
#include "model/base/sort.h"
#include "model/net/net_state.h"

enum { WINDOWS = 5 };

/* What one program repeats. */
struct part {
  struct executor *executor;
  int node, repeats;
  enum status (*enqueue)(struct executor *executor, int node);
};

static double now_ms(void) {
  return 1e3 * clock_seconds();
}

static enum status body(void *argument) {
  struct part *part = argument;
  for (int i = 0; i < part->repeats; i++) TRY(part->enqueue(part->executor, part->node));
  return STATUS_OK;
}

/* Milliseconds of one run of the part. The first window records and is not counted. */
static enum status measure(struct part *part, double *milliseconds) {
  struct backend *backend = part->executor->net->backend;
  struct program *program = NULL;
  double window[WINDOWS + 1];
  enum status status = STATUS_OK;
  for (int i = 0; i <= WINDOWS; i++) {
    uint64_t ticket;
    TRY_OUT(backend->table->sync(backend));
    double begin = now_ms();
    TRY_OUT(backend->table->run(backend, &program, body, part, &ticket));
    TRY_OUT(backend->table->wait(backend, ticket));
    window[i] = (now_ms() - begin) / part->repeats;
  }
  sort_doubles(window + 1, WINDOWS);
  *milliseconds = window[1 + WINDOWS / 2];
out:
  backend->table->program_destroy(backend, program);
  return status;
}

/* ---- the parts ---- */

static enum status enqueue_gather(struct executor *executor, int node) {
  (void)node;
  return executor_gather(executor, executor->lane);
}

static enum status enqueue_forward(struct executor *executor, int node) {
  const struct lane *lane = executor->lane;
  return shape_op(executor->net, lane->shape, node)
      ->forward(executor->net->backend->context, lane->shape->state[node], &lane->io[node]);
}

static enum status enqueue_backward(struct executor *executor, int node) {
  const struct lane *lane = executor->lane;
  return shape_op(executor->net, lane->shape, node)
      ->backward(executor->net->backend->context, lane->shape->state[node], &lane->io[node]);
}

static enum status enqueue_reduce(struct executor *executor, int node) {
  struct net *net = executor->net;
  const struct bucket *bucket = &net->bucket[node];
  TRY(executor_reduce(net, bucket));
  return net->backend->table->comm_join(net->backend);
}

static enum status enqueue_update(struct executor *executor, int node) {
  (void)node;
  return executor_update(executor->net);
}

/* ---- the rows ---- */

static double bytes_of(const struct tensor *tensor) {
  return (double)tensor_bytes(tensor);
}

/* A product's operations, one pass of it. */
static double product_operations(const struct plan_node *node) {
  const struct op_signature *signature = &node->signature;
  enum op_kind kind = node->desc.kind;
  if (kind != OP_CONV2D && kind != OP_CONV_BN && kind != OP_CONV_POOL && kind != OP_LINEAR) return 0;
  const struct tensor *weight = &signature->param[0].tensor;
  double rows = (double)tensor_count(&signature->out) / (double)weight->dim[0];
  if (kind == OP_CONV_POOL) { /* out is smaller than the convolution's */
    const struct conv2d_attr *conv = &node->desc.attr.conv_pool.conv;
    const int64_t *in = node->desc.in[0].dim;
    rows = (double)(in[0] * op_window(in[1], conv->kernel_h, conv->stride, conv->pad) *
                    op_window(in[2], conv->kernel_w, conv->stride, conv->pad));
  }
  return 2 * rows * (double)tensor_count(weight);
}

static void describe(const struct executor *executor, int i, bool backward, struct net_profile_row *row) {
  const struct plan_node *node = &executor->lane->shape->plan.node[i];
  const struct op_signature *signature = &node->signature;
  double in = 0, params = 0, saved = 0, out = bytes_of(&signature->out);
  for (int k = 0; k < node->desc.in_count; k++) in += bytes_of(&node->desc.in[k]);
  for (int p = 0; p < signature->param_count; p++) params += bytes_of(&signature->param[p].tensor);
  for (int s = 0; s < signature->saved_count; s++) saved += bytes_of(&signature->saved[s]);
  row->pass = backward ? "backward" : "forward";
  row->op = op_name(node->desc.kind);
  row->bytes = (backward ? 2 * in : in) + params + saved + out;
  row->operations = product_operations(node) * (backward ? 2 : 1);
  if (signature->param_count > 0 && i < executor->net->graph->node_count) {
    snprintf(row->name, sizeof row->name, "%s", executor->net->graph->node[i].param[0].name);
    char *dot = strrchr(row->name, '.');
    if (dot) *dot = '\0';
  }
}

static enum status add_row(struct part *part, struct net_profile_row *row, int *count) {
  TRY(measure(part, &row->milliseconds));
  (*count)++;
  return STATUS_OK;
}

enum status net_profile(struct net *net, const struct net_data *data, int repeats,
                        struct net_profile_row **rows, int *count) {
  struct executor *executor = &net->train[0];
  enum status status = STATUS_OK;
  uint64_t ticket;
  int nodes, made = 0, buckets = net->backend->world->size > 1 ? net->bucket_count : 0;
  if (net->options.lanes > 0 || executor->batch == 0)
    return RAISE(STATUS_INTERNAL, "only a step without lanes is timed in parts");
  nodes = executor->lane->shape->plan.count;
  TRY(net_train_step(net, data, executor->batch, &ticket)); /* takes the plan's row, fills every array */
  struct net_profile_row *row = calloc(2 * (size_t)nodes + (size_t)buckets + 2, sizeof *row);
  if (!row) return RAISE(STATUS_INPUT, "out of memory");
  struct part part = {.executor = executor, .repeats = repeats, .enqueue = enqueue_gather};
  const struct tensor *images = &executor->lane->shape->plan.node[0].desc.in[0];
  row[made] = (struct net_profile_row){
      .pass = "gather", .op = "", .bytes = bytes_of(images) + (double)tensor_count(images)};
  TRY_OUT(add_row(&part, &row[made], &made));
  part.enqueue = enqueue_forward;
  for (part.node = 0; part.node < nodes; part.node++) {
    describe(executor, part.node, false, &row[made]);
    TRY_OUT(add_row(&part, &row[made], &made));
  }
  part.enqueue = enqueue_backward;
  for (part.node = nodes - 1; part.node >= 0; part.node--) {
    if (!executor->lane->shape->plan.node[part.node].backward) continue;
    describe(executor, part.node, true, &row[made]);
    TRY_OUT(add_row(&part, &row[made], &made));
  }
  part.enqueue = enqueue_reduce;
  for (part.node = 0; part.node < buckets; part.node++) {
    row[made] = (struct net_profile_row){
        .pass = "all-reduce", .op = "", .bytes = (double)net->bucket[part.node].count * sizeof(float)};
    TRY_OUT(add_row(&part, &row[made], &made));
  }
  part.enqueue = enqueue_update;
  double arrays = net->slot[1] ? 7 : 5; /* params and each slot read and written, gradients read */
  row[made] = (struct net_profile_row){.pass = "update",
                                       .op = "",
                                       .bytes = (double)net->layout.parameter_count *
                                                (arrays * sizeof(float) + (net->low ? sizeof(uint16_t) : 0))};
  TRY_OUT(add_row(&part, &row[made], &made));
  *rows = row;
  *count = made;
  return STATUS_OK;
out:
  free(row);
  return status;
}

/* ---- the parts of a whole step ---- */

const char *net_part_name(enum net_part part) {
  static const char *const names[NET_PARTS] = {"data", "forward", "backward", "exposed", "update"};
  return names[part];
}

/* One step of a program that stamps; its pieces' seconds. */
static enum status stamped_step(struct executor *executor, struct program **program, double *seconds) {
  struct backend *backend = executor->net->backend;
  uint64_t ticket;
  TRY(backend->table->run(backend, program, executor_body, executor, &ticket));
  TRY(backend->table->wait(backend, ticket));
  return backend->table->stamp_seconds(backend, executor->timeline->count, seconds);
}

enum status net_time_parts(struct net *net, const struct net_data *data, int steps,
                           struct net_timeline *timeline) {
  struct executor *executor = &net->train[0];
  struct program *program = NULL;
  enum status status = STATUS_OK;
  uint64_t ticket;
  if (net->options.lanes > 0 || executor->batch == 0 || steps < 1)
    return RAISE(STATUS_INTERNAL, "only steps without lanes are timed in parts");
  double *all = calloc((size_t)(steps + 1) * NET_MARKS, sizeof *all), *column = NULL;
  if (!all) return RAISE(STATUS_INPUT, "out of memory");
  TRY_OUT(net_train_step(net, data, executor->batch, &ticket)); /* gives the executor its data */
  executor->timeline = timeline;
  for (int s = 0; s <= steps; s++) TRY_OUT(stamped_step(executor, &program, all + s * NET_MARKS));
  column = calloc((size_t)steps, sizeof *column);
  if (!column) TRY_OUT(RAISE(STATUS_INPUT, "out of memory"));
  for (int i = 0; i < timeline->count; i++) {
    for (int s = 0; s < steps; s++) column[s] = all[(s + 1) * NET_MARKS + i];
    sort_doubles(column, (size_t)steps);
    timeline->seconds[i] = column[steps / 2];
  }
out:
  executor->timeline = NULL;
  net->backend->table->program_destroy(net->backend, program);
  free(all);
  free(column);
  return status;
}

double net_part_seconds(const struct net_timeline *timeline, enum net_part part) {
  double sum = 0;
  for (int i = 0; i < timeline->count; i++)
    if (timeline->part[i] == part) sum += timeline->seconds[i];
  return sum;
}

int net_bucket_count(const struct net *net) {
  return net->bucket_count;
}

double net_bucket_bytes(const struct net *net, int index) {
  return (double)net->bucket[index].count * sizeof(float);
}

/* A bucket's sum lies between a piece of the backward pass and the next one. */
void net_bucket_ready(const struct net_timeline *timeline, double *ready) {
  double seconds = 0;
  int bucket = 0;
  for (int i = 0; i + 1 < timeline->count; i++) {
    if (timeline->part[i] != NET_BACKWARD) continue;
    seconds += timeline->seconds[i];
    if (timeline->part[i + 1] == NET_EXPOSED && i + 2 < timeline->count &&
        timeline->part[i + 2] == NET_BACKWARD)
      ready[bucket++] = seconds;
  }
}
