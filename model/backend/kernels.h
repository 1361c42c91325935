/* The CUDA backend's own kernels around the ops: gather, update and what keeps a step going. C functions that
 * only enqueue on `stream`; each returns a cudaError_t as int, 0 for success. */
#ifndef CONVOY_MODEL_BACKEND_KERNELS_H
#define CONVOY_MODEL_BACKEND_KERNELS_H

#include "model/backend/backend.h"

struct CUstream_st; /* cudaStream_t is a pointer to it */

/* 0 if this binary holds code that the current device can run. */
int kernel_probe(void);

int kernel_step_begin(struct CUstream_st *stream, struct step_control *control, const struct step_row *rows,
                      const int32_t *stop, float *metrics);

/* batch (count,H,W,C) of dtype fp32 or bf16, labels (count). */
int kernel_gather(struct CUstream_st *stream, enum dtype dtype, const struct gather_desc *desc,
                  const struct step_control *control, const struct sample *list, void *batch,
                  int32_t *labels);

/* low: bf16 (parameter_count) or NULL; slot0, slot1 as the optimizer needs. One launch. */
int kernel_update(struct CUstream_st *stream, const struct update_desc *desc, struct step_control *control,
                  float *params, void *low, const float *gradients, float *slot0, float *slot1,
                  const float *metrics);

int kernel_publish(struct CUstream_st *stream, const struct step_control *control, const float *metrics,
                   float *ring);

#endif
