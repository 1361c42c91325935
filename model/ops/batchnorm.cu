/* Batch normalisation with what follows it, forward and backward.
 *
 * Passes over the activations: statistics 1 read; apply 1 read (2 with a residual), 1 write; backward reduce
 * 2 reads (3 with a residual and an activation); backward apply the same reads and 1 or 2 writes. Without a
 * residual the activation's slope comes from recomputing its input, so `out` is not read. */
#include "model/ops/cuda_channel.h"

extern "C" {
#include "model/ops/kernels.h"
}

enum { AT_ONCE = 4 }; /* rows in flight a thread */

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

/* What the backward kernels know of their V channels. */
template <int V> struct channel_values {
  float mean[V], invstd[V], scale[V], bias[V]; /* scale = weight * invstd */
  __device__ __forceinline__ void read(const struct norm_args &args, int64_t channel) {
    load<float, V>(args.mean + channel, mean);
    load<float, V>(args.invstd + channel, invstd);
    load<float, V>(args.weight + channel, scale);
    load<float, V>(args.bias + channel, bias);
#pragma unroll
    for (int i = 0; i < V; i++) scale[i] *= invstd[i];
  }
};

/* Shifted sums (Chan, Golub and LeVeque, 1983): the shift, a channel's first value, keeps the variance exact
 * for means far from zero. */
template <typename T, int V>
__global__ void __launch_bounds__(CHANNEL_THREADS)
    norm_statistics(const __grid_constant__ struct norm_args args, const struct channel_grid grid) {
  __shared__ double total[2 * CHANNEL_MAX_LANES * V];
  const channel_place at = channel_here(grid, V);
  const T *in = (const T *)args.in;
  float shift[V] = {}, sum[V] = {}, square[V] = {};
  if (at.channel < grid.channels) {
    load<T, V>(in + at.channel, shift);
    for (int64_t row = at.row; row < grid.rows; row += AT_ONCE * at.stride) {
      float x[AT_ONCE][V];
#pragma unroll
      for (int u = 0; u < AT_ONCE; u++)
        if (row + u * at.stride < grid.rows)
          load<T, V>(in + (row + u * at.stride) * grid.channels + at.channel, x[u]);
        else
#pragma unroll
          for (int i = 0; i < V; i++) x[u][i] = shift[i];
#pragma unroll
      for (int u = 0; u < AT_ONCE; u++)
#pragma unroll
        for (int i = 0; i < V; i++) {
          float d = x[u][i] - shift[i];
          sum[i] += d;
          square[i] = fmaf(d, d, square[i]);
        }
    }
  }
  if (!channel_sum<V>(sum, square, grid, args.workspace, args.tickets, total)) return;
  const int tile = grid.lanes * V;
  const int64_t channel = (int64_t)blockIdx.y * tile + threadIdx.x;
  if ((int)threadIdx.x >= tile || channel >= grid.channels) return;
  const double n = (double)grid.rows, mean = total[threadIdx.x] / n;
  double var = total[tile + threadIdx.x] / n - mean * mean;
  if (var < 0) var = 0; /* NaN stays */
  const double centre = mean + (double)to_float(in[channel]);
  args.mean[channel] = (float)centre;
  args.invstd[channel] = (float)(1.0 / sqrt(var + (double)args.epsilon));
  if (args.batch_mean) {
    const double weight = (double)args.batch * (double)*args.scale;
    args.batch_mean[channel] = (float)(weight * centre);
    args.batch_var[channel] = (float)(weight * (n > 1 ? var * n / (n - 1) : var));
  }
}

template <typename T, int V, int A>
__global__ void __launch_bounds__(CHANNEL_THREADS)
    norm_apply(const __grid_constant__ struct norm_args args, const struct channel_grid grid) {
  const channel_place at = channel_here(grid, V);
  if (at.channel >= grid.channels) return;
  const T *in = (const T *)args.in, *residual = (const T *)args.residual;
  T *out = (T *)args.out;
  float mean[V], scale[V], bias[V];
  load<float, V>(args.weight + at.channel, scale);
  load<float, V>(args.bias + at.channel, bias);
  load<float, V>((args.mean ? args.mean : args.running_mean) + at.channel, mean);
  {
    float invstd[V];
    load<float, V>((args.mean ? args.invstd : args.running_var) + at.channel, invstd);
#pragma unroll
    for (int i = 0; i < V; i++) scale[i] *= args.mean ? invstd[i] : 1.0f / sqrtf(invstd[i] + args.epsilon);
  }
  for (int64_t row = at.row; row < grid.rows; row += AT_ONCE * at.stride) {
    float x[AT_ONCE][V], r[AT_ONCE][V];
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++)
      if (row + u * at.stride < grid.rows) {
        const int64_t index = (row + u * at.stride) * grid.channels + at.channel;
        load<T, V>(in + index, x[u]);
        if (residual) load<T, V>(residual + index, r[u]);
      }
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++)
      if (row + u * at.stride < grid.rows) {
#pragma unroll
        for (int i = 0; i < V; i++) {
          float z = fmaf(x[u][i] - mean[i], scale[i], bias[i]);
          if (residual) z += r[u][i];
          x[u][i] = activate<A>(z);
        }
        store<T, V>(out + (row + u * at.stride) * grid.channels + at.channel, x[u]);
      }
  }
}

/* Where the gradient after the activation comes from. */
enum source {
  SOURCE_PLAIN, /* d_out itself: no activation, or already applied by the reduce pass */
  SOURCE_OUT,   /* relu with a residual: out tells the sign */
  SOURCE_IN,    /* no residual: the activation's input is recomputed from in */
  SOURCE_BOTH,  /* gelu or silu with a residual: from in and residual */
};

template <typename T, int V, int A, int S>
__device__ __forceinline__ void slope_of(const struct norm_args &args, const channel_values<V> &channel,
                                         int64_t index, const float (&x)[V], float (&d)[V]) {
  if (S == SOURCE_PLAIN) return;
  float z[V];
  if (S == SOURCE_OUT) {
    load<T, V>((const T *)args.out + index, z);
  } else {
#pragma unroll
    for (int i = 0; i < V; i++) z[i] = fmaf(x[i] - channel.mean[i], channel.scale[i], channel.bias[i]);
  }
  if (S == SOURCE_BOTH) {
    float r[V];
    load<T, V>((const T *)args.residual + index, r);
#pragma unroll
    for (int i = 0; i < V; i++) z[i] += r[i];
  }
#pragma unroll
  for (int i = 0; i < V; i++) d[i] *= slope<A>(z[i]);
}

/* If `masked` is set, the gradient after the activation is also written to d_residual. */
template <typename T, int V, int A, int S>
__global__ void __launch_bounds__(CHANNEL_THREADS)
    norm_reduce(const __grid_constant__ struct norm_args args, const struct channel_grid grid,
                const bool masked) {
  __shared__ double total[2 * CHANNEL_MAX_LANES * V];
  const channel_place at = channel_here(grid, V);
  const T *in = (const T *)args.in, *d_out = (const T *)args.d_out;
  T *kept = (T *)args.d_residual;
  float sum[V] = {}, product[V] = {};
  if (at.channel < grid.channels) {
    channel_values<V> channel;
    channel.read(args, at.channel);
#pragma unroll 2
    for (int64_t row = at.row; row < grid.rows; row += at.stride) {
      const int64_t index = row * grid.channels + at.channel;
      float x[V], d[V];
      load<T, V>(in + index, x);
      load<T, V>(d_out + index, d);
      slope_of<T, V, A, S>(args, channel, index, x, d);
      if (masked) store<T, V>(kept + index, d);
#pragma unroll
      for (int i = 0; i < V; i++) {
        sum[i] += d[i];
        product[i] = fmaf(d[i], x[i] - channel.mean[i], product[i]);
      }
    }
  }
  if (!channel_sum<V>(sum, product, grid, args.workspace, args.tickets, total)) return;
  const int tile = grid.lanes * V;
  const int64_t channel = (int64_t)blockIdx.y * tile + threadIdx.x;
  if ((int)threadIdx.x >= tile || channel >= grid.channels) return;
  args.d_bias[channel] = (float)total[threadIdx.x];
  args.d_weight[channel] = (float)(total[tile + threadIdx.x] * (double)args.invstd[channel]);
}

/* d_in = weight invstd (d - mean(d) - xhat mean(d xhat)); `masked`: d lies in d_residual. */
template <typename T, int V, int A, int S>
__global__ void __launch_bounds__(CHANNEL_THREADS)
    norm_backward(const __grid_constant__ struct norm_args args, const struct channel_grid grid,
                  const bool masked) {
  const channel_place at = channel_here(grid, V);
  if (at.channel >= grid.channels) return;
  const T *in = (const T *)args.in, *d_out = (const T *)(masked ? args.d_residual : args.d_out);
  T *d_in = (T *)args.d_in, *d_residual = masked ? nullptr : (T *)args.d_residual;
  channel_values<V> channel;
  float mean_d[V], mean_product[V];
  channel.read(args, at.channel);
  load<float, V>(args.d_bias + at.channel, mean_d);
  load<float, V>(args.d_weight + at.channel, mean_product);
  const float share = 1.0f / (float)grid.rows;
#pragma unroll
  for (int i = 0; i < V; i++) {
    mean_d[i] *= share;
    mean_product[i] *= share * channel.invstd[i];
  }
#pragma unroll 2
  for (int64_t row = at.row; row < grid.rows; row += at.stride) {
    const int64_t index = row * grid.channels + at.channel;
    float x[V], d[V];
    load<T, V>(in + index, x);
    load<T, V>(d_out + index, d);
    slope_of<T, V, A, S>(args, channel, index, x, d);
#pragma unroll
    for (int i = 0; i < V; i++)
      x[i] = channel.scale[i] * (d[i] - mean_d[i] - (x[i] - channel.mean[i]) * mean_product[i]);
    if (d_residual) put<T, V>(d_residual + index, d, args.d_residual_add);
    put<T, V>(d_in + index, x, args.d_in_add);
  }
}

static bool norm_aligned(const struct norm_args *a) {
  return aligned16(a->in) && aligned16(a->residual) && aligned16(a->out) && aligned16(a->weight) &&
         aligned16(a->bias) && aligned16(a->mean) && aligned16(a->invstd) && aligned16(a->running_mean) &&
         aligned16(a->running_var) && aligned16(a->d_out) && aligned16(a->d_in) && aligned16(a->d_residual) &&
         aligned16(a->d_weight) && aligned16(a->d_bias);
}

/* Calls body(type, vector) for the args. */
template <typename F> static int with_vector(const struct norm_args *args, F body) {
  return with_type(args->dtype, [&](auto type) {
    typedef typename decltype(type)::type T;
    if (channel_wide<T>(args->channels, norm_aligned(args))) return body(type, number<wide<T>::count>());
    return body(type, number<1>());
  });
}

int kernel_norm_statistics(cudaStream_t stream, const struct norm_args *args) {
  return with_vector(args, [&](auto type, auto vector) {
    typedef typename decltype(type)::type T;
    constexpr int V = decltype(vector)::value;
    struct channel_grid grid = channel_grid(args->rows, args->channels, V, CHANNEL_SUM_BLOCKS);
    norm_statistics<T, V>
        <<<dim3((unsigned)grid.slices, (unsigned)grid.tiles), CHANNEL_THREADS, 0, stream>>>(*args, grid);
    return (int)cudaGetLastError();
  });
}

int kernel_norm_apply(cudaStream_t stream, const struct norm_args *args) {
  return with_vector(args, [&](auto type, auto vector) {
    return with_activation(args->activation, [&](auto which) {
      typedef typename decltype(type)::type T;
      constexpr int V = decltype(vector)::value;
      struct channel_grid grid = channel_grid(args->rows, args->channels, V, CHANNEL_EACH_BLOCKS);
      norm_apply<T, V, decltype(which)::value>
          <<<dim3((unsigned)grid.slices, (unsigned)grid.tiles), CHANNEL_THREADS, 0, stream>>>(*args, grid);
      return (int)cudaGetLastError();
    });
  });
}

/* The reduce pass may leave the gradient after the activation where d_residual belongs, so that the apply
 * pass need not look at the activation again: if that place is overwritten and rounding loses nothing, as for
 * relu. */
static bool norm_masked(const struct norm_args *args) {
  return args->activation == ACTIVATION_RELU && args->residual && args->d_residual && !args->d_residual_add;
}

static enum source norm_source(const struct norm_args *args) {
  if (args->activation == ACTIVATION_NONE) return SOURCE_PLAIN;
  if (!args->residual) return SOURCE_IN;
  return args->activation == ACTIVATION_RELU ? SOURCE_OUT : SOURCE_BOTH;
}

/* Calls body(type, vector, activation, source) for the combinations that occur. */
template <typename F> static int with_source(const struct norm_args *args, enum source source, F body) {
  return with_vector(args, [&](auto type, auto vector) {
    if (source == SOURCE_PLAIN) return body(type, vector, number<ACTIVATION_NONE>(), number<SOURCE_PLAIN>());
    if (source == SOURCE_OUT) return body(type, vector, number<ACTIVATION_RELU>(), number<SOURCE_OUT>());
    if (source == SOURCE_BOTH) {
      if (args->activation == ACTIVATION_GELU)
        return body(type, vector, number<ACTIVATION_GELU>(), number<SOURCE_BOTH>());
      return body(type, vector, number<ACTIVATION_SILU>(), number<SOURCE_BOTH>());
    }
    if (args->activation == ACTIVATION_RELU)
      return body(type, vector, number<ACTIVATION_RELU>(), number<SOURCE_IN>());
    if (args->activation == ACTIVATION_GELU)
      return body(type, vector, number<ACTIVATION_GELU>(), number<SOURCE_IN>());
    return body(type, vector, number<ACTIVATION_SILU>(), number<SOURCE_IN>());
  });
}

int kernel_norm_backward_reduce(cudaStream_t stream, const struct norm_args *args) {
  return with_source(args, norm_source(args), [&](auto type, auto vector, auto which, auto source) {
    typedef typename decltype(type)::type T;
    constexpr int V = decltype(vector)::value;
    struct channel_grid grid = channel_grid(args->rows, args->channels, V, CHANNEL_SUM_BLOCKS);
    norm_reduce<T, V, decltype(which)::value, decltype(source)::value>
        <<<dim3((unsigned)grid.slices, (unsigned)grid.tiles), CHANNEL_THREADS, 0, stream>>>(
            *args, grid, norm_masked(args));
    return (int)cudaGetLastError();
  });
}

int kernel_norm_backward_apply(cudaStream_t stream, const struct norm_args *args) {
  bool masked = norm_masked(args);
  enum source from = masked ? SOURCE_PLAIN : norm_source(args);
  return with_source(args, from, [&](auto type, auto vector, auto which, auto source) {
    typedef typename decltype(type)::type T;
    constexpr int V = decltype(vector)::value;
    struct channel_grid grid = channel_grid(args->rows, args->channels, V, CHANNEL_EACH_BLOCKS);
    norm_backward<T, V, decltype(which)::value, decltype(source)::value>
        <<<dim3((unsigned)grid.slices, (unsigned)grid.tiles), CHANNEL_THREADS, 0, stream>>>(*args, grid,
                                                                                            masked);
    return (int)cudaGetLastError();
  });
}
