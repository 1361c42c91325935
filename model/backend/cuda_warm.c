/* The device's context and cuDNN's libraries, loaded by a thread while the main one reads the data. */
#include "model/backend/cuda_backend.h"
#include "model/backend/devices.h"
#include "model/base/thread.h"

/* Keeps nothing but what the process then has: cuda_open does all of it again, quickly, and tells what is
 * wrong. */
static void *warm(void *argument) {
  const struct backend_warming *warming = argument;
  cudnnHandle_t cudnn;
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count < 1) return NULL;
  if (count > 1 && warming->local_rank >= count) return NULL;
  if (cudaSetDevice(count == 1 ? 0 : warming->local_rank) != cudaSuccess) return NULL;
  cuda_usage_warm();
  if (cudaFree(NULL) == cudaSuccess && cudnnCreate(&cudnn) == CUDNN_STATUS_SUCCESS) cudnnDestroy(cudnn);
  return NULL;
}

void cuda_warm_begin(struct backend_warming *warming) {
  warming->runs = thread_start(&warming->thread, warm, warming) == 0;
}
