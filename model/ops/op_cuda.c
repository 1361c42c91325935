/* Errors, scratch memory and timing for the CUDA ops. */
#include "model/ops/op_cuda.h"

#include <stdlib.h>
#include <string.h>

#include "model/ops/kernels.h"
#include "model/ops/table_cuda.h"

enum { TIMING_ROUNDS = 3, TIMING_CALLS = 5 };
static const float HOPELESS = 1.3f;             /* times the best so far, in one call: not timed further */
static const float EVENT_MILLISECONDS = 0.004f; /* that the time of one call may be off */

enum status cuda_raise(const char *function, const char *call, cudaError_t error) {
  enum status status = error == cudaErrorMemoryAllocation ? STATUS_INPUT : STATUS_INTERNAL;
  (void)cudaGetLastError(); /* forget it, unless it is one that stays */
  return error_raise(status, function, "CUDA: %s (%s) at %s", cudaGetErrorString(error),
                     cudaGetErrorName(error), call);
}

enum status cuda_raise_cudnn(const char *function, const char *call, cudnnStatus_t error) {
  char text[256] = "";
  cudnnGetLastErrorString(text, sizeof text);
  return error_raise(STATUS_INTERNAL, function, "cuDNN: %s at %s%s%.200s", cudnnGetErrorString(error), call,
                     text[0] ? ": " : "", text);
}

void cuda_scratch_release(struct cuda_context *context) {
  cudaFree(context->scratch);
  context->scratch = NULL;
  context->scratch_bytes = 0;
}

enum status cuda_scratch(struct cuda_context *context, enum dtype dtype, size_t bytes, void **memory) {
  if (bytes > context->scratch_bytes) {
    cuda_scratch_release(context);
    cudaError_t error = cudaMalloc(&context->scratch, bytes);
    if (error != cudaSuccess) {
      context->scratch = NULL;
      (void)cudaGetLastError();
      return RAISE(error == cudaErrorMemoryAllocation ? STATUS_INPUT : STATUS_INTERNAL,
                   "CUDA: %s at %zu bytes of device memory for choosing algorithms; lower the batch",
                   cudaGetErrorString(error), bytes);
    }
    context->scratch_bytes = bytes;
  }
  TRY_CUDA(kernel_random(context->stream, dtype, context->scratch, (int64_t)(bytes / dtype_bytes(dtype))));
  *memory = context->scratch;
  return STATUS_OK;
}

/* Milliseconds of `calls` calls; negative if the work was refused. */
static enum status time_calls(struct cuda_context *context, bool (*work)(void *), void *argument, int calls,
                              float *milliseconds) {
  *milliseconds = -1;
  TRY_CUDA(cudaEventRecord(context->start, context->stream));
  for (int i = 0; i < calls; i++)
    if (!work(argument)) return STATUS_OK;
  TRY_CUDA(cudaEventRecord(context->stop, context->stream));
  TRY_CUDA(cudaEventSynchronize(context->stop));
  TRY_CUDA(cudaEventElapsedTime(milliseconds, context->start, context->stop));
  return STATUS_OK;
}

enum status cuda_time(struct cuda_context *context, bool (*work)(void *), void *argument, float limit,
                      float *milliseconds) {
  float once, best;
  *milliseconds = -1;
  TRY(time_calls(context, work, argument, 1, &once)); /* loads its code too */
  if (once < 0) return STATUS_OK;
  TRY(time_calls(context, work, argument, 1, &best));
  const bool hopeless = limit > 0 && best > HOPELESS * limit + EVENT_MILLISECONDS;
  for (int round = 0; round < TIMING_ROUNDS && best >= 0 && !hopeless; round++) {
    float together;
    TRY(time_calls(context, work, argument, TIMING_CALLS, &together));
    if (together < 0) return STATUS_OK;
    if (together / TIMING_CALLS < best) best = together / TIMING_CALLS;
  }
  *milliseconds = best;
  return STATUS_OK;
}

enum status op_state_cuda(const void *made, size_t bytes, void **state) {
  void *copy = malloc(bytes);
  if (!copy) return RAISE(STATUS_INPUT, "out of memory");
  memcpy(copy, made, bytes);
  *state = copy;
  return STATUS_OK;
}

void op_free_cuda(struct op_context *context, void *state) {
  (void)context;
  free(state);
}
