/* cuDNN's backend descriptors for one convolution; see cudnn_graph_cuda.h. */
#include "model/ops/cudnn_graph_cuda.h"

#include <stddef.h>
#include <stdlib.h>

enum { ID_X = 'x', ID_W = 'w', ID_Y = 'y', ALIGNMENT = 16 };

#define CHECK(call)                                                                                          \
  do {                                                                                                       \
    error = (call);                                                                                          \
    if (error != CUDNN_STATUS_SUCCESS) goto out;                                                             \
  } while (0)

void cudnn_graph_destroy(cudnnBackendDescriptor_t descriptor) {
  if (descriptor) cudnnBackendDestroyDescriptor(descriptor);
}

static cudnnStatus_t set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void *value) {
  return cudnnBackendSetAttribute(descriptor, name, type, count, value);
}

static cudnnStatus_t set_descriptor(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                    cudnnBackendDescriptor_t value) {
  return set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static cudnnDataType_t data_type(int32_t dtype) {
  return dtype == DTYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/* n,h,w,c in memory; cuDNN names dimensions in the order n,c,h,w. */
static cudnnStatus_t tensor_create(int64_t id, int32_t dtype, int64_t n, int64_t h, int64_t w, int64_t c,
                                   cudnnBackendDescriptor_t *tensor) {
  const int64_t dim[4] = {n, c, h, w}, stride[4] = {h * w * c, 1, w * c, c}, alignment = ALIGNMENT;
  const cudnnDataType_t type = data_type(dtype);
  cudnnStatus_t error;
  *tensor = NULL;
  CHECK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, tensor));
  CHECK(set(*tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id));
  CHECK(set(*tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
  CHECK(set(*tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim));
  CHECK(set(*tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride));
  CHECK(set(*tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment));
  CHECK(cudnnBackendFinalize(*tensor));
out:
  return error;
}

static cudnnStatus_t convolution_create(const struct conv_problem *p, cudnnBackendDescriptor_t *convolution) {
  const int64_t spatial = 2, pad[2] = {p->pad, p->pad}, stride[2] = {p->stride, p->stride},
                dilation[2] = {1, 1};
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  cudnnStatus_t error;
  *convolution = NULL;
  CHECK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, convolution));
  CHECK(set(*convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute));
  CHECK(set(*convolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
  CHECK(set(*convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial));
  CHECK(set(*convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad));
  CHECK(set(*convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad));
  CHECK(set(*convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride));
  CHECK(set(*convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation));
  CHECK(cudnnBackendFinalize(*convolution));
out:
  return error;
}

/* The attributes' names differ with the kind of convolution. */
struct operation_names {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t x, w, y, convolution, alpha, beta;
};

static const struct operation_names names[] = {
    [CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [CONV_BACKWARD_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [CONV_BACKWARD_FILTER] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static cudnnStatus_t operation_create(const struct conv_problem *p, cudnnBackendDescriptor_t convolution,
                                      cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t w,
                                      cudnnBackendDescriptor_t y, cudnnBackendDescriptor_t *operation) {
  const struct operation_names *name = &names[p->kind];
  const float alpha = 1, beta = p->add ? 1 : 0;
  cudnnStatus_t error;
  *operation = NULL;
  CHECK(cudnnBackendCreateDescriptor(name->type, operation));
  CHECK(set_descriptor(*operation, name->x, x));
  CHECK(set_descriptor(*operation, name->w, w));
  CHECK(set_descriptor(*operation, name->y, y));
  CHECK(set_descriptor(*operation, name->convolution, convolution));
  CHECK(set(*operation, name->alpha, CUDNN_TYPE_FLOAT, 1, &alpha));
  CHECK(set(*operation, name->beta, CUDNN_TYPE_FLOAT, 1, &beta));
  CHECK(cudnnBackendFinalize(*operation));
out:
  return error;
}

cudnnStatus_t cudnn_graph_create(cudnnHandle_t handle, const struct conv_problem *p,
                                 cudnnBackendDescriptor_t *graph) {
  cudnnBackendDescriptor_t x = NULL, w = NULL, y = NULL, convolution = NULL, operation = NULL;
  int32_t type[3] = {p->dtype, p->dtype, p->dtype}; /* of y, x, w: in the order of enum conv_kind */
  cudnnStatus_t error;
  type[p->kind] = p->result;
  *graph = NULL;
  CHECK(tensor_create(ID_X, type[CONV_BACKWARD_DATA], p->n, p->h, p->w, p->c, &x));
  CHECK(tensor_create(ID_W, type[CONV_BACKWARD_FILTER], p->filters, p->kernel_h, p->kernel_w, p->c, &w));
  CHECK(tensor_create(ID_Y, type[CONV_FORWARD], p->n, p->out_h, p->out_w, p->filters, &y));
  CHECK(convolution_create(p, &convolution));
  CHECK(operation_create(p, convolution, x, w, y, &operation));
  CHECK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, graph));
  CHECK(set(*graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
  CHECK(set_descriptor(*graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation));
  CHECK(cudnnBackendFinalize(*graph));
out:
  if (error != CUDNN_STATUS_SUCCESS) {
    cudnn_graph_destroy(*graph);
    *graph = NULL;
  }
  cudnn_graph_destroy(operation);
  cudnn_graph_destroy(convolution);
  cudnn_graph_destroy(y);
  cudnn_graph_destroy(w);
  cudnn_graph_destroy(x);
  return error;
}

int cudnn_graph_configs(cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode,
                        cudnnBackendDescriptor_t *config, int most) {
  cudnnBackendDescriptor_t heuristic = NULL;
  cudnnStatus_t error;
  int64_t count = 0, got = 0;
  int made = 0;
  CHECK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic));
  CHECK(set_descriptor(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph));
  CHECK(set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
  CHECK(cudnnBackendFinalize(heuristic));
  CHECK(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                 &count, NULL));
  for (; made < most && made < count; made++)
    CHECK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[made]));
  CHECK(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 made, &got, config));
out:
  cudnn_graph_destroy(heuristic);
  if (error != CUDNN_STATUS_SUCCESS) got = 0;
  while (made > got) cudnn_graph_destroy(config[--made]);
  return made;
}

/* An attribute of a configuration's engine, `most` values of it at most; returns how many, -1 if it cannot be
 * read. */
static int engine_notes(cudnnBackendDescriptor_t config, cudnnBackendAttributeName_t name,
                        cudnnBackendAttributeType_t type, int64_t most, void *note) {
  cudnnBackendDescriptor_t engine = NULL;
  cudnnStatus_t error;
  int64_t got = 0;
  CHECK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
  CHECK(cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got,
                                 &engine));
  CHECK(cudnnBackendGetAttribute(engine, name, type, most, &got, note));
out:
  cudnn_graph_destroy(engine);
  return error == CUDNN_STATUS_SUCCESS ? (int)got : -1;
}

int cudnn_graph_notes(cudnnBackendDescriptor_t config,
                      cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT]) {
  return engine_notes(config, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                      CUDNN_NUMERICAL_NOTE_TYPE_COUNT, note);
}

bool cudnn_graph_compiles(cudnnBackendDescriptor_t config) {
  cudnnBackendBehaviorNote_t note[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
  int count = engine_notes(config, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                           CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, note);
  for (int i = 0; i < count; i++)
    if (note[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) return true;
  return false;
}

cudnnBackendDescriptor_t cudnn_graph_plan(cudnnHandle_t handle, cudnnBackendDescriptor_t config,
                                          int64_t *workspace) {
  cudnnBackendDescriptor_t plan = NULL;
  cudnnStatus_t error;
  int64_t got = 0;
  CHECK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan));
  CHECK(set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
  CHECK(set_descriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config));
  CHECK(cudnnBackendFinalize(plan));
  CHECK(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &got,
                                 workspace));
out:
  if (error != CUDNN_STATUS_SUCCESS) {
    cudnn_graph_destroy(plan);
    plan = NULL;
  }
  return plan;
}

void cudnn_graph_plan_text(cudnnBackendDescriptor_t plan, char **text, size_t *count) {
  int64_t length = 0, got = 0;
  cudnnStatus_t error;
  char *made = NULL;
  *text = NULL;
  CHECK(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0,
                                 &length, NULL));
  made = length > 0 ? malloc((size_t)length) : NULL;
  if (!made) return;
  CHECK(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, length,
                                 &got, made));
  *count = (size_t)(got < length ? got : length);
  *text = made;
  made = NULL;
out:
  free(made);
}

cudnnBackendDescriptor_t cudnn_graph_plan_of_text(cudnnHandle_t handle, const char *text, size_t count,
                                                  int64_t *workspace) {
  cudnnBackendDescriptor_t plan = NULL;
  cudnnStatus_t error;
  int64_t got = 0;
  CHECK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan));
  CHECK(set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
  CHECK(set(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)count, text));
  CHECK(cudnnBackendFinalize(plan));
  CHECK(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &got,
                                 workspace));
out:
  if (error != CUDNN_STATUS_SUCCESS) {
    cudnn_graph_destroy(plan);
    plan = NULL;
  }
  return plan;
}

cudnnStatus_t cudnn_graph_execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, void *x, void *w,
                                  void *y, void *workspace) {
  const int64_t id[3] = {ID_X, ID_W, ID_Y};
  void *data[3] = {x, w, y};
  cudnnBackendDescriptor_t pack = NULL;
  cudnnStatus_t error;
  CHECK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
  CHECK(set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, id));
  CHECK(set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, data));
  CHECK(set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
  CHECK(cudnnBackendFinalize(pack));
  CHECK(cudnnBackendExecute(handle, plan, pack));
out:
  cudnn_graph_destroy(pack);
  return error;
}
