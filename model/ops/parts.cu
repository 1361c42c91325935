/* Sums of what blocks have left of a result, in order. */
#include "model/ops/cuda_vector.h"

extern "C" {
#include "model/ops/kernels.h"
}

/* G threads take every G-th part of 4 neighbours, and are added in order. */
template <int G>
__global__ void __launch_bounds__(G == 1 ? 64 : 256)
    sum_parts(const float4 *parts, float4 *out, int count, int splits) {
  enum { WIDE = G == 1 ? 64 : 256 / G };
  __shared__ float4 group[G][WIDE];
  const int wide = (int)threadIdx.x % WIDE, mine = (int)threadIdx.x / WIDE,
            at = (int)blockIdx.x * WIDE + wide;
  float4 sum = make_float4(0, 0, 0, 0);
  if (at < count) {
#pragma unroll 8
    for (int z = mine; z < splits; z += G) {
      const float4 part = __ldcs(&parts[(int64_t)z * count + at]);
      sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
  }
  if (G > 1) {
    group[mine][wide] = sum;
    __syncthreads();
    if (mine > 0) return;
#pragma unroll
    for (int g = 1; g < G; g++) {
      const float4 part = group[g][wide];
      sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
  }
  if (at < count) out[at] = sum;
}

int kernel_sum_parts(cudaStream_t stream, const float *parts, float *out, int64_t count, int splits) {
  const int quads = (int)(count / 4);
  if (splits >= 16)
    sum_parts<8><<<(unsigned)ceil_div(quads, 32), 256, 0, stream>>>((const float4 *)parts, (float4 *)out,
                                                                    quads, splits);
  else
    sum_parts<1><<<(unsigned)ceil_div(quads, 64), 64, 0, stream>>>((const float4 *)parts, (float4 *)out,
                                                                   quads, splits);
  return (int)cudaGetLastError();
}
