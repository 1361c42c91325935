/* What the opened device can do at most. */
#include "model/backend/devices.h"
#include "model/backend/gpu_map.h"
#include "model/backend/cuda_backend.h"

double cuda_peak(enum precision precision) {
  int device, major, minor, multiprocessors, khz;
  if (cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, device) == cudaSuccess)
    return gpu_peak(major, minor, precision, multiprocessors, 1e3 * khz);
  (void)cudaGetLastError();
  return 0;
}
