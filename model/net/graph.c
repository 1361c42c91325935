/* Building a graph: each builder appends one node, infers its shape and names its parameters. */
#include "model/net/graph.h"

#include <stdio.h>
#include <stdlib.h>

enum status graph_create(int height, int width, int channels, int classes, struct graph **out) {
  struct graph *graph = calloc(1, sizeof *graph);
  if (!graph) return RAISE(STATUS_INPUT, "out of memory");
  graph->node = calloc(GRAPH_MAX_NODES, sizeof *graph->node);
  if (!graph->node) {
    free(graph);
    return RAISE(STATUS_INPUT, "out of memory");
  }
  graph->height = height;
  graph->width = width;
  graph->channels = channels;
  graph->classes = classes;
  graph->logits = -1;
  *out = graph;
  return STATUS_OK;
}

void graph_destroy(struct graph *graph) {
  if (!graph) return;
  free(graph->node);
  free(graph);
}

int graph_images(struct graph *graph) {
  (void)graph;
  return 0;
}

struct tensor graph_value(const struct graph *graph, int value) {
  if (value == 0) return tensor_4d(DTYPE_F32, 1, graph->height, graph->width, graph->channels);
  return graph->node[value - 1].signature.out;
}

/* Appends a node of that kind reading `in_count` values; NULL after an earlier error. */
static struct graph_node *node_append(struct graph *graph, enum op_kind kind, int in_count, const int *in) {
  if (graph->status != STATUS_OK) return NULL;
  if (graph->node_count == GRAPH_MAX_NODES) {
    graph->status = RAISE(STATUS_INTERNAL, "a model may have at most %d operations", GRAPH_MAX_NODES);
    return NULL;
  }
  struct graph_node *node = &graph->node[graph->node_count];
  *node = (struct graph_node){.desc = {.kind = kind, .training = true, .in_count = in_count},
                              .out = graph->node_count + 1};
  for (int i = 0; i < in_count; i++) {
    node->in[i] = in[i];
    node->desc.in[i] = graph_value(graph, in[i]);
  }
  return node;
}

/* Infers the appended node's shapes and makes it part of the graph; returns its value. */
static int node_finish(struct graph *graph, struct graph_node *node) {
  if (!node) return 0;
  graph->status = op_infer(&node->desc, &node->signature);
  if (graph->status != STATUS_OK) {
    error_trace(graph->status, __func__);
    return 0;
  }
  graph->node_count++;
  return node->out;
}

static void param_set(struct graph_param *param, const char *module, const char *name, enum init_kind init,
                      int64_t fan) {
  snprintf(param->name, sizeof param->name, "%s.%s", module, name);
  param->init = init;
  param->fan = (int)fan;
}

int graph_conv2d(struct graph *graph, const char *name, int in, struct conv2d_attr attr,
                 enum init_kind init) {
  struct graph_node *node = node_append(graph, OP_CONV2D, 1, &in);
  if (!node) return 0;
  node->desc.attr.conv2d = attr;
  int64_t window = (int64_t)attr.kernel_h * attr.kernel_w, fan_in = window * node->desc.in[0].dim[3];
  int64_t fan_out = window * attr.filters;
  param_set(&node->param[0], name, "weight", init, init == INIT_KAIMING_NORMAL ? fan_out : fan_in);
  if (attr.bias) param_set(&node->param[1], name, "bias", INIT_UNIFORM_FAN_IN, fan_in);
  return node_finish(graph, node);
}

int graph_batchnorm(struct graph *graph, const char *name, int in) {
  struct graph_node *node = node_append(graph, OP_BATCHNORM, 1, &in);
  if (!node) return 0;
  node->desc.attr.batchnorm.epsilon = 1e-5f;
  param_set(&node->param[0], name, "weight", INIT_ONE, 0);
  param_set(&node->param[1], name, "bias", INIT_ZERO, 0);
  snprintf(node->statistic[0], GRAPH_NAME, "%s.running_mean", name);
  snprintf(node->statistic[1], GRAPH_NAME, "%s.running_var", name);
  return node_finish(graph, node);
}

int graph_activation(struct graph *graph, enum activation kind, int in) {
  struct graph_node *node = node_append(graph, OP_ACTIVATION, 1, &in);
  if (node) node->desc.attr.activation.kind = kind;
  return node_finish(graph, node);
}

int graph_add(struct graph *graph, int a, int b) {
  return graph_add_scaled(graph, a, b, 1);
}

int graph_add_scaled(struct graph *graph, int a, int b, float scale) {
  struct graph_node *node = node_append(graph, OP_ADD, 2, (int[]){a, b});
  if (node) node->desc.attr.add.scale = scale;
  return node_finish(graph, node);
}

int graph_maxpool(struct graph *graph, int in, int kernel, int stride) {
  struct graph_node *node = node_append(graph, OP_MAXPOOL, 1, &in);
  if (node) node->desc.attr.maxpool = (struct maxpool_attr){.kernel = kernel, .stride = stride};
  return node_finish(graph, node);
}

int graph_avgpool(struct graph *graph, int in) {
  return node_finish(graph, node_append(graph, OP_AVGPOOL, 1, &in));
}

int graph_linear(struct graph *graph, const char *name, int in, int outputs) {
  struct graph_node *node = node_append(graph, OP_LINEAR, 1, &in);
  if (!node) return 0;
  node->desc.attr.linear = (struct linear_attr){.outputs = outputs, .bias = true};
  int64_t fan_in = tensor_count(&node->desc.in[0]);
  param_set(&node->param[0], name, "weight", INIT_UNIFORM_FAN_IN, fan_in);
  param_set(&node->param[1], name, "bias", INIT_UNIFORM_FAN_IN, fan_in);
  return node_finish(graph, node);
}

int graph_matrix(struct graph *graph, const char *name, int in, int outputs, enum init_kind init) {
  struct graph_node *node = node_append(graph, OP_LINEAR, 1, &in);
  if (!node) return 0;
  node->desc.attr.linear = (struct linear_attr){.outputs = outputs};
  int64_t fan_in = tensor_count(&node->desc.in[0]);
  param_set(&node->param[0], name, "weight", init, init == INIT_KAIMING_NORMAL ? outputs : fan_in);
  return node_finish(graph, node);
}

enum status graph_finish(struct graph *graph, int logits) {
  if (graph->status != STATUS_OK) return error_trace(graph->status, __func__);
  struct tensor out = graph_value(graph, logits);
  if (tensor_count(&out) != graph->classes)
    return RAISE(STATUS_INTERNAL, "the model ends with %lld outputs, but there are %d classes",
                 (long long)tensor_count(&out), graph->classes);
  graph->logits = logits;
  return STATUS_OK;
}

static int64_t count_parameters(const struct graph *graph, bool frozen_too) {
  int64_t count = 0;
  for (int i = 0; i < graph->node_count; i++)
    for (int p = 0; p < graph->node[i].signature.param_count; p++)
      if (frozen_too || !graph->node[i].param[p].frozen)
        count += tensor_count(&graph->node[i].signature.param[p].tensor);
  return count;
}

int64_t graph_parameter_count(const struct graph *graph) {
  return count_parameters(graph, true);
}

int64_t graph_trained_count(const struct graph *graph) {
  return count_parameters(graph, false);
}
