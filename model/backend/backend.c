/* Which backends are built in, and the choice between them. */
#include "model/backend/backend.h"

#include <string.h>

#ifdef CONVOY_CUDA
#include "model/backend/devices.h"
#endif

#if defined(CONVOY_CPU) && defined(CONVOY_CUDA)
#define BUILT_IN "cpu and cuda"
#elif defined(CONVOY_CPU)
#define BUILT_IN "cpu"
#else
#define BUILT_IN "cuda"
#endif

enum status backend_find(const char *name, const struct backend_table **table) {
  bool any = strcmp(name, "auto") == 0;
  if (!any && strcmp(name, "cpu") != 0 && strcmp(name, "cuda") != 0)
    return RAISE(STATUS_INPUT, "--backend %s is unknown; use auto, cpu or cuda", name);
#ifdef CONVOY_CUDA
  if (strcmp(name, "cuda") == 0 || (any && cuda_device_visible())) {
    *table = &backend_cuda;
    return STATUS_OK;
  }
#endif
#ifdef CONVOY_CPU
  if (any || strcmp(name, "cpu") == 0) {
    *table = &backend_cpu;
    return STATUS_OK;
  }
#endif
  if (any)
    return RAISE(STATUS_INPUT,
                 "no CUDA device is visible, and this program was built without the CPU backend");
  return RAISE(STATUS_INPUT,
               "--backend %s is not in this program, which was built for %s; build it with -DWITH_%s=ON",
               name, BUILT_IN, strcmp(name, "cpu") == 0 ? "CPU" : "CUDA");
}

void backend_warm_begin(const char *name, const struct world *world, struct backend_warming *warming) {
  *warming = (struct backend_warming){.local_rank = world->local_rank};
#ifdef CONVOY_CUDA
  if (strcmp(name, "cpu") != 0) cuda_warm_begin(warming);
#else
  (void)name;
#endif
}

void backend_warm_end(struct backend_warming *warming) {
  if (warming->device.runs) pthread_join(warming->device.thread, NULL);
  if (warming->libraries.runs) pthread_join(warming->libraries.thread, NULL);
  warming->device.runs = warming->libraries.runs = false;
}

const char *precision_name(enum precision precision) {
  static const char *const names[] = {
      [PRECISION_FP32] = "fp32", [PRECISION_TF32] = "tf32", [PRECISION_BF16] = "bf16"};
  return names[precision];
}
