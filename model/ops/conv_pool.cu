/* Convolution + bias + relu + maxpool for filters with few taps, as a first layer has: far too thin for a
 * library's tiles, and what lies between convolution and pooling need not exist.
 *
 * A block holds a band of an image in shared memory; a lane owns a filter and keeps its taps (forward) or
 * their gradients (backward) in registers; a warp takes one pooled place after the other. Only the places
 * that a pooling window chose have a gradient, so backward visits one convolution output a pooled one. */
#include "model/ops/cuda_vector.h"

extern "C" {
#include "model/ops/kernels.h"
}

enum {
  THREADS = 256,
  WARPS = THREADS / 32,
  FILTERS = 32, /* of a block */
  BLOCKS = 256, /* aimed at; backward: at most */
  MOST_TICKETS = 4096,
  GROUP = 16,        /* blocks whose sums the last of them adds */
  SHARED = 40 << 10, /* bytes of shared memory, at most */
};

/* How an image is cut into bands. Rows of a band in shared memory are `pitch` floats apart. */
struct band_grid {
  int rows;          /* pooled rows of a band */
  int bands;         /* of an image */
  int tile_h, pitch; /* of the band in shared memory */
  int64_t items;     /* bands of all images */
};

static struct band_grid band_grid(const struct conv_pool_args *args) {
  struct band_grid grid;
  const int width = (args->w + 2 * args->pad) * args->c + 2; /* a pair may be read past the end */
  const int shift = (args->pool * args->c + 1) / 2 * 2; /* the choices of a window fall in different banks */
  grid.pitch = (width - shift + 31) / 32 * 32 + shift;
  grid.rows = args->out_h;
  for (;;) {
    grid.bands = (args->out_h + grid.rows - 1) / grid.rows;
    grid.tile_h = (grid.rows - 1) * args->pool_stride + args->pool - 1 + args->kernel_h;
    grid.items = args->n * grid.bands;
    bool large = (size_t)grid.tile_h * (size_t)grid.pitch * sizeof(float) > SHARED;
    if (grid.rows == 1 || (!large && grid.items >= BLOCKS)) return grid;
    grid.rows = (grid.rows + 1) / 2;
  }
}

/* The band's rows of the image, zero where it is padded. */
template <typename T>
__device__ void band_fill(const struct conv_pool_args &args, const struct band_grid &grid, int64_t item,
                          float *tile) {
  const int first = (int)(item % grid.bands) * grid.rows * args.pool_stride - args.pad;
  const int row = args.w * args.c, left = args.pad * args.c, warp = (int)threadIdx.x / 32;
  const T *image = (const T *)args.in + item / grid.bands * args.h * row;
  for (int y = warp; y < grid.tile_h; y += WARPS) {
    const bool inside = first + y >= 0 && first + y < args.h;
    const T *from = image + (int64_t)(first + y) * row;
#pragma unroll 4
    for (int x = (int)threadIdx.x % 32; x < grid.pitch; x += 32)
      tile[y * grid.pitch + x] = inside && x >= left && x < left + row ? to_float(from[x - left]) : 0.0f;
  }
}

/* One band's places: `count` of them from element `first` of out and place, divided by the filters. */
struct band_places {
  int64_t first;
  int count;
};

__device__ __forceinline__ band_places band_here(const struct conv_pool_args &args,
                                                 const struct band_grid &grid, int64_t item) {
  const int y = (int)(item % grid.bands) * grid.rows;
  const int rows = args.out_h - y < grid.rows ? args.out_h - y : grid.rows;
  return {(item / grid.bands * args.out_h + y) * args.out_w, rows * args.out_w};
}

/* PAIRS: all windows begin at even addresses. */
template <typename T, int R, int S, int C, int P, bool PAIRS>
__global__ void __launch_bounds__(THREADS) conv_pool(const __grid_constant__ struct conv_pool_args args,
                                                     const __grid_constant__ struct band_grid grid) {
  constexpr int TAPS = R * S * C, ROW = (P - 1 + S) * C, V = PAIRS ? 2 : 1;
  extern __shared__ float tile[];
  __shared__ float taps[FILTERS * TAPS];
  static_assert(TAPS % 2 == 1, "lanes read their taps without bank conflicts");
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, first = (int)blockIdx.y * FILTERS;
  const int filters = args.filters - first < FILTERS ? args.filters - first : FILTERS;
  const T *weight = (const T *)args.weight + (int64_t)first * TAPS;
  for (int i = (int)threadIdx.x; i < FILTERS * TAPS; i += THREADS)
    taps[i] = i < filters * TAPS ? to_float(weight[i]) : 0.0f;
  band_fill<T>(args, grid, blockIdx.x, tile);
  __syncthreads();
  float w[TAPS];
#pragma unroll
  for (int t = 0; t < TAPS; t++) w[t] = taps[lane * TAPS + t];
  const float bias = args.bias && lane < filters ? args.bias[first + lane] : 0.0f;
  const band_places places = band_here(args, grid, blockIdx.x);
  for (int o = warp; o < places.count; o += WARPS) {
    const float *from =
        tile + o / args.out_w * args.pool_stride * grid.pitch + o % args.out_w * args.pool_stride * C;
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
    const int64_t at = (places.first + o) * args.filters + first + lane;
    if (lane < filters) {
      ((T *)args.out)[at] = from_float<T>(best);
      if (args.place) args.place[at] = (uint8_t)which;
    }
  }
}

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
  const int blocks = (int)gridDim.x, groups = (blocks + GROUP - 1) / GROUP, group = (int)blockIdx.x / GROUP;
  const int members = blocks - group * GROUP < GROUP ? blocks - group * GROUP : GROUP;
  float *all = workspace + (int64_t)blockIdx.y * (blocks + groups) * VALUES;
  float *ours = all + (int64_t)blocks * VALUES;
  uint32_t *ticket = tickets + (int)blockIdx.y * (groups + 1);
  if (threadIdx.x < 32)
#pragma unroll
    for (int i = 0; i < N; i++) all[(int64_t)blockIdx.x * VALUES + i * 32 + (int)threadIdx.x] = sum[i];
  if (!last_of(&ticket[group], (unsigned)members)) return;
  for (int v = (int)threadIdx.x; v < VALUES; v += THREADS)
    ours[group * VALUES + v] = sum_of(all + (int64_t)group * GROUP * VALUES + v, members, VALUES);
  if (!last_of(&ticket[groups], (unsigned)groups)) return;
  for (int v = (int)threadIdx.x; v < VALUES; v += THREADS) done(v, sum_of(ours + v, groups, VALUES));
}

template <typename T, int R, int S, int C>
__global__ void __launch_bounds__(THREADS)
    conv_pool_backward(const __grid_constant__ struct conv_pool_args args,
                       const __grid_constant__ struct band_grid grid) {
  constexpr int TAPS = R * S * C, AHEAD = 4;
  extern __shared__ float tile[];
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, first = (int)blockIdx.y * FILTERS;
  const int filters = args.filters - first < FILTERS ? args.filters - first : FILTERS;
  const T *out = (const T *)args.out, *d_out = (const T *)args.d_out;
  float sum[TAPS + 1] = {}; /* the last: of the bias */
  for (int64_t item = blockIdx.x; item < grid.items; item += gridDim.x) {
    const band_places places = band_here(args, grid, item);
    __syncthreads();
    band_fill<T>(args, grid, item, tile);
    __syncthreads();
    for (int o0 = warp; o0 < places.count; o0 += AHEAD * WARPS) {
      float d[AHEAD];
      int which[AHEAD];
#pragma unroll
      for (int a = 0; a < AHEAD; a++) {
        const int64_t at = (places.first + o0 + a * WARPS) * args.filters + first + lane;
        d[a] = 0;
        which[a] = 0;
        if (o0 + a * WARPS < places.count && lane < filters) {
          d[a] = to_float(d_out[at]);
          which[a] = args.place[at];
          if (args.relu && !(to_float(out[at]) > 0.0f)) d[a] = 0;
        }
      }
#pragma unroll
      for (int a = 0; a < AHEAD; a++) {
        const int o = o0 + a * WARPS;
        if (o >= places.count) break;
        const int y = o / args.out_w * args.pool_stride + which[a] / args.pool;
        const int x = o % args.out_w * args.pool_stride + which[a] % args.pool;
        const float *from = tile + y * grid.pitch + x * C;
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
          for (int i = 0; i < S * C; i++)
            sum[r * S * C + i] = fmaf(d[a], from[r * grid.pitch + i], sum[r * S * C + i]);
        sum[TAPS] += d[a];
      }
    }
  }
  block_sum<TAPS + 1>(sum, tile);
  grid_sum<TAPS + 1>(sum, args.workspace, args.tickets, [&](int v, float total) {
    const int filter = v % 32, tap = v / 32;
    if (filter >= filters) return;
    if (tap < TAPS)
      args.d_weight[(int64_t)(first + filter) * TAPS + tap] = total;
    else if (args.d_bias)
      args.d_bias[first + filter] = total;
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

/* Calls body(R, S, C) as constants, if the filters are of a size that is compiled. */
template <typename F> static int with_taps(const struct conv_pool_args *args, F body) {
  const int r = args->kernel_h, s = args->kernel_w, c = args->c;
  if (r == 3 && s == 3 && c == 3) return body(number<3>(), number<3>(), number<3>());
  if (r == 3 && s == 3 && c == 1) return body(number<3>(), number<3>(), number<1>());
  if (r == 5 && s == 5 && c == 1) return body(number<5>(), number<5>(), number<1>());
  return (int)cudaErrorInvalidValue;
}

template <typename F> static int with_pool(const struct conv_pool_args *args, F body) {
  if (args->pool == 2) return body(number<2>());
  if (args->pool == 3) return body(number<3>());
  return (int)cudaErrorInvalidValue;
}

static unsigned filter_blocks(const struct conv_pool_args *args) {
  return (unsigned)ceil_div(args->filters, FILTERS);
}

static int backward_blocks(const struct band_grid *grid) {
  return (int)(grid->items < BLOCKS ? grid->items : BLOCKS);
}

static size_t tile_bytes(const struct band_grid *grid) {
  return (size_t)grid->tile_h * (size_t)grid->pitch * sizeof(float);
}

bool kernel_conv_pool_fits(const struct conv_pool_args *args) {
  if (args->stride != 1 || filter_blocks(args) * (BLOCKS / GROUP + 1) > MOST_TICKETS) return false;
  if (args->w > SHARED || args->pad > SHARED) return false;
  auto any = [](auto...) { return 0; };
  struct band_grid grid = band_grid(args);
  return with_taps(args, any) == 0 && with_pool(args, any) == 0 && tile_bytes(&grid) <= SHARED &&
         grid.items < INT32_MAX;
}

size_t kernel_conv_pool_workspace(const struct conv_pool_args *args) {
  struct band_grid grid = band_grid(args);
  const int64_t blocks = backward_blocks(&grid),
                values = 32 * (args->kernel_h * args->kernel_w * args->c + 1);
  return (size_t)(filter_blocks(args) * (blocks + ceil_div(blocks, GROUP)) * values);
}

int kernel_conv_pool(cudaStream_t stream, const struct conv_pool_args *args) {
  const struct band_grid grid = band_grid(args);
  const dim3 blocks((unsigned)grid.items, filter_blocks(args));
  return with_type(args->dtype, [&](auto type) {
    return with_taps(args, [&](auto r, auto s, auto c) {
      return with_pool(args, [&](auto p) {
        typedef typename decltype(type)::type T;
        constexpr int R = decltype(r)::value, S = decltype(s)::value, C = decltype(c)::value;
        constexpr int P = decltype(p)::value;
        if (args->pool_stride * C % 2 == 0)
          conv_pool<T, R, S, C, P, true><<<blocks, THREADS, tile_bytes(&grid), stream>>>(*args, grid);
        else
          conv_pool<T, R, S, C, P, false><<<blocks, THREADS, tile_bytes(&grid), stream>>>(*args, grid);
        return (int)cudaGetLastError();
      });
    });
  });
}

int kernel_conv_pool_backward_filter(cudaStream_t stream, const struct conv_pool_args *args) {
  const struct band_grid grid = band_grid(args);
  const dim3 blocks((unsigned)backward_blocks(&grid), filter_blocks(args));
  return with_type(args->dtype, [&](auto type) {
    return with_taps(args, [&](auto r, auto s, auto c) {
      typedef typename decltype(type)::type T;
      constexpr int R = decltype(r)::value, S = decltype(s)::value, C = decltype(c)::value;
      constexpr size_t sums = WARPS / 2 * (R * S * C + 1) * 32 * sizeof(float);
      const size_t bytes = tile_bytes(&grid) > sums ? tile_bytes(&grid) : sums;
      conv_pool_backward<T, R, S, C><<<blocks, THREADS, bytes, stream>>>(*args, grid);
      return (int)cudaGetLastError();
    });
  });
}

int kernel_conv_pool_backward_data(cudaStream_t stream, const struct conv_pool_args *args) {
  const int64_t count = args->n * args->h * args->w * args->c;
  return with_type(args->dtype, [&](auto type) {
    typedef typename decltype(type)::type T;
    conv_pool_backward_data<T><<<(unsigned)ceil_div(count, THREADS), THREADS, 0, stream>>>(*args, count);
    return (int)cudaGetLastError();
  });
}
