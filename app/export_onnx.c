/* A model as ONNX (onnx.proto of ONNX 1.12: IR version 8, opset 17): each node of the graph becomes the
 * operator of the same meaning, on N,C,H,W. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/durable.h"
#include "app/export.h"
#include "app/export_protobuf.h"

enum { IR_VERSION = 8, OPSET = 17 };
/* Field numbers of onnx.proto. */
enum {
  MODEL_IR_VERSION = 1,
  MODEL_PRODUCER = 2,
  MODEL_PRODUCER_VERSION = 3,
  MODEL_DOC = 6,
  MODEL_GRAPH = 7,
  MODEL_OPSET = 8,
  MODEL_METADATA = 14,
  METADATA_KEY = 1,
  METADATA_VALUE = 2,
  OPSET_VERSION = 2,
  GRAPH_NODE = 1,
  GRAPH_TITLE = 2,
  GRAPH_INITIALIZER = 5,
  GRAPH_INPUT = 11,
  GRAPH_OUTPUT = 12,
  NODE_INPUT = 1,
  NODE_OUTPUT = 2,
  NODE_NAME = 3,
  NODE_OPERATOR = 4,
  NODE_ATTRIBUTE = 5,
  ATTRIBUTE_NAME = 1,
  ATTRIBUTE_FLOAT = 2,
  ATTRIBUTE_INTEGER = 3,
  ATTRIBUTE_INTEGERS = 8,
  ATTRIBUTE_TYPE = 20,
  TENSOR_DIM = 1,
  TENSOR_TYPE = 2,
  TENSOR_NAME = 8,
  TENSOR_RAW = 9,
  VALUE_NAME = 1,
  VALUE_TYPE = 2,
  TYPE_TENSOR = 1,
  TYPE_ELEMENT = 1,
  TYPE_SHAPE = 2,
  SHAPE_DIM = 1,
  DIM_VALUE = 1,
  DIM_NAME = 2,
};
enum { ELEMENT_FLOAT = 1 };
enum { KIND_FLOAT = 1, KIND_INTEGER = 2, KIND_INTEGERS = 7 };
#define BATCH "batch"

struct writer {
  const struct trained *trained;
  const struct trained_arrays *arrays;
  struct protobuf graph;
};

enum { NAME = GRAPH_NAME + 32 };

/* ---- pieces ---- */

static void attribute_begin(struct protobuf *attribute, const char *name, int kind) {
  *attribute = (struct protobuf){0};
  protobuf_text(attribute, ATTRIBUTE_NAME, name);
  protobuf_integer(attribute, ATTRIBUTE_TYPE, kind);
}

static void add_integer(struct protobuf *node, const char *name, int64_t value) {
  struct protobuf attribute;
  attribute_begin(&attribute, name, KIND_INTEGER);
  protobuf_integer(&attribute, ATTRIBUTE_INTEGER, value);
  protobuf_message(node, NODE_ATTRIBUTE, &attribute);
}

static void add_float(struct protobuf *node, const char *name, float value) {
  struct protobuf attribute;
  attribute_begin(&attribute, name, KIND_FLOAT);
  protobuf_float(&attribute, ATTRIBUTE_FLOAT, value);
  protobuf_message(node, NODE_ATTRIBUTE, &attribute);
}

static void add_integers(struct protobuf *node, const char *name, int count, const int64_t *values) {
  struct protobuf attribute;
  attribute_begin(&attribute, name, KIND_INTEGERS);
  for (int i = 0; i < count; i++) protobuf_integer(&attribute, ATTRIBUTE_INTEGERS, values[i]);
  protobuf_message(node, NODE_ATTRIBUTE, &attribute);
}

static void add_array(struct writer *writer, const char *name, int rank, const int64_t *dim,
                      const float *data) {
  struct protobuf tensor = {0};
  size_t count = 1;
  for (int d = 0; d < rank; d++) {
    protobuf_integer(&tensor, TENSOR_DIM, dim[d]);
    count *= (size_t)dim[d];
  }
  protobuf_integer(&tensor, TENSOR_TYPE, ELEMENT_FLOAT);
  protobuf_text(&tensor, TENSOR_NAME, name);
  protobuf_bytes(&tensor, TENSOR_RAW, data, count * sizeof(float));
  protobuf_message(&writer->graph, GRAPH_INITIALIZER, &tensor);
}

/* An input or output of the whole graph: float32, the batch free. */
static void add_value(struct writer *writer, int field, const char *name, int rank, const int64_t *dim) {
  struct protobuf shape = {0}, tensor = {0}, type = {0}, value = {0};
  for (int d = -1; d < rank; d++) {
    struct protobuf one = {0};
    if (d < 0)
      protobuf_text(&one, DIM_NAME, BATCH);
    else
      protobuf_integer(&one, DIM_VALUE, dim[d]);
    protobuf_message(&shape, SHAPE_DIM, &one);
  }
  protobuf_integer(&tensor, TYPE_ELEMENT, ELEMENT_FLOAT);
  protobuf_message(&tensor, TYPE_SHAPE, &shape);
  protobuf_message(&type, TYPE_TENSOR, &tensor);
  protobuf_text(&value, VALUE_NAME, name);
  protobuf_message(&value, VALUE_TYPE, &type);
  protobuf_message(&writer->graph, field, &value);
}

/* A node but for its attributes; `in` ends with NULL. Its name is its output's. */
static void node_begin(struct protobuf *node, const char *operator, const char * const * in,
                       const char *out) {
  *node = (struct protobuf){0};
  for (; *in; in++) protobuf_text(node, NODE_INPUT, *in);
  protobuf_text(node, NODE_OUTPUT, out);
  protobuf_text(node, NODE_NAME, out);
  protobuf_text(node, NODE_OPERATOR, operator);
}

/* ---- the graph ---- */

/* What a value is called: a layer's name where the node has one ("layer1.0.conv1"), else kind and number. */
static const char *value_name(const struct graph *graph, int value, char name[NAME]) {
  if (value == 0) return "normalised";
  if (value == graph->logits) return "logits";
  const struct graph_node *node = &graph->node[value - 1];
  const char *parameter = node->param[0].name, *dot = strrchr(parameter, '.');
  if (dot)
    snprintf(name, NAME, "%.*s", (int)(dot - parameter), parameter);
  else
    snprintf(name, NAME, "%s_%d", op_name(node->desc.kind), value);
  return name;
}

static void convolution(struct protobuf *node, const struct conv2d_attr *attr) {
  int64_t pad = attr->pad, stride = attr->stride;
  add_integers(node, "kernel_shape", 2, (int64_t[]){attr->kernel_h, attr->kernel_w});
  add_integers(node, "strides", 2, (int64_t[]){stride, stride});
  add_integers(node, "pads", 4, (int64_t[]){pad, pad, pad, pad});
}

static void pooling(struct protobuf *node, const struct maxpool_attr *attr) {
  int64_t kernel = attr->kernel, stride = attr->stride;
  add_integers(node, "kernel_shape", 2, (int64_t[]){kernel, kernel});
  add_integers(node, "strides", 2, (int64_t[]){stride, stride});
}

/* A matrix reads rows: Flatten makes N,C,H,W into N rows of C,H,W order. */
static void flatten(struct writer *writer, const char **in, char name[NAME]) {
  struct protobuf node;
  snprintf(name, NAME, "%.100s.rows", *in);
  node_begin(&node, "Flatten", (const char *const[]){*in, NULL}, name);
  add_integer(&node, "axis", 1);
  protobuf_message(&writer->graph, GRAPH_NODE, &node);
  *in = name;
}

static const char *operator_of(const struct graph_node *node) {
  switch (node->desc.kind) {
  case OP_CONV2D:
    return "Conv";
  case OP_BATCHNORM:
    return "BatchNormalization";
  case OP_ACTIVATION:
    return node->desc.attr.activation.kind == ACTIVATION_RELU ? "Relu" : NULL;
  case OP_ADD:
    return "Add";
  case OP_MAXPOOL:
    return "MaxPool";
  case OP_AVGPOOL:
    return "GlobalAveragePool";
  case OP_LINEAR:
    return "Gemm";
  case OP_SOFTMAX_XENT:
  case OP_CONV_BN:
  case OP_CONV_POOL:
  case OP_COUNT:
    break;
  }
  return NULL;
}

static void add_attributes(struct protobuf *to, const struct op_desc *desc) {
  if (desc->kind == OP_CONV2D) convolution(to, &desc->attr.conv2d);
  if (desc->kind == OP_MAXPOOL) pooling(to, &desc->attr.maxpool);
  if (desc->kind == OP_BATCHNORM) add_float(to, "epsilon", desc->attr.batchnorm.epsilon);
  if (desc->kind == OP_LINEAR) add_integer(to, "transB", 1);
}

static enum status add_node(struct writer *writer, int index) {
  const struct graph *graph = writer->trained->graph;
  const struct graph_node *node = &graph->node[index];
  char name[OP_MAX_IN][NAME], out[NAME], rows[NAME];
  const char *in[OP_MAX_IN + OP_MAX_PARAM + OP_MAX_STATISTIC + 1] = {NULL}, *operator= operator_of(node);
  int count = 0;
  if (!operator)
    return RAISE(STATUS_INPUT, "ONNX export knows no operator for %s %s of model %s",
                 op_name(node->desc.kind),
                 node->desc.kind == OP_ACTIVATION ? activation_name(node->desc.attr.activation.kind) : "",
                 writer->trained->model);
  for (; count < node->desc.in_count; count++) in[count] = value_name(graph, node->in[count], name[count]);
  if (node->desc.kind == OP_LINEAR && node->desc.in[0].rank == 4) flatten(writer, &in[0], rows);
  for (int i = writer->arrays->first[index]; i < writer->arrays->first[index + 1]; i++) {
    const struct checkpoint_item *item = &writer->arrays->item[i];
    add_array(writer, item->name, item->tensor.rank, item->tensor.dim, item->data);
    in[count++] = item->name;
  }
  struct protobuf message;
  node_begin(&message, operator, in, value_name(graph, node->out, out));
  add_attributes(&message, &node->desc);
  protobuf_message(&writer->graph, GRAPH_NODE, &message);
  return STATUS_OK;
}

/* (images - mean) / std */
static void add_normalisation(struct writer *writer) {
  const struct trained *trained = writer->trained;
  const int64_t dim[3] = {trained->graph->channels, 1, 1};
  struct protobuf node;
  add_array(writer, "mean", 3, dim, trained->mean);
  add_array(writer, "std", 3, dim, trained->std);
  node_begin(&node, "Sub", (const char *const[]){"images", "mean", NULL}, "centred");
  protobuf_message(&writer->graph, GRAPH_NODE, &node);
  node_begin(&node, "Div", (const char *const[]){"centred", "std", NULL}, "normalised");
  protobuf_message(&writer->graph, GRAPH_NODE, &node);
}

static void add_metadata(struct protobuf *model, const char *key, const char *value) {
  struct protobuf entry = {0};
  protobuf_text(&entry, METADATA_KEY, key);
  protobuf_text(&entry, METADATA_VALUE, value);
  protobuf_message(model, MODEL_METADATA, &entry);
}

static enum status add_all_metadata(struct protobuf *model, const struct trained *trained) {
  char step[32], *classes = export_class_list(trained);
  if (!classes) return RAISE(STATUS_INPUT, "no memory for the names of the classes");
  snprintf(step, sizeof step, "%" PRId64, checkpoint_progress(trained->checkpoint)->step);
  add_metadata(model, "classes", classes);
  add_metadata(model, "model", trained->model);
  add_metadata(model, "image", checkpoint_option(trained->checkpoint, "image"));
  add_metadata(model, "mean", checkpoint_option(trained->checkpoint, "mean"));
  add_metadata(model, "std", checkpoint_option(trained->checkpoint, "std"));
  add_metadata(model, "step", step);
  free(classes);
  return STATUS_OK;
}

static enum status write_graph(struct writer *writer) {
  const struct graph *graph = writer->trained->graph;
  protobuf_text(&writer->graph, GRAPH_TITLE, writer->trained->model);
  add_value(writer, GRAPH_INPUT, "images", 3, (int64_t[]){graph->channels, graph->height, graph->width});
  add_value(writer, GRAPH_OUTPUT, "logits", 1, (int64_t[]){graph->classes});
  add_normalisation(writer);
  for (int i = 0; i < graph->node_count; i++) TRY(add_node(writer, i));
  return STATUS_OK;
}

/* MODEL_PRODUCER, which stands second */
const struct output_kind export_onnx_kind = {"ONNX file of convoy export", "\x12\x06"
                                                                           "convoy"};

enum status export_onnx(const struct trained *trained, const struct trained_arrays *arrays,
                        const char *path) {
  struct writer writer = {.trained = trained, .arrays = arrays};
  struct protobuf model = {0}, opset = {0};
  enum status status;
  TRY_OUT(write_graph(&writer));
  protobuf_integer(&model, MODEL_IR_VERSION, IR_VERSION);
  protobuf_text(&model, MODEL_PRODUCER, "convoy");
  protobuf_text(&model, MODEL_PRODUCER_VERSION, CONVOY_VERSION);
  protobuf_text(&model, MODEL_DOC, "images: N,C,H,W, pixels scaled to 0..1");
  protobuf_message(&model, MODEL_GRAPH, &writer.graph);
  protobuf_integer(&opset, OPSET_VERSION, OPSET);
  protobuf_message(&model, MODEL_OPSET, &opset);
  TRY_OUT(add_all_metadata(&model, trained));
  if (model.failed) TRY_OUT(RAISE(STATUS_INPUT, "no memory for %s", path));
  if (model.bytes > INT32_MAX)
    TRY_OUT(
        RAISE(STATUS_INPUT, "the model takes %zu bytes; ONNX files have at most %d", model.bytes, INT32_MAX));
  TRY_OUT(durable_write(path, &(struct durable_part){model.data, model.bytes}, 1));
out:
  protobuf_destroy(&writer.graph);
  protobuf_destroy(&model);
  return status;
}
