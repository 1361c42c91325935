/* A bias added to every row, and its gradient: the sum of each column. */
#include "model/ops/cuda_channel.h"

extern "C" {
#include "model/ops/kernels.h"
}

template <typename T, int V>
__global__ void __launch_bounds__(CHANNEL_THREADS)
    bias_add(T *data, const float *bias, const struct channel_grid grid) {
  const channel_place at = channel_here(grid, V);
  if (at.channel >= grid.channels) return;
  float b[V];
  load<float, V>(bias + at.channel, b);
#pragma unroll 4
  for (int64_t row = at.row; row < grid.rows; row += at.stride) {
    float x[V];
    load<T, V>(data + row * grid.channels + at.channel, x);
#pragma unroll
    for (int i = 0; i < V; i++) x[i] += b[i];
    store<T, V>(data + row * grid.channels + at.channel, x);
  }
}

template <typename T, int V>
__global__ void __launch_bounds__(CHANNEL_THREADS)
    column_sum(const T *data, float *out, float *workspace, uint32_t *tickets,
               const struct channel_grid grid) {
  __shared__ channel_sums sums;
  double2 total;
  const channel_place at = channel_here(grid, V);
  float sum[V] = {}, unused[V] = {};
  if (at.channel < grid.channels) {
#pragma unroll 4
    for (int64_t row = at.row; row < grid.rows; row += at.stride) {
      float x[V];
      load<T, V>(data + row * grid.channels + at.channel, x);
#pragma unroll
      for (int i = 0; i < V; i++) sum[i] += x[i];
    }
  }
  if (!channel_sum<V>(sum, unused, grid, workspace, tickets, sums, &total)) return;
  const int64_t channel = (int64_t)blockIdx.y * grid.lanes * V + threadIdx.x;
  if ((int)threadIdx.x < grid.lanes * V && channel < grid.channels) out[channel] = (float)total.x;
}

/* Calls body(type, vector); `vector` is the fp32 array beside the data. */
template <typename F>
static int with_columns(enum dtype dtype, const void *data, const void *vector, int64_t channels, F body) {
  return with_type(dtype, [&](auto type) {
    typedef typename decltype(type)::type T;
    if (channel_wide<T>(channels, aligned16(data) && aligned16(vector)))
      return body(type, number<wide<T>::count>());
    return body(type, number<1>());
  });
}

int kernel_bias_add(cudaStream_t stream, enum dtype dtype, void *data, const float *bias, int64_t rows,
                    int64_t channels) {
  return with_columns(dtype, data, bias, channels, [&](auto type, auto vector) {
    typedef typename decltype(type)::type T;
    constexpr int V = decltype(vector)::value;
    struct channel_grid grid = channel_grid(rows, channels, V, CHANNEL_EACH_BLOCKS);
    bias_add<T, V><<<channel_blocks(grid), CHANNEL_THREADS, 0, stream>>>((T *)data, bias, grid);
    return (int)cudaGetLastError();
  });
}

int kernel_column_sum(cudaStream_t stream, enum dtype dtype, const void *data, float *sum, int64_t rows,
                      int64_t channels, float *workspace, uint32_t *tickets) {
  return with_columns(dtype, data, NULL, channels, [&](auto type, auto vector) {
    typedef typename decltype(type)::type T;
    constexpr int V = decltype(vector)::value;
    struct channel_grid grid = channel_grid(rows, channels, V, CHANNEL_SUM_BLOCKS);
    column_sum<T, V><<<channel_blocks(grid), CHANNEL_THREADS, 0, stream>>>((const T *)data, sum, workspace,
                                                                           tickets, grid);
    return (int)cudaGetLastError();
  });
}
