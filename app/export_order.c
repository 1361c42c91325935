/* The order of elements: Convoy's K,R,S,C and H,W,C, PyTorch's and ONNX' K,C,R,S and C,H,W; see export.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "app/export.h"

/* from[outer][rows][columns] to to[outer][columns][rows]. */
static void transpose(const float *from, int64_t outer, int64_t rows, int64_t columns, float *to) {
  for (int64_t o = 0; o < outer; o++)
    for (int64_t r = 0; r < rows; r++)
      for (int64_t c = 0; c < columns; c++)
        to[(o * columns + c) * rows + r] = from[(o * rows + r) * columns + c];
}

/* The weight of a node in either order: for each of its outputs, window x channels elements. */
static void weight_sizes(const struct graph_node *node, int64_t *outer, int64_t *window, int64_t *channels) {
  const struct tensor *in = &node->desc.in[0], *weight = &node->signature.param[0].tensor;
  *outer = weight->dim[0];
  *channels = in->dim[in->rank - 1];
  *window = tensor_count(weight) / (*outer * *channels);
}

static bool has_order(const struct graph_node *node) {
  return node->desc.kind == OP_CONV2D || node->desc.kind == OP_LINEAR;
}

static enum status transpose_all(const struct graph *graph, struct trained_arrays *arrays, bool back) {
  int64_t largest = 1, outer, window, channels;
  for (int i = 0; i < arrays->count; i++) {
    int64_t count = tensor_count(&arrays->item[i].tensor);
    if (count > largest) largest = count;
  }
  float *copy = malloc((size_t)largest * sizeof *copy);
  if (!copy) return RAISE(STATUS_INPUT, "no memory for an array of %" PRId64 " elements", largest);
  for (int i = 0; i < graph->node_count; i++) {
    struct checkpoint_item *weight = &arrays->item[arrays->first[i]];
    if (!has_order(&graph->node[i])) continue;
    weight_sizes(&graph->node[i], &outer, &window, &channels);
    memcpy(copy, weight->data, tensor_bytes(&weight->tensor));
    transpose(copy, outer, back ? channels : window, back ? window : channels, weight->data);
  }
  free(copy);
  return STATUS_OK;
}

/* Filters only: a matrix keeps its shape. */
static void set_shapes(const struct graph *graph, struct trained_arrays *arrays, bool back) {
  for (int i = 0; i < graph->node_count; i++) {
    if (graph->node[i].desc.kind != OP_CONV2D) continue;
    const int64_t *dim = graph->node[i].signature.param[0].tensor.dim;
    int64_t *out = arrays->item[arrays->first[i]].tensor.dim;
    out[1] = back ? dim[1] : dim[3];
    out[2] = back ? dim[2] : dim[1];
    out[3] = back ? dim[3] : dim[2];
  }
}

void export_shapes(const struct graph *graph, struct trained_arrays *arrays) {
  set_shapes(graph, arrays, false);
}

enum status export_reorder(const struct graph *graph, struct trained_arrays *arrays) {
  TRY(transpose_all(graph, arrays, false));
  set_shapes(graph, arrays, false);
  return STATUS_OK;
}

enum status export_restore(const struct graph *graph, struct trained_arrays *arrays) {
  TRY(transpose_all(graph, arrays, true));
  set_shapes(graph, arrays, true);
  return STATUS_OK;
}
