/* Residual networks; see resnet.h. */
#include "model/zoo/resnet.h"

#include <stdio.h>

static int conv_norm(struct graph *graph, const char *conv, const char *norm, int in, int filters, int kernel,
                     int stride) {
  struct conv2d_attr attr = {
      .filters = filters, .kernel_h = kernel, .kernel_w = kernel, .stride = stride, .pad = kernel / 2};
  return graph_batchnorm(graph, norm, graph_conv2d(graph, conv, in, attr, INIT_KAIMING_NORMAL));
}

/* A convolution and a batchnorm of block `prefix`: names "prefix.conv", "prefix.norm". */
static int block_part(struct graph *graph, const char *prefix, const char *conv, const char *norm, int in,
                      int filters, int kernel, int stride) {
  char conv_name[GRAPH_NAME], norm_name[GRAPH_NAME];
  snprintf(conv_name, sizeof conv_name, "%s.%s", prefix, conv);
  snprintf(norm_name, sizeof norm_name, "%s.%s", prefix, norm);
  return conv_norm(graph, conv_name, norm_name, in, filters, kernel, stride);
}

static int basic_block(struct graph *graph, const char *prefix, int in, int filters, int stride) {
  int shortcut = in;
  if (stride != 1 || graph_value(graph, in).dim[3] != filters)
    shortcut = block_part(graph, prefix, "downsample.0", "downsample.1", in, filters, 1, stride);
  int x = block_part(graph, prefix, "conv1", "bn1", in, filters, 3, stride);
  x = graph_activation(graph, ACTIVATION_RELU, x);
  x = block_part(graph, prefix, "conv2", "bn2", x, filters, 3, 1);
  return graph_activation(graph, ACTIVATION_RELU, graph_add(graph, x, shortcut));
}

int resnet_build(struct graph *graph, int stages, const int *width, int blocks) {
  int x = conv_norm(graph, "conv1", "bn1", graph_images(graph), width[0], 3, 1);
  x = graph_activation(graph, ACTIVATION_RELU, x);
  for (int stage = 0; stage < stages; stage++)
    for (int block = 0; block < blocks; block++) {
      char prefix[32];
      snprintf(prefix, sizeof prefix, "layer%d.%d", stage + 1, block);
      x = basic_block(graph, prefix, x, width[stage], stage > 0 && block == 0 ? 2 : 1);
    }
  return graph_linear(graph, "fc", graph_avgpool(graph, x), graph->classes);
}
