/* Frozen parameters and low-rank adapters; see adapt.h. */
#include "model/net/adapt.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/nearest.h"

static const char suffix[] = ".weight", suffix_a[] = ".lora_A.weight", suffix_b[] = ".lora_B.weight";

/* ---- names ---- */

/* The layer's name of a parameter's: its length. */
static int layer_length(const char *parameter) {
  const char *dot = strrchr(parameter, '.');
  return dot ? (int)(dot - parameter) : (int)strlen(parameter);
}

static bool ends_with(const char *name, const char *end) {
  size_t length = strlen(name), tail = strlen(end);
  return length > tail && strcmp(name + length - tail, end) == 0;
}

bool adapter_has_name(const char *name) {
  return ends_with(name, suffix_a) || ends_with(name, suffix_b);
}

bool adapter_names(const char *weight, char a[GRAPH_NAME], char b[GRAPH_NAME]) {
  if (!ends_with(weight, suffix) || adapter_has_name(weight)) return false;
  snprintf(a, GRAPH_NAME, "%.*s%s", layer_length(weight), weight, suffix_a);
  snprintf(b, GRAPH_NAME, "%.*s%s", layer_length(weight), weight, suffix_b);
  return true;
}

/* ---- freezing ---- */

/* A batchnorm without anything to train becomes a constant. */
static enum status settle_statistics(struct graph *graph) {
  for (int i = 0; i < graph->node_count; i++) {
    struct graph_node *node = &graph->node[i];
    if (node->desc.kind != OP_BATCHNORM) continue;
    node->desc.attr.batchnorm.running = node->param[0].frozen && node->param[1].frozen;
    TRY(op_infer(&node->desc, &node->signature));
  }
  return STATUS_OK;
}

/* Parameters' names, each cut to as many parts as a pattern has: what it is compared with for the nearest. */
struct name_list {
  int count;
  char (*cut)[GRAPH_NAME];
  const char **whole;
};

static const char *cut_name(const void *list, int index) {
  return ((const struct name_list *)list)->cut[index];
}

static void cut_to(const char *name, int dots, char out[GRAPH_NAME]) {
  snprintf(out, GRAPH_NAME, "%s", name);
  for (char *at = out; *at; at++)
    if (*at == '.' && dots-- == 0) {
      *at = '\0';
      return;
    }
}

static enum status refuse_pattern(const struct graph *graph, const char *pattern) {
  struct name_list list = {0};
  enum status status = STATUS_INPUT;
  size_t most = (size_t)graph->node_count * OP_MAX_PARAM + 1;
  int dots = 0;
  for (const char *at = pattern; *at; at++) dots += *at == '.';
  list.cut = calloc(most, sizeof *list.cut);
  list.whole = calloc(most, sizeof *list.whole);
  if (!list.cut || !list.whole) TRY_OUT(RAISE(STATUS_INPUT, "out of memory"));
  for (int i = 0; i < graph->node_count; i++)
    for (int p = 0; p < graph->node[i].signature.param_count; p++) {
      list.whole[list.count] = graph->node[i].param[p].name;
      cut_to(list.whole[list.count], dots, list.cut[list.count]);
      list.count++;
    }
  int near = nearest_name(pattern, &list, list.count, cut_name);
  status = RAISE(STATUS_INPUT, "no parameter's name matches '%s'; the nearest is '%s'", pattern,
                 near >= 0 ? list.whole[near] : "none");
out:
  free(list.cut);
  free((void *)list.whole);
  return status;
}

static enum status freeze_pattern(struct graph *graph, const char *pattern) {
  int matches = 0;
  for (int i = 0; i < graph->node_count; i++)
    for (int p = 0; p < graph->node[i].signature.param_count; p++) {
      struct graph_param *param = &graph->node[i].param[p];
      if (fnmatch(pattern, param->name, 0) != 0) continue;
      param->frozen = true;
      matches++;
    }
  return matches > 0 ? STATUS_OK : refuse_pattern(graph, pattern);
}

enum status graph_freeze(struct graph *graph, const char *patterns) {
  enum status status = STATUS_OK;
  char *list = strdup(patterns), *rest = list;
  if (!list) return RAISE(STATUS_INPUT, "out of memory");
  for (char *pattern; (pattern = strsep(&rest, ","));) TRY_OUT(freeze_pattern(graph, pattern));
  if (graph_trained_count(graph) == 0)
    TRY_OUT(RAISE(STATUS_INPUT, "'%s' freezes all parameters; leave some to train", patterns));
  TRY_OUT(settle_statistics(graph));
out:
  free(list);
  return status;
}

/* ---- adapters ---- */

/* Appends a node of another graph, which reads the values that value[] maps its own to. */
static int copy_node(struct graph *to, const struct graph_node *node, const int *value) {
  if (to->status != STATUS_OK) return 0;
  if (to->node_count == GRAPH_MAX_NODES) {
    to->status = RAISE(STATUS_INPUT, "a model with adapters may have at most %d operations", GRAPH_MAX_NODES);
    return 0;
  }
  struct graph_node *copy = &to->node[to->node_count];
  *copy = *node;
  for (int k = 0; k < node->desc.in_count; k++) copy->in[k] = value[node->in[k]];
  copy->out = ++to->node_count;
  return copy->out;
}

/* Appends the adapter of a layer that reads `in` and makes `out`; returns their sum. */
static int append_adapter(struct graph *to, const struct graph_node *node, int in, int out, int rank,
                          float alpha) {
  char name_a[GRAPH_NAME], name_b[GRAPH_NAME];
  int length = layer_length(node->param[0].name), narrow, wide;
  snprintf(name_a, sizeof name_a, "%.*s.lora_A", length, node->param[0].name);
  snprintf(name_b, sizeof name_b, "%.*s.lora_B", length, node->param[0].name);
  if (node->desc.kind == OP_CONV2D) {
    struct conv2d_attr window = node->desc.attr.conv2d;
    struct conv2d_attr point = {.filters = window.filters, .kernel_h = 1, .kernel_w = 1, .stride = 1};
    window.filters = rank;
    window.bias = false;
    narrow = graph_conv2d(to, name_a, in, window, INIT_UNIFORM_FAN_IN);
    wide = graph_conv2d(to, name_b, narrow, point, INIT_ZERO);
  } else {
    narrow = graph_matrix(to, name_a, in, rank, INIT_UNIFORM_FAN_IN);
    wide = graph_matrix(to, name_b, narrow, node->desc.attr.linear.outputs, INIT_ZERO);
  }
  return graph_add_scaled(to, out, wide, alpha / (float)rank);
}

static bool is_adapted(const struct graph *graph, const struct graph_node *node) {
  enum op_kind kind = node->desc.kind;
  return node->out != graph->logits && (kind == OP_CONV2D || kind == OP_LINEAR);
}

/* The graph with its adapters, into an empty one; value[] is room for its values' numbers there. */
static int append_all(const struct graph *graph, int rank, float alpha, int *value, struct graph *to) {
  int adapters = 0;
  for (int i = 0; i < graph->node_count; i++) {
    const struct graph_node *node = &graph->node[i];
    int out = copy_node(to, node, value);
    if (to->status != STATUS_OK) return 0;
    for (int p = 0; p < node->signature.param_count; p++)
      to->node[out - 1].param[p].frozen = node->out != graph->logits;
    value[node->out] = out;
    if (!is_adapted(graph, node)) continue;
    value[node->out] = append_adapter(to, node, value[node->in[0]], out, rank, alpha);
    adapters++;
  }
  return adapters;
}

enum status graph_adapt(struct graph *graph, int rank, float alpha) {
  struct graph *to = NULL;
  enum status status = STATUS_OK;
  if (rank < 1) return RAISE(STATUS_INPUT, "an adapter's rank is %d; expected at least 1", rank);
  int *value = calloc((size_t)graph->node_count + 1, sizeof *value);
  if (!value) return RAISE(STATUS_INPUT, "out of memory");
  TRY_OUT(graph_create(graph->height, graph->width, graph->channels, graph->classes, &to));
  int adapters = append_all(graph, rank, alpha, value, to);
  TRY_OUT(graph_finish(to, value[graph->logits]));
  if (adapters == 0)
    TRY_OUT(RAISE(STATUS_INPUT, "this model has no layer for adapters but the one that gives the logits"));
  TRY_OUT(settle_statistics(to));
  struct graph made = *to;
  *to = *graph;
  *graph = made;
out:
  graph_destroy(to);
  free(value);
  return status;
}

/* ---- merging ---- */

void adapter_shapes(const struct tensor *weight, int rank, struct tensor *a, struct tensor *b) {
  *a = *b = *weight;
  a->dim[0] = rank;
  for (int d = 1; d < weight->rank; d++) b->dim[d] = 1;
  b->dim[weight->rank - 1] = rank;
}

void adapter_merge(const struct tensor *shape, int rank, float scale, const float *a, const float *b,
                   float *weight) {
  int64_t filters = shape->dim[0], taps = tensor_count(shape) / filters;
  for (int64_t k = 0; k < filters; k++)
    for (int64_t t = 0; t < taps; t++) {
      double sum = 0;
      for (int r = 0; r < rank; r++) sum += (double)b[k * rank + r] * (double)a[r * taps + t];
      weight[k * taps + t] += (float)((double)scale * sum);
    }
}
