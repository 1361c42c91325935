/* Batch normalisation with what follows it, backward; see cuda_norm.h.
 *
 * First pass: 2 reads (3 with a residual and an activation, and the masked gradient is written); second pass:
 * 2 reads, 1 or 2 writes. Without a residual the activation's slope comes from recomputing its input, so
 * `out` is not read. */
#include "model/ops/cuda_norm.h"

/* Where the gradient after the activation comes from. */
enum source {
  SOURCE_PLAIN, /* d_out itself: no activation */
  SOURCE_OUT,   /* relu with a residual: out tells the sign */
  SOURCE_MASK,  /* the same, and the first pass leaves the gradient in d_residual for the second */
  SOURCE_IN,    /* no residual: the activation's input is recomputed from in */
  SOURCE_BOTH,  /* gelu or silu with a residual: from in and residual */
};

/* The factor of a channel. Without statistics of the batch (mean NULL) the running ones are constants. */
static __device__ __forceinline__ float running_invstd(const norm_args &args, float var) {
  return 1.0f / sqrtf(var + args.epsilon);
}
static __device__ __forceinline__ float invstd_of(const norm_args &args, int64_t channel) {
  return args.mean ? args.invstd[channel] : running_invstd(args, args.running_var[channel]);
}

/* What the kernel knows of its V channels. */
template <int V> struct norm_channels {
  float mean[V], scale[V], bias[V], factor[V];
  __device__ __forceinline__ void read_mean(const norm_args &args, int64_t channel) {
    load<float, V>((args.mean ? args.mean : args.running_mean) + channel, mean);
  }
  __device__ __forceinline__ void read_line(const norm_args &args, int64_t channel) {
    load<float, V>((args.mean ? args.invstd : args.running_var) + channel, factor);
    load<float, V>(args.weight + channel, scale);
    load<float, V>(args.bias + channel, bias);
  }
  /* scale = weight * invstd, once what was read is needed. */
  __device__ __forceinline__ void settle(const norm_args &args) {
    if (!args.mean)
#pragma unroll
      for (int i = 0; i < V; i++) factor[i] = running_invstd(args, factor[i]);
#pragma unroll
    for (int i = 0; i < V; i++) scale[i] *= factor[i];
  }
};

/* The array beside in and d_out that the slope needs, if it needs one. */
template <int S> constexpr bool slope_reads = S == SOURCE_OUT || S == SOURCE_MASK || S == SOURCE_BOTH;
template <typename T, int S> __device__ __forceinline__ const T *slope_array(const norm_args &args) {
  return (const T *)(S == SOURCE_BOTH ? args.residual : args.out);
}

/* d *= the activation's slope; x is the value of in, other that of slope_array. */
template <int V, int A, int S>
__device__ __forceinline__ void slope_of(const norm_channels<V> &channel, const float (&x)[V],
                                         const float (&other)[V], float (&d)[V]) {
#pragma unroll
  for (int i = 0; i < V; i++) {
    float z = other[i];
    if (S == SOURCE_IN) z = fmaf(x[i] - channel.mean[i], channel.scale[i], channel.bias[i]);
    if (S == SOURCE_BOTH) z += fmaf(x[i] - channel.mean[i], channel.scale[i], channel.bias[i]);
    if (S != SOURCE_PLAIN) d[i] *= slope<A>(z);
  }
}

/* Rows that the first pass has asked for. */
template <typename T, int V, int S> struct reduce_batch {
  norm_row<T, V> x[NORM_AT_ONCE], d[NORM_AT_ONCE], o[NORM_AT_ONCE];
  __device__ __forceinline__ void load(const norm_args &args, const norm_walk &walk) {
    const T *in = (const T *)args.in, *d_out = (const T *)args.d_out, *beside = slope_array<T, S>(args);
    if (walk.left <= 0) return;
#pragma unroll
    for (int u = 0; u < NORM_AT_ONCE; u++) {
      const int64_t index = walk.at(u);
      x[u].load(in + index);
      S == SOURCE_MASK ? d[u].load_once(d_out + index) : d[u].load(d_out + index);
      if (slope_reads<S>) S == SOURCE_MASK ? o[u].load_once(beside + index) : o[u].load(beside + index);
    }
    norm_loaded();
  }
};

/* there: the first rows have been asked for. */
template <typename T, int V, int A, int S>
__device__ __forceinline__ void reduce_rows(const norm_args &args, const norm_channels<V> &channel,
                                            norm_walk walk, reduce_batch<T, V, S> &rows, bool there,
                                            float (&sum)[V], float (&product)[V]) {
  for (; walk.left > 0; walk.advance(), there = false) {
    if (!there) rows.load(args, walk);
#pragma unroll
    for (int u = 0; u < NORM_AT_ONCE; u++)
      if (walk.has(u)) {
        float value[V], gradient[V], other[V] = {};
        rows.x[u].read(value);
        rows.d[u].read(gradient);
        if (slope_reads<S>) rows.o[u].read(other);
        slope_of<V, A, S>(channel, value, other, gradient);
        if (S == SOURCE_MASK) store<T, V>((T *)args.d_residual + walk.at(u), gradient);
#pragma unroll
        for (int i = 0; i < V; i++) {
          sum[i] += gradient[i];
          product[i] = fmaf(gradient[i], value[i] - channel.mean[i], product[i]);
        }
      }
  }
}

/* What norm_finish makes of the sums. */
template <int V> struct norm_gradient { float slant[V], offset[V]; };

/* Rows that the second pass has asked for. */
template <typename T, int V, int S> struct backward_batch {
  static constexpr bool READS = slope_reads<S> && S != SOURCE_MASK;
  norm_row<T, V> x[NORM_AT_ONCE], d[NORM_AT_ONCE], o[NORM_AT_ONCE];
  __device__ __forceinline__ void load(const norm_args &args, const norm_walk &walk) {
    const T *in = (const T *)args.in, *beside = slope_array<T, S>(args);
    const T *d_out = (const T *)(S == SOURCE_MASK ? args.d_residual : args.d_out);
    if (walk.left <= 0) return;
#pragma unroll
    for (int u = 0; u < NORM_AT_ONCE; u++) {
      const int64_t index = walk.at(u);
      x[u].load_once(in + index);
      d[u].load_once(d_out + index);
      if (READS) o[u].load_once(beside + index);
    }
    norm_loaded();
  }
};

/* there: the first rows have been asked for. */
template <typename T, int V, int A, int S>
__device__ __forceinline__ void backward_rows(const norm_args &args, const norm_channels<V> &channel,
                                              const norm_gradient<V> &line, norm_walk walk,
                                              backward_batch<T, V, S> &rows, bool there) {
  T *d_in = (T *)args.d_in, *d_residual = S == SOURCE_MASK ? nullptr : (T *)args.d_residual;
  for (; walk.left > 0; walk.advance(), there = false) {
    if (!there) rows.load(args, walk);
#pragma unroll
    for (int u = 0; u < NORM_AT_ONCE; u++)
      if (walk.has(u)) {
        float value[V], gradient[V], other[V] = {};
        const int64_t index = walk.at(u);
        rows.x[u].read(value);
        rows.d[u].read(gradient);
        if (rows.READS) rows.o[u].read(other);
        if (S != SOURCE_MASK) slope_of<V, A, S>(channel, value, other, gradient);
#pragma unroll
        for (int i = 0; i < V; i++)
          value[i] = fmaf(channel.scale[i], gradient[i],
                          fmaf(value[i] - channel.mean[i], line.slant[i], line.offset[i]));
        if (d_residual) put<T, V>(d_residual + index, gradient, args.d_residual_add);
        put<T, V>(d_in + index, value, args.d_in_add);
      }
  }
}

template <typename T, int V, int A, int S>
__global__ void __launch_bounds__(CHANNEL_THREADS, 1)
    norm_backward(const __grid_constant__ struct norm_args args, const struct channel_grid grid,
                  const float share) {
  __shared__ channel_sums sums;
  __shared__ float2 finished[CHANNEL_TILE];
  /* Does the first pass need the line's scale? Are the first and the second pass's first rows asked for
   * ahead? Where registers hold them; without a scale nothing stands in front of the first anyway. */
  constexpr bool EARLY = S == SOURCE_IN || S == SOURCE_BOTH;
  constexpr bool SECOND = A == ACTIVATION_NONE || A == ACTIVATION_RELU;
  constexpr bool AHEAD = S == SOURCE_IN && A == ACTIVATION_RELU;
  const channel_place at = channel_here(grid, V);
  const int tile = grid.lanes * V, lane = (int)threadIdx.x & (grid.lanes - 1);
  const int64_t mine = (int64_t)blockIdx.y * tile + threadIdx.x;
  const bool owner = (int)threadIdx.x < tile && mine < grid.channels;
  const norm_walk back(grid, at, true), walk(grid, at, false);
  reduce_batch<T, V, S> first;
  backward_batch<T, V, S> second;
  if (AHEAD) first.load(args, back);
  const float invstd = owner ? invstd_of(args, mine) : 0.0f, weight = owner ? args.weight[mine] : 0.0f;
  norm_channels<V> channel = {};
  float sum[V] = {}, product[V] = {};
  if (at.channel < grid.channels) {
    channel.read_mean(args, at.channel);
    if (EARLY) channel.read_line(args, at.channel);
  }
  if (EARLY) channel.settle(args);
  reduce_rows<T, V, A, S>(args, channel, back, first, AHEAD, sum, product);
  if (!EARLY && at.channel < grid.channels) channel.read_line(args, at.channel);
  if (SECOND && args.d_in) second.load(args, walk);
  const double2 total = channel_sum_all<V>(sum, product, grid, args.workspace, args.tickets, sums);
  if (owner) finished[threadIdx.x] = norm_finish(args, total, share, invstd, weight, mine);
  __syncthreads();
  if (!args.d_in) return;
  if (!EARLY) channel.settle(args);
  norm_gradient<V> line;
#pragma unroll
  for (int i = 0; i < V; i++) {
    line.slant[i] = finished[lane * V + i].x;
    line.offset[i] = finished[lane * V + i].y;
  }
  backward_rows<T, V, A, S>(args, channel, line, walk, second, SECOND);
}

/* The first pass leaves the gradient after the activation in d_residual if that place is overwritten and
 * rounding loses nothing, as for relu. */
static enum source norm_source(const struct norm_args *args) {
  if (args->activation == ACTIVATION_NONE) return SOURCE_PLAIN;
  if (!args->residual) return SOURCE_IN;
  if (args->activation != ACTIVATION_RELU) return SOURCE_BOTH;
  return args->d_residual && !args->d_residual_add ? SOURCE_MASK : SOURCE_OUT;
}

/* Calls body(type, vector, activation, source) for the combinations that occur. */
template <typename F> static int with_source(const struct norm_args *args, enum source source, F body) {
  return norm_with_vector(args, [&](auto type, auto vector) {
    const bool gelu = args->activation == ACTIVATION_GELU, relu = args->activation == ACTIVATION_RELU;
    switch (source) {
    case SOURCE_PLAIN:
      return body(type, vector, number<ACTIVATION_NONE>(), number<SOURCE_PLAIN>());
    case SOURCE_OUT:
      return body(type, vector, number<ACTIVATION_RELU>(), number<SOURCE_OUT>());
    case SOURCE_MASK:
      return body(type, vector, number<ACTIVATION_RELU>(), number<SOURCE_MASK>());
    case SOURCE_BOTH:
      if (gelu) return body(type, vector, number<ACTIVATION_GELU>(), number<SOURCE_BOTH>());
      return body(type, vector, number<ACTIVATION_SILU>(), number<SOURCE_BOTH>());
    case SOURCE_IN:
      if (relu) return body(type, vector, number<ACTIVATION_RELU>(), number<SOURCE_IN>());
      if (gelu) return body(type, vector, number<ACTIVATION_GELU>(), number<SOURCE_IN>());
      return body(type, vector, number<ACTIVATION_SILU>(), number<SOURCE_IN>());
    }
    return (int)cudaErrorInvalidValue;
  });
}

int kernel_norm_backward(cudaStream_t stream, const struct norm_args *args) {
  return with_source(args, norm_source(args), [&](auto type, auto vector, auto which, auto source) {
    typedef typename decltype(type)::type T;
    constexpr int V = decltype(vector)::value;
    struct channel_grid grid = channel_grid(args->rows, args->channels, V, norm_blocks());
    return norm_launch(stream, norm_backward<T, V, decltype(which)::value, decltype(source)::value>, grid,
                       *args, grid, args->mean ? 1.0f / (float)args->rows : 0.0f);
  });
}
