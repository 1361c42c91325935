/* A convolution as cuDNN's backend API (cudnn_graph.h, from C) wants it told: descriptors made, filled in,
 * finalized, and asked. Knows nothing of choice; see cudnn_plan_cuda.c. */
#ifndef CONVOY_MODEL_OPS_CUDNN_GRAPH_CUDA_H
#define CONVOY_MODEL_OPS_CUDNN_GRAPH_CUDA_H

#include <cudnn.h>

#include "model/ops/cudnn_plan_cuda.h"

/* The operation graph of one convolution. The status categories 2xxx and 3xxx mean that cuDNN refuses the
 * problem. */
cudnnStatus_t cudnn_graph_create(cudnnHandle_t handle, const struct conv_problem *problem,
                                 cudnnBackendDescriptor_t *graph);

/* Fills config[0..most) with engine configurations that this heuristic proposes, best first, and returns how
 * many; each is the caller's. 0 also if the heuristic has nothing to say. */
int cudnn_graph_configs(cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode,
                        cudnnBackendDescriptor_t *config, int most);

/* Numerical notes of a configuration's engine; returns how many, -1 if they cannot be read. */
int cudnn_graph_notes(cudnnBackendDescriptor_t config,
                      cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT]);

/* Whether the configuration's engine is compiled when a plan is made of it: 0.03 s, and some 0.1 s the first
 * time on a machine. */
bool cudnn_graph_compiles(cudnnBackendDescriptor_t config);

/* The executable plan of a configuration and its workspace in bytes; NULL if cuDNN refuses it. */
cudnnBackendDescriptor_t cudnn_graph_plan(cudnnHandle_t handle, cudnnBackendDescriptor_t config,
                                          int64_t *workspace);

/* A plan as text that makes an equal plan again, with the same cuDNN on the same kind of device. *text is the
 * caller's. NULL: cuDNN has no text for this plan. */
void cudnn_graph_plan_text(cudnnBackendDescriptor_t plan, char **text, size_t *count);
/* NULL if cuDNN refuses the text. */
cudnnBackendDescriptor_t cudnn_graph_plan_of_text(cudnnHandle_t handle, const char *text, size_t count,
                                                  int64_t *workspace);

cudnnStatus_t cudnn_graph_execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, void *x, void *w,
                                  void *y, void *workspace);

void cudnn_graph_destroy(cudnnBackendDescriptor_t descriptor); /* NULL: nothing */

#endif
