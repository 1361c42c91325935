/* Softmax cross-entropy: one warp a row. The batch's sums are added in a fixed order by the last block. */
#include "model/ops/cuda_vector.h"

extern "C" {
#include "model/ops/kernels.h"
}

enum { WARPS = 8 };

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

size_t kernel_softmax_xent_workspace(int64_t rows) {
  return (size_t)ceil_div(rows, WARPS) * 2;
}

/* Loss and correctness of one row, the same in all lanes. A NaN among the logits makes the loss NaN. */
template <typename T>
__device__ float2 row_loss(const T *x, int label, int classes, float smoothing, float *log_sum_exp) {
  const int lane = (int)threadIdx.x % 32;
  const float chosen = to_float(x[label]);
  float most = -INFINITY;
  int best = 0x7fffffff;
  for (int k = lane; k < classes; k += 32) {
    float value = to_float(x[k]);
    if (value > most) most = value, best = k;
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    float other = __shfl_xor_sync(0xffffffffu, most, offset);
    int place = __shfl_xor_sync(0xffffffffu, best, offset);
    if (other > most || (other == most && place < best)) most = other, best = place;
  }
  float sum = 0, centred = 0;
  for (int k = lane; k < classes; k += 32) {
    float value = to_float(x[k]) - most;
    sum += expf(value);
    centred += value;
  }
  sum = warp_sum(sum);
  centred = warp_sum(centred);
  const float log_sum = logf(sum);
  *log_sum_exp = most + log_sum;
  const float right = log_sum - (chosen - most);
  const float all = log_sum - centred / (float)classes; /* the mean over classes */
  return make_float2(smoothing > 0 ? (1.0f - smoothing) * right + smoothing * all : right,
                     best == label ? 1.0f : 0.0f);
}

template <typename T>
__global__ void __launch_bounds__(WARPS * 32)
    softmax_xent(const T *logits, const int32_t *labels, int64_t rows, int classes, float smoothing,
                 float *out, float *log_sum_exp, float *partial, uint32_t *tickets) {
  __shared__ float2 result[WARPS];
  __shared__ double share[2][WARPS];
  const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
  const int64_t row = (int64_t)blockIdx.x * WARPS + warp;
  float2 mine = make_float2(0, 0);
  if (row < rows) {
    float lse;
    mine = row_loss<T>(logits + row * classes, labels[row], classes, smoothing, &lse);
    if (log_sum_exp && lane == 0) log_sum_exp[row] = lse;
  }
  if (lane == 0) result[warp] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    float2 sum = result[0];
    for (int w = 1; w < WARPS; w++) sum.x += result[w].x, sum.y += result[w].y;
    partial[2 * blockIdx.x] = sum.x;
    partial[2 * blockIdx.x + 1] = sum.y;
  }
  if (!last_of(tickets, gridDim.x)) return;
  double loss = 0, correct = 0;
  for (unsigned b = threadIdx.x; b < gridDim.x; b += WARPS * 32) {
    loss += (double)__ldcg(&partial[2 * b]);
    correct += (double)__ldcg(&partial[2 * b + 1]);
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    loss += __shfl_xor_sync(0xffffffffu, loss, offset);
    correct += __shfl_xor_sync(0xffffffffu, correct, offset);
  }
  if (lane == 0) share[0][warp] = loss, share[1][warp] = correct;
  __syncthreads();
  if (threadIdx.x < 2) {
    double sum = 0;
    for (int w = 0; w < WARPS; w++) sum += share[threadIdx.x][w];
    out[threadIdx.x] = (float)sum;
  }
}

int kernel_softmax_xent(cudaStream_t stream, enum dtype dtype, const void *logits, const int32_t *labels,
                        int64_t rows, int64_t classes, float smoothing, float *out, float *log_sum_exp,
                        float *workspace, uint32_t *tickets) {
  return with_type(dtype, [&](auto type) {
    typedef typename decltype(type)::type T;
    softmax_xent<T><<<(unsigned)ceil_div(rows, WARPS), WARPS * 32, 0, stream>>>(
        (const T *)logits, labels, rows, (int)classes, smoothing, out, log_sum_exp, workspace, tickets);
    return (int)cudaGetLastError();
  });
}

/* d = (softmax - target) * scale. */
template <typename T>
__global__ void __launch_bounds__(256)
    softmax_xent_backward(const T *logits, const int32_t *labels, const float *log_sum_exp, int64_t count,
                          int classes, float smoothing, const float *scale, T *d_logits, bool add) {
  const int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x;
  if (at >= count) return;
  const int64_t row = count <= INT32_MAX ? (int)at / classes : at / classes; /* the former is far faster */
  const int k = (int)(at - row * classes);
  const float target = (k == labels[row] ? 1.0f - smoothing : 0.0f) + smoothing / (float)classes;
  float d[1] = {(expf(to_float(logits[at]) - log_sum_exp[row]) - target) * *scale};
  put<T, 1>(d_logits + at, d, add);
}

int kernel_softmax_xent_backward(cudaStream_t stream, enum dtype dtype, const void *logits,
                                 const int32_t *labels, const float *log_sum_exp, int64_t rows,
                                 int64_t classes, float smoothing, const float *scale, void *d_logits,
                                 bool add) {
  return with_type(dtype, [&](auto type) {
    typedef typename decltype(type)::type T;
    softmax_xent_backward<T><<<(unsigned)ceil_div(rows * classes, 256), 256, 0, stream>>>(
        (const T *)logits, labels, log_sum_exp, rows * classes, (int)classes, smoothing, scale, (T *)d_logits,
        add);
    return (int)cudaGetLastError();
  });
}
