/* Batch normalisation with what follows it, forward; see cuda_norm.h.
 *
 * Training reads the tensor twice, evaluation once; both write it once. */
#include "model/ops/cuda_norm.h"

size_t kernel_channel_workspace(enum dtype dtype, int64_t rows, int64_t channels) {
  int vector = dtype == DTYPE_BF16 ? wide<bf16>::count : wide<float>::count;
  size_t most = 0;
  if (channels % vector == 0) {
    struct channel_grid grid = channel_grid(rows, channels, vector, CHANNEL_SUM_BLOCKS);
    most = channel_partials(&grid, vector);
  }
  struct channel_grid narrow = channel_grid(rows, channels, 1, CHANNEL_SUM_BLOCKS);
  size_t other = channel_partials(&narrow, 1);
  return most > other ? most : other;
}

/* out = activation((in - mean) * scale + bias + residual) for V channels. */
template <int V> struct norm_line { float mean[V], scale[V], bias[V]; };

/* Rows that the second pass has asked for. */
template <typename T, int V> struct apply_batch {
  norm_row<T, V> x[NORM_AT_ONCE], r[NORM_AT_ONCE];
  __device__ __forceinline__ void load(const norm_args &args, const norm_walk &walk) {
    const T *in = (const T *)args.in, *residual = (const T *)args.residual;
    if (walk.left <= 0) return;
#pragma unroll
    for (int u = 0; u < NORM_AT_ONCE; u++) {
      const int64_t index = walk.at(u);
      x[u].load_once(in + index);
      if (residual) r[u].load_once(residual + index);
    }
    norm_loaded();
  }
};

/* there: the first rows have been asked for. */
template <typename T, int V, int A>
__device__ __forceinline__ void apply_rows(const norm_args &args, const norm_line<V> &line, norm_walk walk,
                                           apply_batch<T, V> &rows, bool there) {
  for (; walk.left > 0; walk.advance(), there = false) {
    if (!there) rows.load(args, walk);
#pragma unroll
    for (int u = 0; u < NORM_AT_ONCE; u++)
      if (walk.has(u)) {
        float value[V], add[V] = {};
        rows.x[u].read(value);
        if (args.residual) rows.r[u].read(add);
#pragma unroll
        for (int i = 0; i < V; i++)
          value[i] = activate<A>(fmaf(value[i] - line.mean[i], line.scale[i], line.bias[i]) + add[i]);
        store<T, V>((T *)args.out + walk.at(u), value);
      }
  }
}

/* Rows that the first pass has asked for. */
template <typename T, int V> struct sum_batch {
  norm_row<T, V> x[NORM_AT_ONCE];
  __device__ __forceinline__ void load(const T *in, const norm_walk &walk) {
    if (walk.left <= 0) return;
#pragma unroll
    for (int u = 0; u < NORM_AT_ONCE; u++) x[u].load(in + walk.at(u));
    norm_loaded();
  }
};

/* Shifted sums (Chan, Golub and LeVeque, 1983): the shift, a channel's first value, keeps the variance exact
 * for means far from zero. */
template <typename T, int V>
__device__ __forceinline__ void sum_rows(const T *in, norm_walk walk, sum_batch<T, V> &rows,
                                         const float (&shift)[V], float (&sum)[V], float (&square)[V]) {
  for (bool there = true; walk.left > 0; walk.advance(), there = false) {
    if (!there) rows.load(in, walk);
#pragma unroll
    for (int u = 0; u < NORM_AT_ONCE; u++)
      if (walk.has(u)) {
        float value[V];
        rows.x[u].read(value);
#pragma unroll
        for (int i = 0; i < V; i++) {
          const float d = value[i] - shift[i];
          sum[i] += d;
          square[i] = fmaf(d, d, square[i]);
        }
      }
  }
}

/* *args.scale, read before the sums are there. */
static __device__ __forceinline__ float norm_scale(const norm_args &args) {
  return args.batch_mean ? *args.scale : 0.0f;
}

/* Mean and factor of one channel, from its shifted sums. share: 1 / rows; scale: norm_scale. */
static __device__ __forceinline__ float2 norm_moments(const norm_args &args, double2 total, double share,
                                                      float shift, float scale, int64_t channel) {
  const double mean = total.x * share, centre = mean + (double)shift;
  double var = total.y * share - mean * mean;
  if (var < 0) var = 0; /* NaN stays */
  const float2 made = make_float2((float)centre, 1.0f / sqrtf((float)(var + (double)args.epsilon)));
  if (blockIdx.x != 0) return made;
  args.mean[channel] = made.x;
  args.invstd[channel] = made.y;
  if (args.batch_mean) {
    const double n = (double)args.rows, weight = (double)args.batch * (double)scale;
    args.batch_mean[channel] = (float)(weight * centre);
    args.batch_var[channel] = (float)(weight * (n > 1 ? var * n / (n - 1) : var));
  }
  return made;
}

template <typename T, int V, int A>
__global__ void __launch_bounds__(CHANNEL_THREADS, 1)
    norm_forward(const __grid_constant__ struct norm_args args, const struct channel_grid grid,
                 const double share) {
  __shared__ channel_sums sums;
  __shared__ float2 moments[CHANNEL_TILE];
  const channel_place at = channel_here(grid, V);
  const T *in = (const T *)args.in;
  const int tile = grid.lanes * V, lane = (int)threadIdx.x & (grid.lanes - 1);
  const int64_t mine = (int64_t)blockIdx.y * tile + threadIdx.x;
  const bool owner = (int)threadIdx.x < tile && mine < grid.channels;
  const norm_walk back(grid, at, true), walk(grid, at, false);
  sum_batch<T, V> first;
  apply_batch<T, V> second;
  first.load(in, back);
  const float scale = norm_scale(args);
  T start = from_float<T>(0.0f);
  if (owner) start = in[mine];
  float sum[V] = {}, square[V] = {}, shift[V] = {};
  norm_line<V> line = {};
  if (at.channel < grid.channels) {
    load<T, V>(in + at.channel, shift);
    load<float, V>(args.weight + at.channel, line.scale);
    load<float, V>(args.bias + at.channel, line.bias);
  }
  sum_rows<T, V>(in, back, first, shift, sum, square);
  second.load(args, walk);
  const double2 total = channel_sum_all<V>(sum, square, grid, args.workspace, args.tickets, sums);
  if (owner) moments[threadIdx.x] = norm_moments(args, total, share, to_float(start), scale, mine);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < V; i++) {
    line.mean[i] = moments[lane * V + i].x;
    line.scale[i] *= moments[lane * V + i].y;
  }
  apply_rows<T, V, A>(args, line, walk, second, true);
}

/* Shifted sums of a tile's channels, as channel_sum_all gives them, from the moments of parts of the rows. */
static __device__ __forceinline__ double2 norm_sum_parts(const norm_args &args, int tile, int64_t channels,
                                                         double2 (&group)[CHANNEL_THREADS], float *shift) {
  enum { LOADS = 16 }; /* in flight */
  const int groups = CHANNEL_THREADS / tile, v = (int)threadIdx.x % tile, mine = (int)threadIdx.x / tile;
  const int64_t channel = (int64_t)blockIdx.y * tile + v;
  const float2 *part = (const float2 *)args.part + channel;
  const int most = (int)((args.pieces + args.parts - 1) / args.parts),
            large = (int)(args.pieces - (int64_t)(most - 1) * args.parts);
  const double piece = (double)(args.rows / args.pieces);
  double2 sum = make_double2(0, 0), whole = sum;
  *shift = channel < channels ? part[0].x : 0.0f;
  for (int p = mine; channel < channels && p < args.parts; p += LOADS * groups) {
    float2 m[LOADS];
#pragma unroll
    for (int u = 0; u < LOADS; u++)
      m[u] = part[(int64_t)(p + u * groups < args.parts ? p + u * groups : p) * channels];
#pragma unroll
    for (int u = 0; u < LOADS; u++)
      if (p + u * groups < args.parts) {
        const double count = piece * (p + u * groups < large ? most : most - 1),
                     d = (double)m[u].x - (double)*shift;
        sum.x += count * d;
        sum.y += (double)m[u].y + count * d * d;
      }
  }
  group[threadIdx.x] = sum;
  __syncthreads();
  if ((int)threadIdx.x < tile)
    for (int g = 0; g < groups; g++) {
      whole.x += group[g * tile + (int)threadIdx.x].x;
      whole.y += group[g * tile + (int)threadIdx.x].y;
    }
  return whole;
}

/* With the moments of parts: blocks need not wait for each other. */
template <typename T, int V, int A>
__global__ void __launch_bounds__(CHANNEL_THREADS, 1)
    norm_forward_parts(const __grid_constant__ struct norm_args args, const struct channel_grid grid,
                       const double share) {
  __shared__ double2 group[CHANNEL_THREADS];
  __shared__ float2 moments[CHANNEL_TILE];
  const channel_place at = channel_here(grid, V);
  const int tile = grid.lanes * V, lane = (int)threadIdx.x & (grid.lanes - 1);
  const int64_t mine = (int64_t)blockIdx.y * tile + threadIdx.x;
  const norm_walk walk(grid, at, true);
  apply_batch<T, V> rows;
  norm_line<V> line = {};
  if (at.channel < grid.channels) {
    load<float, V>(args.weight + at.channel, line.scale);
    load<float, V>(args.bias + at.channel, line.bias);
  }
  float shift;
  const double2 total = norm_sum_parts(args, tile, grid.channels, group, &shift);
  rows.load(args, walk);
  const float scale = norm_scale(args);
  if ((int)threadIdx.x < tile && mine < grid.channels)
    moments[threadIdx.x] = norm_moments(args, total, share, shift, scale, mine);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < V; i++) {
    line.mean[i] = moments[lane * V + i].x;
    line.scale[i] *= moments[lane * V + i].y;
  }
  apply_rows<T, V, A>(args, line, walk, rows, true);
}

template <typename T, int V, int A>
__global__ void __launch_bounds__(CHANNEL_THREADS)
    norm_apply(const __grid_constant__ struct norm_args args, const struct channel_grid grid) {
  const channel_place at = channel_here(grid, V);
  if (at.channel >= grid.channels) return;
  apply_batch<T, V> rows;
  norm_line<V> line;
  float var[V];
  load<float, V>(args.weight + at.channel, line.scale);
  load<float, V>(args.bias + at.channel, line.bias);
  load<float, V>(args.running_mean + at.channel, line.mean);
  load<float, V>(args.running_var + at.channel, var);
#pragma unroll
  for (int i = 0; i < V; i++) line.scale[i] *= 1.0f / sqrtf(var[i] + args.epsilon);
  apply_rows<T, V, A>(args, line, norm_walk(grid, at, false), rows, false);
}

int kernel_norm_forward(cudaStream_t stream, const struct norm_args *args) {
  return norm_with_vector(args, [&](auto type, auto vector) {
    return with_activation(args->activation, [&](auto which) {
      typedef typename decltype(type)::type T;
      constexpr int V = decltype(vector)::value;
      struct channel_grid grid = channel_grid(args->rows, args->channels, V, norm_blocks());
      if (args->part) {
        norm_forward_parts<T, V, decltype(which)::value>
            <<<channel_blocks(grid), CHANNEL_THREADS, 0, stream>>>(*args, grid, 1.0 / (double)args->rows);
        return (int)cudaGetLastError();
      }
      return norm_launch(stream, norm_forward<T, V, decltype(which)::value>, grid, *args, grid,
                         1.0 / (double)args->rows);
    });
  });
}

int kernel_norm_apply(cudaStream_t stream, const struct norm_args *args) {
  return norm_with_vector(args, [&](auto type, auto vector) {
    return with_activation(args->activation, [&](auto which) {
      typedef typename decltype(type)::type T;
      constexpr int V = decltype(vector)::value;
      struct channel_grid grid = channel_grid(args->rows, args->channels, V, CHANNEL_EACH_BLOCKS);
      norm_apply<T, V, decltype(which)::value>
          <<<channel_blocks(grid), CHANNEL_THREADS, 0, stream>>>(*args, grid);
      return (int)cudaGetLastError();
    });
  });
}
