/* What the CUDA ops share: the context that the backend gives them, and how errors of the CUDA libraries
 * become errors of ours. */
#ifndef CONVOY_MODEL_OPS_OP_CUDA_H
#define CONVOY_MODEL_OPS_OP_CUDA_H

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "model/ops/blas_library_cuda.h"
#include "model/ops/choices.h"
#include "model/ops/op.h"

struct cudnn_plan;

enum { CUDA_TICKETS = 4096 }; /* counters in cuda_context.tickets */

/* The CUDA backend's context; ops get it as struct op_context. Owned by the backend. */
struct cuda_context {
  struct op_context op;
  int device;
  int multiprocessors;
  cudaStream_t stream;      /* all ops enqueue here */
  cudnnHandle_t cudnn;      /* bound to stream */
  struct blas_library blas; /* opened by the first product */
  uint32_t *tickets; /* device, CUDA_TICKETS counters, zero between kernels: "which block is the last one?" */
  struct cudnn_plan *plans; /* plans found so far, see cudnn_plan_cuda.h */
  struct choices choices;   /* made by timing, here or in an earlier start; none if op.deterministic */
  void *scratch;            /* device memory for tuning, see cuda_scratch */
  size_t scratch_bytes;
  cudaEvent_t start, stop; /* for timing at create */
};

static inline struct cuda_context *cuda_context_of(struct op_context *context) {
  return (struct cuda_context *)context;
}

/* Records the error of a library call (its text, the library's name and message) and returns STATUS_INTERNAL,
 * STATUS_INPUT if device memory ran out. */
enum status cuda_raise(const char *function, const char *call, cudaError_t error);
enum status cuda_raise_cudnn(const char *function, const char *call, cudnnStatus_t error);

#define TRY_CUDA(call)                                                                                       \
  do {                                                                                                       \
    cudaError_t cuda_error = (cudaError_t)(call);                                                            \
    if (cuda_error != cudaSuccess) return cuda_raise(__func__, #call, cuda_error);                           \
  } while (0)

#define TRY_CUDNN(call)                                                                                      \
  do {                                                                                                       \
    cudnnStatus_t cudnn_error = (call);                                                                      \
    if (cudnn_error != CUDNN_STATUS_SUCCESS) return cuda_raise_cudnn(__func__, #call, cudnn_error);          \
  } while (0)

/* Device memory that lives until cuda_scratch_release: what a create call runs candidates on. *memory holds
 * random numbers in (-1, 1) of `dtype` (fp32 or bf16) and is valid until the next call. Never called during a
 * step. */
enum status cuda_scratch(struct cuda_context *context, enum dtype dtype, size_t bytes, void **memory);
void cuda_scratch_release(struct cuda_context *context);

/* Milliseconds of one call of `work`, the least of several rounds after a first one that also shows whether
 * the work runs at all. `limit`: gives up early on what is far slower than that (0: no limit).
 * *milliseconds is negative if the work was refused by its library; that is no error. */
enum status cuda_time(struct cuda_context *context, bool (*work)(void *), void *argument, float limit,
                      float *milliseconds);

/* Kinds of keys in choices. */
enum cuda_choice { CUDA_CHOICE_PLAN, CUDA_CHOICE_ADDS, CUDA_CHOICE_PRODUCT };

/* Bytes rounded up so that what follows in a workspace is aligned. */
static inline size_t cuda_align(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

static inline void *cuda_offset(void *base, size_t bytes) {
  return base ? (char *)base + bytes : NULL;
}

#endif
