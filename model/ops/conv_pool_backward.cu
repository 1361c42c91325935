/* Gradients; see cuda_conv_pool.h. */
#include "model/ops/cuda_conv_pool.h"

enum {
  THREADS = 512,
  WARPS = THREADS / 32,
  ITEMS = 200, /* bands aimed at */
  AHEAD = 4,   /* places whose values a warp reads at once */
};

/* Adds the warps' sums in a fixed tree; those of the block then lie in the first warp. */
template <int N> __device__ void block_sum(float (&sum)[N], float *shared) {
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
#pragma unroll
  for (int half = WARPS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (warp >= half && warp < 2 * half)
#pragma unroll
      for (int i = 0; i < N; i++) shared[((warp - half) * N + i) * 32 + lane] = sum[i];
    __syncthreads();
    if (warp < half)
#pragma unroll
      for (int i = 0; i < N; i++) sum[i] += shared[(warp * N + i) * 32 + lane];
  }
}

/* Sum of count values, `step` apart, in order. */
__device__ __forceinline__ float sum_of(const float *from, int count, int step) {
  float sum = 0;
#pragma unroll 16
  for (int i = 0; i < count; i++) sum += __ldcg(from + (int64_t)i * step);
  return sum;
}

/* Sums the blocks' values[N * 32] (in the first warps' registers): by groups, then over the groups. Calls
 * done(index, sum) for each in the last block. */
template <int N, typename F>
__device__ void grid_sum(const float (&sum)[N], float *workspace, uint32_t *tickets, F done) {
  constexpr int VALUES = N * 32;
  const int blocks = (int)gridDim.x, groups = (blocks + BAND_GROUP - 1) / BAND_GROUP,
            group = (int)blockIdx.x / BAND_GROUP;
  const int members = blocks - group * BAND_GROUP < BAND_GROUP ? blocks - group * BAND_GROUP : BAND_GROUP;
  float *all = workspace + (int64_t)blockIdx.y * (blocks + groups) * VALUES;
  float *ours = all + (int64_t)blocks * VALUES;
  uint32_t *ticket = tickets + (int)blockIdx.y * (groups + 1);
  if (threadIdx.x < 32)
#pragma unroll
    for (int i = 0; i < N; i++) all[(int64_t)blockIdx.x * VALUES + i * 32 + (int)threadIdx.x] = sum[i];
  if (!last_of(&ticket[group], (unsigned)members)) return;
  for (int v = (int)threadIdx.x; v < VALUES; v += THREADS)
    ours[group * VALUES + v] = sum_of(all + (int64_t)group * BAND_GROUP * VALUES + v, members, VALUES);
  if (!last_of(&ticket[groups], (unsigned)groups)) return;
  for (int v = (int)threadIdx.x; v < VALUES; v += THREADS) done(v, sum_of(ours + v, groups, VALUES));
}

/* What a lane needs of AHEAD places: their gradients and where the largest stood in their windows. */
struct chosen_places {
  float d[AHEAD];
  int which[AHEAD];
};

/* Reads those from `walk` on; the gradient is zero past the last one and where relu was not active. */
template <typename T>
__device__ __forceinline__ void read_places(const struct conv_pool_args &args, const band_walk &walk,
                                            int filter, chosen_places &places) {
  const T *out = (const T *)args.out, *d_out = (const T *)args.d_out;
  const bool active = filter < args.filters;
#pragma unroll
  for (int a = 0; a < AHEAD; a++) {
    const int o = walk.o + a * WARPS;
    const bool there = active && o < walk.count;
    const int64_t at = (walk.first + o) * args.filters + filter;
    const float value = there && args.relu ? to_float(out[at]) : 1.0f;
    places.d[a] = there ? to_float(d_out[at]) : 0.0f;
    places.which[a] = there ? args.place[at] : 0;
    if (!(value > 0.0f)) places.d[a] = 0;
  }
}

template <typename T, int R, int S, int C>
__global__ void __launch_bounds__(THREADS, 2)
    conv_pool_backward(const __grid_constant__ struct conv_pool_args args,
                       const __grid_constant__ struct band_grid grid) {
  constexpr int TAPS = R * S * C;
  extern __shared__ float tile[];
  const int first = (int)blockIdx.y * BAND_FILTERS, filter = first + (int)threadIdx.x % 32;
  const int inverse = 65536 / args.pool + 1; /* of what is below 256 */
  float sum[TAPS + 1] = {};                  /* the last: of the bias */
  for (int item = (int)blockIdx.x; item < (int)grid.items; item += (int)gridDim.x) {
    const band_place place = band_at(grid, item);
    band_walk walk = band_walk_begin(args, grid, place);
    chosen_places places;
    read_places<T>(args, walk, filter, places);
    __syncthreads();
    band_fill<T>(args, grid, place, tile);
    __syncthreads();
    while (walk.o < walk.count) {
#pragma unroll
      for (int a = 0; a < AHEAD; a++, band_walk_on(walk)) {
        if (walk.o >= walk.count) continue;
        const int y = places.which[a] * inverse >> 16, x = places.which[a] - y * args.pool;
        const float *from =
            tile + (walk.y * args.pool_stride + y) * grid.pitch + (walk.x * args.pool_stride + x) * C;
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
          for (int i = 0; i < S * C; i++)
            sum[r * S * C + i] = fmaf(places.d[a], from[r * grid.pitch + i], sum[r * S * C + i]);
        sum[TAPS] += places.d[a];
      }
      if (walk.o < walk.count) read_places<T>(args, walk, filter, places);
    }
  }
  block_sum<TAPS + 1>(sum, tile);
  grid_sum<TAPS + 1>(sum, args.workspace, args.tickets, [&](int v, float total) {
    const int tap = v / 32, k = first + v % 32;
    if (k >= args.filters) return;
    if (tap < TAPS && args.d_weight) args.d_weight[(int64_t)k * TAPS + tap] = total;
    if (tap == TAPS && args.d_bias) args.d_bias[k] = total;
  });
}

static int64_t backward_blocks(const struct band_grid *grid) {
  return grid->items < BAND_MOST_BLOCKS ? grid->items : BAND_MOST_BLOCKS;
}

size_t kernel_conv_pool_workspace(const struct conv_pool_args *args) {
  struct band_grid grid = band_grid(args, ITEMS);
  const int64_t blocks = backward_blocks(&grid),
                values = 32 * (args->kernel_h * args->kernel_w * args->c + 1);
  return (size_t)(band_filter_blocks(args) * (blocks + ceil_div(blocks, BAND_GROUP)) * values);
}

int kernel_conv_pool_backward_filter(cudaStream_t stream, const struct conv_pool_args *args) {
  const struct band_grid grid = band_grid(args, ITEMS);
  const dim3 blocks((unsigned)backward_blocks(&grid), band_filter_blocks(args));
  return with_type(args->dtype, [&](auto type) {
    return with_taps(args, [&](auto r, auto s, auto c) {
      typedef typename decltype(type)::type T;
      constexpr int R = decltype(r)::value, S = decltype(s)::value, C = decltype(c)::value;
      constexpr size_t sums = WARPS / 2 * (R * S * C + 1) * 32 * sizeof(float);
      const size_t bytes = band_bytes(&grid) > sums ? band_bytes(&grid) : sums;
      conv_pool_backward<T, R, S, C><<<blocks, THREADS, bytes, stream>>>(*args, grid);
      return (int)cudaGetLastError();
    });
  });
}

/* One thread makes one element: over the pooled places whose window may have chosen an output that reads it.
 */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    conv_pool_backward_data(const __grid_constant__ struct conv_pool_args args, int64_t count) {
  const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (at >= count) return;
  const T *out = (const T *)args.out, *d_out = (const T *)args.d_out, *weight = (const T *)args.weight;
  const int c = (int)(at % args.c), step = args.pool_stride;
  int64_t n = at / args.c;
  const int x = (int)(n % args.w) + args.pad;
  n /= args.w;
  const int y = (int)(n % args.h) + args.pad;
  n /= args.h;
  const int before_y = y - args.kernel_h - args.pool + 2, before_x = x - args.kernel_w - args.pool + 2;
  float sum = 0;
  for (int v = before_y > 0 ? (before_y + step - 1) / step : 0; v < args.out_h && v * step <= y; v++)
    for (int u = before_x > 0 ? (before_x + step - 1) / step : 0; u < args.out_w && u * step <= x; u++)
      for (int k = 0; k < args.filters; k++) {
        const int64_t from = ((n * args.out_h + v) * args.out_w + u) * args.filters + k;
        const int which = args.place[from];
        const int r = y - (v * step + which / args.pool), s = x - (u * step + which % args.pool);
        if (r < 0 || r >= args.kernel_h || s < 0 || s >= args.kernel_w) continue;
        if (args.relu && !(to_float(out[from]) > 0.0f)) continue;
        const int64_t tap = ((int64_t)(k * args.kernel_h + r) * args.kernel_w + s) * args.c + c;
        sum = fmaf(to_float(d_out[from]), to_float(weight[tap]), sum);
      }
  float all[1] = {sum};
  put<T, 1>((T *)args.d_in + at, all, args.d_in_add);
}

int kernel_conv_pool_backward_data(cudaStream_t stream, const struct conv_pool_args *args) {
  const int64_t count = args->n * args->h * args->w * args->c;
  return with_type(args->dtype, [&](auto type) {
    typedef typename decltype(type)::type T;
    conv_pool_backward_data<T><<<(unsigned)ceil_div(count, THREADS), THREADS, 0, stream>>>(*args, count);
    return (int)cudaGetLastError();
  });
}
