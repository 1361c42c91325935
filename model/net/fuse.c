/* The graph pass that makes conv_bn and conv_pool nodes; see graph_fuse in graph.h. */
#include "model/net/graph.h"

#include <stdlib.h>
#include <string.h>

/* The nodes of one fused chain, -1 where there is none: a convolution, then norm [+ add] [+ act], or
 * [act +] pool. */
struct chain {
  int conv, norm, add, act, pool;
};

/* The only node that reads `value`, or -1. The logits have a reader outside of the graph. */
static int only_reader(const struct graph *graph, int value) {
  int reader = -1;
  if (value == graph->logits) return -1;
  for (int i = 0; i < graph->node_count; i++)
    for (int k = 0; k < graph->node[i].desc.in_count; k++)
      if (graph->node[i].in[k] == value) {
        if (reader >= 0) return -1;
        reader = i;
      }
  return reader;
}

static int only_reader_of_kind(const struct graph *graph, int value, enum op_kind kind) {
  int reader = only_reader(graph, value);
  return reader >= 0 && graph->node[reader].desc.kind == kind ? reader : -1;
}

static bool find_conv_bn(const struct graph *graph, int conv, struct chain *chain) {
  *chain = (struct chain){.conv = conv, .norm = -1, .add = -1, .act = -1, .pool = -1};
  if (graph->node[conv].desc.attr.conv2d.bias) return false;
  chain->norm = only_reader_of_kind(graph, graph->node[conv].out, OP_BATCHNORM);
  if (chain->norm < 0) return false;
  int out = graph->node[chain->norm].out;
  int add = only_reader_of_kind(graph, out, OP_ADD);
  /* of two batchnorms that meet in an addition, the one that is its first operand takes it */
  if (add >= 0 && graph->node[add].in[0] == out && graph->node[add].desc.attr.add.scale == 1) {
    chain->add = add;
    out = graph->node[add].out;
  }
  chain->act = only_reader_of_kind(graph, out, OP_ACTIVATION);
  return true;
}

static bool find_conv_pool(const struct graph *graph, int conv, struct chain *chain) {
  int out = graph->node[conv].out;
  *chain = (struct chain){.conv = conv, .norm = -1, .add = -1, .act = -1, .pool = -1};
  chain->act = only_reader_of_kind(graph, out, OP_ACTIVATION);
  if (chain->act >= 0) {
    if (graph->node[chain->act].desc.attr.activation.kind != ACTIVATION_RELU) return false;
    out = graph->node[chain->act].out;
  }
  chain->pool = only_reader_of_kind(graph, out, OP_MAXPOOL);
  return chain->pool >= 0;
}

static bool chain_find(const struct graph *graph, int conv, struct chain *chain) {
  if (graph->node[conv].desc.kind != OP_CONV2D) return false;
  return find_conv_bn(graph, conv, chain) || find_conv_pool(graph, conv, chain);
}

static int chain_last(const struct chain *chain) {
  if (chain->pool >= 0) return chain->pool;
  return chain->act >= 0 ? chain->act : chain->add >= 0 ? chain->add : chain->norm;
}

static void set_conv_bn(const struct graph *graph, const struct chain *chain, const int *value,
                        struct graph_node *out) {
  const struct graph_node *norm = &graph->node[chain->norm];
  out->desc.kind = OP_CONV_BN;
  if (chain->add >= 0) {
    const struct graph_node *add = &graph->node[chain->add];
    out->desc.in_count = 2;
    out->in[1] = value[add->in[1]];
    out->desc.in[1] = add->desc.in[1];
  }
  out->desc.attr.conv_bn = (struct conv_bn_attr){
      .conv = graph->node[chain->conv].desc.attr.conv2d,
      .batchnorm = norm->desc.attr.batchnorm,
      .activation = chain->act >= 0 ? graph->node[chain->act].desc.attr.activation.kind : ACTIVATION_NONE};
  out->param[1] = norm->param[0];
  out->param[2] = norm->param[1];
  memcpy(out->statistic, norm->statistic, sizeof out->statistic);
}

static void set_conv_pool(const struct graph *graph, const struct chain *chain, struct graph_node *out) {
  const struct graph_node *conv = &graph->node[chain->conv];
  out->desc.kind = OP_CONV_POOL;
  out->desc.attr.conv_pool =
      (struct conv_pool_attr){.conv = conv->desc.attr.conv2d,
                              .activation = chain->act >= 0 ? ACTIVATION_RELU : ACTIVATION_NONE,
                              .maxpool = graph->node[chain->pool].desc.attr.maxpool};
  out->param[1] = conv->param[1];
}

/* The fused node for a chain of the old graph; value[] maps old values to new ones. */
static enum status chain_node(const struct graph *graph, const struct chain *chain, const int *value,
                              struct graph_node *out) {
  const struct graph_node *conv = &graph->node[chain->conv];
  *out = (struct graph_node){.desc = {.training = true, .in_count = 1}};
  out->in[0] = value[conv->in[0]];
  out->desc.in[0] = conv->desc.in[0];
  out->param[0] = conv->param[0];
  if (chain->pool >= 0)
    set_conv_pool(graph, chain, out);
  else
    set_conv_bn(graph, chain, value, out);
  return op_infer(&out->desc, &out->signature);
}

enum status graph_fuse(struct graph *graph) {
  enum { KEEP = -1, DROP = -2 }; /* else the number of the chain that ends here */
  int count = graph->node_count, chain_count = 0;
  struct chain *chain = calloc((size_t)count + 1, sizeof *chain);
  int *role = calloc((size_t)count + 1, sizeof *role);
  int *value = calloc((size_t)count + 2, sizeof *value);
  struct graph_node *node = calloc(GRAPH_MAX_NODES, sizeof *node);
  enum status status = STATUS_OK;
  if (!chain || !role || !value || !node) {
    status = RAISE(STATUS_INPUT, "out of memory");
    goto out;
  }
  for (int i = 0; i < count; i++) role[i] = KEEP;
  for (int i = 0; i < count; i++) {
    struct chain *found = &chain[chain_count];
    if (!chain_find(graph, i, found)) continue;
    const int part[] = {found->conv, found->norm, found->add, found->act, found->pool};
    for (size_t p = 0; p < sizeof part / sizeof *part; p++)
      if (part[p] >= 0) role[part[p]] = DROP;
    role[chain_last(found)] = chain_count++;
  }
  int made = 0;
  for (int i = 0; i < count; i++) {
    if (role[i] == DROP) continue;
    struct graph_node *next = &node[made];
    if (role[i] >= 0) {
      TRY_OUT(chain_node(graph, &chain[role[i]], value, next));
    } else {
      *next = graph->node[i];
      for (int k = 0; k < next->desc.in_count; k++) next->in[k] = value[graph->node[i].in[k]];
    }
    next->out = ++made;
    value[graph->node[i].out] = next->out;
  }
  memcpy(graph->node, node, (size_t)made * sizeof *node);
  graph->node_count = made;
  graph->logits = value[graph->logits];
out:
  free(chain);
  free(role);
  free(value);
  free(node);
  return status;
}
