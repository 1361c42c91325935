/* Forward and the shapes that have kernels; see cuda_conv_pool.h. */
#include "model/ops/cuda_conv_pool.h"

enum { THREADS = 256, ITEMS = 400 /* bands aimed at: four blocks a multiprocessor */ };

/* PAIRS: all windows begin at even addresses. */
template <typename T, int R, int S, int C, int P, bool PAIRS>
__global__ void __launch_bounds__(THREADS) conv_pool(const __grid_constant__ struct conv_pool_args args,
                                                     const __grid_constant__ struct band_grid grid) {
  constexpr int TAPS = R * S * C, ROW = (P - 1 + S) * C, V = PAIRS ? 2 : 1;
  extern __shared__ float tile[];
  __shared__ float taps[BAND_FILTERS * TAPS];
  static_assert(TAPS % 2 == 1, "lanes read their taps without bank conflicts");
  const int lane = (int)threadIdx.x % 32, first = (int)blockIdx.y * BAND_FILTERS;
  const int filters = args.filters - first < BAND_FILTERS ? args.filters - first : BAND_FILTERS;
  const T *weight = (const T *)args.weight + (int64_t)first * TAPS;
  for (int i = (int)threadIdx.x; i < BAND_FILTERS * TAPS; i += THREADS)
    taps[i] = i < filters * TAPS ? to_float(weight[i]) : 0.0f;
  const float bias = args.bias && lane < filters ? args.bias[first + lane] : 0.0f;
  const band_place place = band_at(grid, (int)blockIdx.x);
  band_fill<T>(args, grid, place, tile);
  __syncthreads();
  float w[TAPS];
#pragma unroll
  for (int t = 0; t < TAPS; t++) w[t] = taps[lane * TAPS + t];
  for (band_walk walk = band_walk_begin(args, grid, place); walk.o < walk.count; band_walk_on(walk)) {
    const float *from = tile + (walk.y * grid.pitch + walk.x * C) * args.pool_stride;
    float sum[P][P];
#pragma unroll
    for (int p = 0; p < P * P; p++) sum[p / P][p % P] = bias;
#pragma unroll
    for (int y = 0; y < P - 1 + R; y++) {
      float x[ROW + V - 1];
#pragma unroll
      for (int i = 0; i < ROW; i += V) {
        const pack<float, V> some = *reinterpret_cast<const pack<float, V> *>(from + y * grid.pitch + i);
#pragma unroll
        for (int j = 0; j < V; j++) x[i + j] = some.element[j];
      }
#pragma unroll
      for (int p = 0; p < P; p++)
        if (y - p >= 0 && y - p < R) {
#pragma unroll
          for (int q = 0; q < P; q++)
#pragma unroll
            for (int i = 0; i < S * C; i++) sum[p][q] = fmaf(w[(y - p) * S * C + i], x[q * C + i], sum[p][q]);
        }
    }
    float best = sum[0][0];
    int which = 0;
#pragma unroll
    for (int p = 1; p < P * P; p++) {
      const float value = sum[p / P][p % P];
      if (value > best || (value != value && best == best)) best = value, which = p;
    }
    if (args.relu) best = activate<ACTIVATION_RELU>(best);
    const int64_t at = (walk.first + walk.o) * args.filters + first + lane;
    if (lane < filters) {
      ((T *)args.out)[at] = from_float<T>(best);
      if (args.place) args.place[at] = (uint8_t)which;
    }
  }
}

template <typename F> static int with_pool(const struct conv_pool_args *args, F body) {
  if (args->pool == 2) return body(number<2>());
  if (args->pool == 3) return body(number<3>());
  return (int)cudaErrorInvalidValue;
}

bool kernel_conv_pool_fits(const struct conv_pool_args *args) {
  const unsigned tickets = band_filter_blocks(args) * (BAND_MOST_BLOCKS / BAND_GROUP + 1);
  if (args->stride != 1 || args->w > BAND_BYTES || args->pad > BAND_BYTES) return false;
  auto any = [](auto...) { return 0; };
  struct band_grid grid = band_grid(args, ITEMS);
  return with_taps(args, any) == 0 && with_pool(args, any) == 0 && band_bytes(&grid) <= BAND_BYTES &&
         tickets <= BAND_MOST_TICKETS && grid.items < INT32_MAX / 2;
}

int kernel_conv_pool(cudaStream_t stream, const struct conv_pool_args *args) {
  const struct band_grid grid = band_grid(args, ITEMS);
  const dim3 blocks((unsigned)grid.items, band_filter_blocks(args));
  return with_type(args->dtype, [&](auto type) {
    return with_taps(args, [&](auto r, auto s, auto c) {
      return with_pool(args, [&](auto p) {
        typedef typename decltype(type)::type T;
        constexpr int R = decltype(r)::value, S = decltype(s)::value, C = decltype(c)::value;
        constexpr int P = decltype(p)::value;
        if (args->pool_stride * C % 2 == 0)
          conv_pool<T, R, S, C, P, true><<<blocks, THREADS, band_bytes(&grid), stream>>>(*args, grid);
        else
          conv_pool<T, R, S, C, P, false><<<blocks, THREADS, band_bytes(&grid), stream>>>(*args, grid);
        return (int)cudaGetLastError();
      });
    });
  });
}
