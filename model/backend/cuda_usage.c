/* How much of the device is in use: its memory by the runtime, how busy it is by NVML, the driver's library,
 * which is loaded where it is there. Its few types are declared here, so that it need not be at the build. */
#include <dlfcn.h>
#include <math.h>

#include "model/backend/cuda_backend.h"
#include "model/base/clock.h"
#include "model/base/symbol.h"

/* NVML's interface, docs.nvidia.com/deploy/nvml-api; 0 is success. */
struct utilization {
  unsigned int gpu, memory; /* percent of the last sampling period, up to a second */
};
struct nvml {
  void *library;
  int (*init)(void);
  int (*shutdown)(void); /* of as many as init was called */
  int (*device)(const char *pci_bus_id, void **device);
  int (*rates)(void *device, struct utilization *rates);
};

enum { PCI_TEXT = 20 };

static bool nvml_open(struct nvml *nvml) {
  void *library = nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library && symbol_find(library, "nvmlInit_v2", &nvml->init) &&
      symbol_find(library, "nvmlShutdown", &nvml->shutdown) &&
      symbol_find(library, "nvmlDeviceGetHandleByPciBusId_v2", &nvml->device) &&
      symbol_find(library, "nvmlDeviceGetUtilizationRates", &nvml->rates) && nvml->init() == 0)
    return true;
  if (library) dlclose(library);
  return false;
}

static void nvml_close(struct nvml *nvml) {
  nvml->shutdown();
  dlclose(nvml->library);
}

void cuda_usage_warm(void) {
  struct nvml nvml;
  (void)nvml_open(&nvml); /* and never closed: then a later one only counts */
}

static double busy(const struct cuda_backend *cuda) {
  char pci[PCI_TEXT];
  struct nvml nvml;
  struct utilization rates;
  void *device;
  if (!nvml_open(&nvml)) return NAN;
  bool known = cudaDeviceGetPCIBusId(pci, PCI_TEXT, cuda->context.device) == cudaSuccess &&
               nvml.device(pci, &device) == 0 && nvml.rates(device, &rates) == 0;
  nvml_close(&nvml);
  return known ? rates.gpu / 100.0 : (double)NAN;
}

void cuda_usage(struct backend *backend, struct backend_usage *usage) {
  struct cuda_backend *cuda = cuda_backend_of(backend);
  double now = clock_seconds();
  if (cuda->usage_time == 0 || now - cuda->usage_time >= 1) { /* short epochs do not pay for it each time */
    size_t available, whole;
    cuda->usage = (struct backend_usage){.busy = busy(cuda)};
    if (cudaMemGetInfo(&available, &whole) == cudaSuccess) {
      cuda->usage.memory_used = (double)(whole - available);
      cuda->usage.memory = (double)whole;
    }
    (void)cudaGetLastError();
    cuda->usage_time = clock_seconds();
  }
  *usage = cuda->usage;
}
