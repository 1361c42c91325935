/* One batch size's step: gather, forward, loss, backward with the buckets' all-reduce, update. The bodies
 * only enqueue; the backend may record them once and replay them. */
#include "model/net/net_state.h"

#include <stdlib.h>
#include <string.h>

static const struct op_table *op_of(const struct executor *executor, int node) {
  return &executor->net->backend->table->ops[executor->plan.node[node].desc.kind];
}

enum status executor_create(struct net *net, int64_t batch, bool training, struct executor *executor) {
  struct op_context *context = net->backend->context;
  enum status status = STATUS_OK;
  *executor = (struct executor){.net = net, .training = training};
  if (batch == 0) return STATUS_OK;
  float smoothing = training ? net->options.label_smoothing : 0;
  TRY(plan_create(net->graph, batch, training, context->compute, smoothing, &executor->plan));
  size_t count = (size_t)executor->plan.count;
  executor->state = calloc(count, sizeof *executor->state);
  executor->io = calloc(count, sizeof *executor->io);
  if (!executor->state || !executor->io) {
    status = RAISE(STATUS_INPUT, "out of memory");
    goto out;
  }
  for (int i = 0; i < executor->plan.count; i++) {
    const struct plan_node *node = &executor->plan.node[i];
    size_t workspace = 0;
    TRY_OUT(
        op_of(executor, i)->create(context, &node->desc, &node->signature, &executor->state[i], &workspace));
    if (workspace > net->workspace_bytes) net->workspace_bytes = workspace;
  }
  if (executor->plan.bytes > net->activation_bytes) net->activation_bytes = executor->plan.bytes;
out:
  if (status != STATUS_OK) executor_destroy(executor);
  return status;
}

void executor_destroy(struct executor *executor) {
  if (!executor->net) return;
  const struct backend_table *table = executor->net->backend->table;
  table->program_destroy(executor->net->backend, executor->program);
  for (int i = 0; executor->state && i < executor->plan.count; i++)
    op_of(executor, i)->destroy(executor->net->backend->context, executor->state[i]);
  free(executor->state);
  free(executor->io);
  plan_destroy(&executor->plan);
  *executor = (struct executor){0};
}

static void *activation(const struct net *net, int64_t offset) {
  return offset == PLAN_NONE ? NULL : net->activations + offset;
}

/* Pointers of node i's parameters and statistics, by the graph's layout. */
static void bind_params(const struct net *net, const struct plan_node *node, int i, struct op_io *io) {
  for (int p = 0; p < node->signature.param_count; p++) {
    int64_t offset = net->layout.param[i][p];
    bool low = node->signature.param[p].tensor.dtype == DTYPE_BF16;
    io->param[p] = low ? (const void *)((const uint16_t *)net->low + offset) : net->params + offset;
    io->d_param[p] = net->gradients + offset;
  }
  for (int s = 0; s < node->signature.statistic_count; s++) {
    io->statistic[s] = net->params + net->layout.statistic[i][s];
    io->batch_statistic[s] = net->gradients + net->layout.statistic[i][s];
  }
}

void executor_bind(struct executor *executor) {
  struct net *net = executor->net;
  for (int i = 0; i < executor->plan.count; i++) {
    const struct plan_node *node = &executor->plan.node[i];
    struct op_io *io = &executor->io[i];
    bool loss = i == executor->plan.count - 1;
    *io = (struct op_io){.workspace = net->workspace, .scale = &net->control->row.scale};
    for (int k = 0; k < node->desc.in_count; k++) {
      io->in[k] = activation(net, node->in[k]);
      io->d_in[k] = activation(net, node->d_in[k]);
      io->d_in_add[k] = node->d_in_add[k];
    }
    io->out = loss ? net->metrics + METRIC_LOSS : activation(net, node->out);
    io->d_out = activation(net, node->d_out);
    for (int s = 0; s < node->signature.saved_count; s++) io->saved[s] = activation(net, node->saved[s]);
    if (!loss) bind_params(net, node, i, io);
  }
}

/* Starts the all-reduce of each bucket that is complete once node's backward is done. */
static enum status reduce_buckets(struct net *net, int node, int *next) {
  for (; *next < net->bucket_count && net->bucket[*next].node >= node; (*next)++) {
    const struct bucket *bucket = &net->bucket[*next];
    TRY(net->backend->table->allreduce(net->backend, net->gradients + bucket->first, bucket->count));
  }
  return STATUS_OK;
}

static enum status forward(struct executor *executor) {
  struct net *net = executor->net;
  const struct backend_table *table = net->backend->table;
  const struct plan *plan = &executor->plan;
  TRY(table->gather(net->backend, &executor->gather, net->control, net->list, activation(net, plan->images),
                    activation(net, plan->labels)));
  for (int i = 0; i < plan->count; i++)
    TRY(op_of(executor, i)->forward(net->backend->context, executor->state[i], &executor->io[i]));
  return STATUS_OK;
}

static enum status backward(struct executor *executor) {
  struct net *net = executor->net;
  int next = 0;
  for (int i = executor->plan.count - 1; i >= 0; i--) {
    TRY(op_of(executor, i)->backward(net->backend->context, executor->state[i], &executor->io[i]));
    TRY(reduce_buckets(net, i, &next));
  }
  return STATUS_OK;
}

/* A rank without samples adds zeros: gradients, statistics and metrics, all but its wish to stop. */
static enum status contribute_nothing(struct net *net) {
  int next = 0;
  TRY(net->backend->table->zero(net->backend, net->gradients,
                                (size_t)net->layout.total_count * sizeof(float)));
  return reduce_buckets(net, 0, &next);
}

static enum status body(void *argument) {
  struct executor *executor = argument;
  struct net *net = executor->net;
  const struct backend_table *table = net->backend->table;
  TRY(table->step_begin(net->backend, net->control, net->rows, net->stop, net->metrics));
  if (executor->plan.count > 0) TRY(forward(executor));
  if (executor->training) {
    TRY(executor->plan.count > 0 ? backward(executor) : contribute_nothing(net));
    TRY(table->comm_join(net->backend));
    TRY(table->update(net->backend, &net->update, net->control, net->params, net->low, net->gradients,
                      net->slot[0], net->slot[1], net->metrics));
  }
  return table->publish(net->backend, net->control, net->metrics, net->ring);
}

enum status executor_run(struct executor *executor, const struct net_data *data, uint64_t *run) {
  struct net *net = executor->net;
  const struct backend_table *table = net->backend->table;
  struct gather_desc gather;
  memset(&gather, 0, sizeof gather); /* padding too: it is compared as bytes */
  gather.images = data->images;
  gather.labels = data->labels;
  gather.count = executor->plan.batch;
  gather.height = net->graph->height;
  gather.width = net->graph->width;
  gather.channels = net->graph->channels;
  memcpy(gather.mean, data->mean, sizeof gather.mean);
  memcpy(gather.std, data->std, sizeof gather.std);
  if (memcmp(&gather, &executor->gather, sizeof gather) != 0) { /* other data: the recording does not fit */
    table->program_destroy(net->backend, executor->program);
    executor->program = NULL;
    executor->gather = gather;
  }
  return table->run(net->backend, &executor->program, body, executor, run);
}
