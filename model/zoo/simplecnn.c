/* SimpleCNN, the model of the usual data-parallel tutorial: one convolution, one pooling, one matrix. Its
 * linear layer has 32 x 15 x 15 inputs for 32 x 32 images. Initial values as PyTorch's Conv2d and Linear. */
#include "model/net/graph.h"

int simplecnn_build(struct graph *graph);

int simplecnn_build(struct graph *graph) {
  struct conv2d_attr conv = {
      .filters = 32, .kernel_h = 3, .kernel_w = 3, .stride = 1, .pad = 0, .bias = true};
  int x = graph_images(graph);
  x = graph_conv2d(graph, "conv1", x, conv, INIT_UNIFORM_FAN_IN);
  x = graph_activation(graph, ACTIVATION_RELU, x);
  x = graph_maxpool(graph, x, 2, 2);
  return graph_linear(graph, "fc", x, graph->classes);
}
