/* Which GPU a rank takes, and whether this binary can run on it. What is wrong is found before NCCL starts,
 * which would only hang or fail obscurely. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/backend/devices.h"
#include "model/backend/gpu_map.h"
#include "model/backend/cuda_backend.h"
#include "model/backend/kernels.h"

enum { OLDEST_TENSOR_MAJOR = 8 };

bool cuda_device_visible(void) {
  int count = 0;
  bool visible = cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
  (void)cudaGetLastError();
  return visible;
}

static enum status count_devices(const struct world *world, int *count) {
  int driver = 0, runtime = 0;
  cudaError_t error = cudaGetDeviceCount(count);
  (void)cudaGetLastError();
  if (error == cudaSuccess && *count > 0) return STATUS_OK;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  if (error == cudaErrorInsufficientDriver && driver > 0)
    return RAISE(
        STATUS_INPUT,
        "host %s: the NVIDIA driver supports CUDA %d.%d, this program needs %d.%d: update the driver, or "
        "build with an older CUDA toolkit",
        world->host, driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  return RAISE(
      STATUS_INPUT,
      "host %s: no GPU is visible (%s; CUDA_VISIBLE_DEVICES is %s%s): ask the scheduler for one (Slurm: "
      "--gpus-per-node), or use --backend cpu",
      world->host, error == cudaSuccess ? "no device" : cudaGetErrorString(error),
      visible ? "set to " : "not set", visible ? (visible[0] ? visible : "nothing") : "");
}

/* Two ranks of one host on one GPU? Every rank comes to the same answer. */
static enum status check_claims(const struct world *world, const struct gpu_claim *mine) {
  enum status status = STATUS_OK;
  struct gpu_claim *all = calloc((size_t)world->size, sizeof *all);
  TRY_OUT(world_agree(world, all ? STATUS_OK : RAISE(STATUS_INPUT, "out of memory")));
  TRY_OUT(world_allgather(world, mine, sizeof *mine, all));
  status = gpu_check_claims(all, world->size);
out:
  free(all);
  return status;
}

static enum status check_device(const struct world *world, enum precision precision,
                                const struct cudaDeviceProp *properties) {
  int error = kernel_probe();
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return RAISE(STATUS_INPUT,
                 "host %s: this program has no code for %s (sm_%d%d): %s; build it with "
                 "-DCMAKE_CUDA_ARCHITECTURES=%d%d",
                 world->host, properties->name, properties->major, properties->minor,
                 cudaGetErrorString((cudaError_t)error), properties->major, properties->minor);
  }
  if (precision != PRECISION_FP32 && properties->major < OLDEST_TENSOR_MAJOR)
    return RAISE(
        STATUS_INPUT, "host %s: %s (sm_%d%d) has no %s arithmetic (sm_80 or newer has): use --precision fp32",
        world->host, properties->name, properties->major, properties->minor, precision_name(precision));
  return STATUS_OK;
}

static enum status open_device(enum precision precision, struct cuda_backend *cuda, struct gpu_claim *claim) {
  const struct world *world = cuda->base.world;
  struct cuda_context *context = &cuda->context;
  struct cudaDeviceProp properties;
  int visible = 0;
  TRY(count_devices(world, &visible));
  TRY(gpu_choose(world, visible, &context->device));
  cudaError_t error = cudaSetDevice(context->device);
  if (error == cudaSuccess) error = cudaFree(NULL); /* makes the device's context */
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return RAISE(STATUS_INPUT, "host %s: GPU %d cannot be used: %s; see nvidia-smi on that host", world->host,
                 context->device, cudaGetErrorString(error));
  }
  TRY_CUDA(cudaGetDeviceProperties(&properties, context->device));
  TRY_CUDA(cudaDeviceGetPCIBusId(claim->pci, (int)sizeof claim->pci, context->device));
  TRY(check_device(world, precision, &properties));
  context->multiprocessors = properties.multiProcessorCount;
  snprintf(cuda->base.description, sizeof cuda->base.description, "cuda: %.64s, sm_%d%d, %s", properties.name,
           properties.major, properties.minor, claim->pci);
  snprintf(cuda->base.kind, sizeof cuda->base.kind, "%.64s, sm_%d%d", properties.name, properties.major,
           properties.minor);
  return STATUS_OK;
}

enum status cuda_open_device(enum precision precision, struct cuda_backend *cuda) {
  const struct world *world = cuda->base.world;
  struct gpu_claim claim;
  memset(&claim, 0, sizeof claim);
  snprintf(claim.host, sizeof claim.host, "%s", world->host);
  TRY(world_agree(world, open_device(precision, cuda, &claim)));
  TRY(world_agree(world, check_claims(world, &claim)));
  return STATUS_OK;
}
