/* What a start needs and takes its time, done by two threads while the main one reads the data: the device's
 * context, and cuDNN's libraries. Keeps nothing but what the process then has: cuda_open does all of it
 * again, quickly, and tells what is wrong. */
#include <dlfcn.h>
#include <stdio.h>

#include "model/backend/cuda_backend.h"
#include "model/backend/devices.h"
#include "model/base/thread.h"

/* cuDNN loads these when the first plan is made. */
static void *load_libraries(void *unused) {
  static const char *const part[] = {"engines_precompiled", "heuristic", "engines_runtime_compiled"};
  char name[64];
  (void)unused;
  if (!cuda_device_visible()) return NULL; /* as the other thread asks: the driver is loaded once */
  for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
    snprintf(name, sizeof name, "libcudnn_%s.so.%d", part[i], CUDNN_MAJOR);
    (void)dlopen(name, RTLD_LAZY | RTLD_LOCAL); /* and never closed */
  }
  return NULL;
}

static void *open_device(void *argument) {
  const struct backend_warming *warming = argument;
  cudnnHandle_t cudnn;
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count < 1) return NULL;
  if (count > 1 && warming->local_rank >= count) return NULL;
  if (cudaSetDevice(count == 1 ? 0 : warming->local_rank) != cudaSuccess) return NULL;
  if (cudaFree(NULL) == cudaSuccess && cudnnCreate(&cudnn) == CUDNN_STATUS_SUCCESS) cudnnDestroy(cudnn);
  cuda_usage_warm();
  return NULL;
}

void cuda_warm_begin(struct backend_warming *warming) {
  warming->device.runs = thread_start(&warming->device.thread, open_device, warming) == 0;
  warming->libraries.runs = thread_start(&warming->libraries.thread, load_libraries, NULL) == 0;
}
