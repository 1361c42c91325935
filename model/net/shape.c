/* One number of samples of a net: its plan, its ops' states, and the pointers that a lane gives them. */
#include <stdlib.h>

#include "model/net/net_state.h"

const struct op_table *shape_op(const struct net *net, const struct shape *shape, int node) {
  return &net->backend->table->ops[shape->plan.node[node].desc.kind];
}

void shape_destroy(struct net *net, struct shape *shape) {
  for (int i = 0; shape->state && i < shape->plan.count; i++)
    shape_op(net, shape, i)->destroy(net->backend->context, shape->state[i]);
  free(shape->state);
  plan_destroy(&shape->plan);
  *shape = (struct shape){0};
}

static enum status shape_create(struct net *net, int64_t batch, bool training, struct shape *shape) {
  struct op_context *context = net->backend->context;
  float smoothing = training ? net->options.label_smoothing : 0;
  enum status status = STATUS_OK;
  *shape = (struct shape){.training = training};
  TRY(plan_create(net->graph, batch, training, context->compute, smoothing, &shape->plan));
  shape->state = calloc((size_t)shape->plan.count, sizeof *shape->state);
  if (!shape->state) {
    status = RAISE(STATUS_INPUT, "out of memory");
    goto out;
  }
  for (int i = 0; i < shape->plan.count; i++) {
    const struct plan_node *node = &shape->plan.node[i];
    size_t workspace = 0;
    TRY_OUT(shape_op(net, shape, i)
                ->create(context, &node->desc, &node->signature, &shape->state[i], &workspace));
    if (workspace > net->workspace_bytes) net->workspace_bytes = workspace;
  }
  if (shape->plan.bytes > net->activation_bytes) net->activation_bytes = shape->plan.bytes;
out:
  if (status != STATUS_OK) shape_destroy(net, shape);
  return status;
}

enum status shape_get(struct net *net, int64_t batch, bool training, const struct shape **shape) {
  for (int i = 0; i < net->shape_count; i++)
    if (net->shape[i].plan.batch == batch && net->shape[i].training == training) {
      *shape = &net->shape[i];
      return STATUS_OK;
    }
  if (net->shape_count == NET_MAX_SHAPES)
    return RAISE(STATUS_INTERNAL, "more than %d sizes of lanes", NET_MAX_SHAPES);
  TRY(shape_create(net, batch, training, &net->shape[net->shape_count]));
  *shape = &net->shape[net->shape_count++];
  return STATUS_OK;
}

/* ---- pointers ---- */

static void *activation(const struct net *net, int64_t offset) {
  return offset == PLAN_NONE ? NULL : net->activations + offset;
}

/* Pointers of node i's parameters and statistics, by the graph's layout. */
static void bind_params(const struct net *net, const struct plan_node *node, int i, float *gradients,
                        struct op_io *io) {
  for (int p = 0; p < node->signature.param_count; p++) {
    int64_t offset = net->layout.param[i][p];
    bool low = node->signature.param[p].tensor.dtype == DTYPE_BF16;
    io->param[p] = low ? (const void *)((const uint16_t *)net->low + offset) : net->params + offset;
    io->d_param[p] = net->graph->node[i].param[p].frozen ? NULL : gradients + offset;
  }
  for (int s = 0; s < node->signature.statistic_count; s++) {
    io->statistic[s] = net->params + net->layout.statistic[i][s];
    if (!node->signature.fixed_statistic) io->batch_statistic[s] = gradients + net->layout.statistic[i][s];
  }
}

void shape_bind(const struct net *net, struct lane *lane) {
  const struct plan *plan = &lane->shape->plan;
  for (int i = 0; i < plan->count; i++) {
    const struct plan_node *node = &plan->node[i];
    struct op_io *io = &lane->io[i];
    bool loss = i == plan->count - 1;
    *io = (struct op_io){.workspace = net->workspace, .scale = &net->control->row.scale};
    for (int k = 0; k < node->desc.in_count; k++) {
      io->in[k] = activation(net, node->in[k]);
      io->d_in[k] = activation(net, node->d_in[k]);
      io->d_in_add[k] = node->d_in_add[k];
    }
    io->out = loss ? lane->gradients + net->layout.total_count + METRIC_LOSS : activation(net, node->out);
    io->d_out = activation(net, node->d_out);
    for (int s = 0; s < node->signature.saved_count; s++) io->saved[s] = activation(net, node->saved[s]);
    if (!loss) bind_params(net, node, i, lane->gradients, io);
  }
}
