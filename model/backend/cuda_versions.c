/* Which CUDA libraries are loaded, for a check before a run. */
#include <stdio.h>

#include "model/backend/cuda_backend.h"
#include "model/backend/devices.h"

bool cuda_versions(char *text, size_t capacity) {
  int driver = 0, runtime = 0, nccl = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  (void)ncclGetVersion(&nccl);
  size_t cudnn = cudnnGetVersion();
  snprintf(text, capacity, "driver for CUDA %d.%d, CUDA %d.%d, cuDNN %zu.%zu.%zu, NCCL %d.%d.%d",
           driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10, cudnn / 10000,
           cudnn / 100 % 100, cudnn % 100, nccl / 10000, nccl / 100 % 100, nccl % 100);
  return cudnn == CUDNN_VERSION && nccl == NCCL_VERSION_CODE && runtime == CUDART_VERSION;
}
