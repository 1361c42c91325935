/* A model as a list of operations on values, built by the files in model/zoo. No memory, no batch size. */
#ifndef CONVOY_MODEL_NET_GRAPH_H
#define CONVOY_MODEL_NET_GRAPH_H

#include "model/base/error.h"
#include "model/ops/op.h"

enum { GRAPH_NAME = 96, GRAPH_MAX_NODES = 512 };

/* How a parameter starts. */
enum init_kind {
  INIT_ZERO,
  INIT_ONE,
  INIT_KAIMING_NORMAL, /* N(0, 2 / fan_out), fan_out = K R S (He et al., 2015; torchvision's ResNets) */
  INIT_UNIFORM_FAN_IN, /* U(-1/sqrt(fan_in), 1/sqrt(fan_in)) (PyTorch's default of Conv2d and Linear) */
};

struct graph_param {
  char name[GRAPH_NAME]; /* as torchvision names it: "layer1.0.conv1.weight" */
  enum init_kind init;
  int fan;     /* fan_in or fan_out, as init needs */
  bool frozen; /* not trained: no gradient, no update, no decay */
};

struct graph_node {
  struct op_desc desc; /* shapes for a batch of 1, training */
  struct op_signature signature;
  int in[OP_MAX_IN]; /* value ids */
  int out;           /* value id: node i makes value i + 1; value 0 is the images */
  struct graph_param param[OP_MAX_PARAM];
  char statistic[OP_MAX_STATISTIC][GRAPH_NAME]; /* "bn1.running_mean", "bn1.running_var" */
};

/* Builders record the first error and do nothing after it; graph_finish reports it. So a model file reads as
 * the model. Every builder returns the id of the value it makes. */
struct graph {
  int height, width, channels, classes;
  int node_count;
  struct graph_node *node; /* owned */
  int logits;              /* value id given to graph_finish */
  enum status status;      /* of the builders so far; the record is error.h's */
};

enum status graph_create(int height, int width, int channels, int classes, struct graph **graph);
void graph_destroy(struct graph *graph);

int graph_images(struct graph *graph); /* the input value */
int graph_conv2d(struct graph *graph, const char *name, int in, struct conv2d_attr attr, enum init_kind init);
int graph_batchnorm(struct graph *graph, const char *name, int in); /* epsilon 1e-5, weight 1, bias 0 */
int graph_activation(struct graph *graph, enum activation kind, int in);
int graph_add(struct graph *graph, int a, int b);
int graph_add_scaled(struct graph *graph, int a, int b, float scale); /* a + scale b */
int graph_maxpool(struct graph *graph, int in, int kernel, int stride);
int graph_avgpool(struct graph *graph, int in); /* over all of H and W: N,1,1,C */
int graph_linear(struct graph *graph, const char *name, int in, int outputs);
/* The same without a bias. */
int graph_matrix(struct graph *graph, const char *name, int in, int outputs, enum init_kind init);

/* Ends building: `logits` (N, classes) is the model's output. */
enum status graph_finish(struct graph *graph, int logits);

/* Replaces each convolution + batchnorm [+ add] [+ activation] whose inner values have no other reader by one
 * conv_bn node, and each convolution [+ relu] + maxpool by one conv_pool node. Parameter names and values'
 * meaning do not change. */
enum status graph_fuse(struct graph *graph);

/* The shape of a value for a batch of 1, fp32. */
struct tensor graph_value(const struct graph *graph, int value);

/* Parameters, in elements: all, and those that are trained. */
int64_t graph_parameter_count(const struct graph *graph);
int64_t graph_trained_count(const struct graph *graph);

#endif
