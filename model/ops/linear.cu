/* Linear layers with few outputs, as classifiers have: too thin for a matrix library's tiles, so bound by
 * reading `in` once. Products and sums in fp32; sums over parts of the work are added in order by the last
 * block. */
#include "model/ops/cuda_vector.h"

extern "C" {
#include "model/ops/kernels.h"
}

enum {
  MOST = KERNEL_LINEAR_OUTPUTS,
  THREADS = 128,
  ROWS = 4,     /* forward: rows a block makes */
  COLUMNS = 2,  /* backward: neighbouring inputs a thread owns */
  STAGED = 32,  /* backward: rows of d_out held at once */
  BLOCKS = 264, /* aimed at */
  MOST_SPLITS = 16,
  MOST_TICKETS = 4096,
};

static int forward_splits(const struct linear_args *args) {
  int64_t groups = ceil_div(args->rows, ROWS), splits = BLOCKS / groups,
          most = ceil_div(args->inputs, THREADS * 4);
  if (splits > most) splits = most;
  if (splits > MOST_SPLITS) splits = MOST_SPLITS;
  return splits < 1 || groups > MOST_TICKETS ? 1 : (int)splits;
}

static int backward_splits(const struct linear_args *args) {
  int64_t groups = ceil_div(args->inputs, THREADS * COLUMNS), splits = BLOCKS / groups;
  if (splits > ceil_div(args->rows, 8)) splits = ceil_div(args->rows, 8);
  if (splits > MOST_SPLITS) splits = MOST_SPLITS;
  return splits < 1 || groups > MOST_TICKETS / COLUMNS ? 1 : (int)splits;
}

size_t kernel_linear_workspace(const struct linear_args *args) {
  size_t forward = (size_t)forward_splits(args) * (size_t)(ceil_div(args->rows, ROWS) * ROWS * args->outputs);
  size_t backward = (size_t)backward_splits(args) * (size_t)(args->outputs * args->inputs);
  return forward > backward ? forward : backward;
}

/* Block (group, split): ROWS rows, a part of the inputs. */
template <typename T, int V>
__global__ void __launch_bounds__(THREADS)
    linear_forward(const __grid_constant__ struct linear_args args, const T *in, const T *weight,
                   const float *bias, T *out, float *partial, uint32_t *tickets) {
  __shared__ float warp_part[THREADS / 32][ROWS * MOST];
  __shared__ bool last;
  const int outputs = (int)args.outputs, splits = (int)gridDim.y;
  const int64_t first = (int64_t)blockIdx.x * ROWS;
  const int64_t packs = args.inputs / V, each = (packs + splits - 1) / splits;
  const int64_t begin = (int64_t)blockIdx.y * each, end = begin + each < packs ? begin + each : packs;
  float sum[ROWS][MOST] = {};
  for (int64_t p = begin + threadIdx.x; p < end; p += THREADS) {
    float x[ROWS][V];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      if (first + r < args.rows)
        load<T, V>(in + (first + r) * args.inputs + p * V, x[r]);
      else
#pragma unroll
        for (int i = 0; i < V; i++) x[r][i] = 0;
#pragma unroll
    for (int o = 0; o < MOST; o++)
      if (o < outputs) {
        float w[V];
        load<T, V>(weight + o * args.inputs + p * V, w);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
          for (int i = 0; i < V; i++) sum[r][o] = fmaf(x[r][i], w[i], sum[r][o]);
      }
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int o = 0; o < MOST; o++)
      if (o < outputs) {
        float value = sum[r][o];
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
        if (threadIdx.x % 32 == 0) warp_part[threadIdx.x / 32][r * MOST + o] = value;
      }
  __syncthreads();
  const int r = (int)threadIdx.x / MOST, o = (int)threadIdx.x % MOST; /* THREADS >= ROWS * MOST */
  const bool mine = r < ROWS && o < outputs && first + r < args.rows;
  float value = 0;
  if (mine)
#pragma unroll
    for (int w = 0; w < THREADS / 32; w++) value += warp_part[w][r * MOST + o];
  if (splits > 1) {
    float *all = partial + (size_t)blockIdx.x * splits * (ROWS * outputs);
    if (mine) all[(size_t)blockIdx.y * (ROWS * outputs) + r * outputs + o] = value;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
      last = atomicInc(&tickets[blockIdx.x], (unsigned)splits - 1) == (unsigned)splits - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    value = 0;
    if (mine)
      for (int s = 0; s < splits; s++) value += __ldcg(&all[(size_t)s * (ROWS * outputs) + r * outputs + o]);
  }
  if (mine) out[(first + r) * outputs + o] = from_float<T>(value + bias[o]);
}

int kernel_linear(cudaStream_t stream, const struct linear_args *args, const void *in, const void *weight,
                  const float *bias, void *out, float *workspace, uint32_t *tickets) {
  return with_type(args->dtype, [&](auto type) {
    typedef typename decltype(type)::type T;
    dim3 grid((unsigned)ceil_div(args->rows, ROWS), (unsigned)forward_splits(args));
    if (args->inputs % 4 == 0 && aligned16(in) && aligned16(weight))
      linear_forward<T, 4><<<grid, THREADS, 0, stream>>>(*args, (const T *)in, (const T *)weight, bias,
                                                         (T *)out, workspace, tickets);
    else
      linear_forward<T, 1><<<grid, THREADS, 0, stream>>>(*args, (const T *)in, (const T *)weight, bias,
                                                         (T *)out, workspace, tickets);
    return (int)cudaGetLastError();
  });
}

/* Block (columns, split): d_in and a part of d_weight for its columns and its share of the rows. The blocks
 * one past the last columns make d_bias. V: columns a thread owns. */
template <typename T, int V>
__global__ void __launch_bounds__(THREADS)
    linear_backward(const __grid_constant__ struct linear_args args, const T *in, const T *weight,
                    const T *d_out, T *d_in, bool add, float *d_weight, float *d_bias, float *partial,
                    uint32_t *tickets) {
  __shared__ float d[STAGED][MOST];
  __shared__ bool last;
  const int outputs = (int)args.outputs, splits = (int)gridDim.y, groups = (int)gridDim.x - 1;
  if ((int)blockIdx.x == groups) { /* d_bias: a warp an output, lanes over the rows */
    if (blockIdx.y > 0) return;
    for (int o = (int)threadIdx.x / 32; o < outputs; o += THREADS / 32) {
      float sum = 0;
      for (int64_t n = threadIdx.x % 32; n < args.rows; n += 32) sum += to_float(d_out[n * outputs + o]);
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
      if (threadIdx.x % 32 == 0) d_bias[o] = sum;
    }
    return;
  }
  const int64_t column = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V;
  const bool active = column < args.inputs;
  const int64_t each = (args.rows + splits - 1) / splits, begin = (int64_t)blockIdx.y * each;
  const int64_t end = begin + each < args.rows ? begin + each : args.rows;
  float w[MOST][V], sum[MOST][V] = {};
#pragma unroll
  for (int o = 0; o < MOST; o++) {
#pragma unroll
    for (int i = 0; i < V; i++) w[o][i] = 0;
    if (active && o < outputs) load<T, V>(weight + o * args.inputs + column, w[o]);
  }
  for (int64_t n0 = begin; n0 < end; n0 += STAGED) {
    const int rows = (int)(end - n0 < STAGED ? end - n0 : STAGED);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < STAGED * MOST; i += THREADS) {
      const int r = i / MOST, o = i % MOST;
      d[r][o] = r < rows && o < outputs ? to_float(d_out[(n0 + r) * outputs + o]) : 0.0f;
    }
    __syncthreads();
    if (!active) continue;
#pragma unroll 4
    for (int r = 0; r < rows; r++) {
      float x[V], back[V] = {};
      load<T, V>(in + (n0 + r) * args.inputs + column, x);
#pragma unroll
      for (int o = 0; o < MOST; o++)
        if (o < outputs) {
#pragma unroll
          for (int i = 0; i < V; i++) {
            sum[o][i] = fmaf(d[r][o], x[i], sum[o][i]);
            back[i] = fmaf(d[r][o], w[o][i], back[i]);
          }
        }
      if (d_in) put<T, V>(d_in + (n0 + r) * args.inputs + column, back, add);
    }
  }
  const int64_t whole = args.outputs * args.inputs;
  float *target = splits > 1 ? partial + (size_t)blockIdx.y * whole : d_weight;
#pragma unroll
  for (int o = 0; o < MOST; o++)
    if (active && o < outputs) store<float, V>(target + o * args.inputs + column, sum[o]);
  if (splits == 1) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc(&tickets[blockIdx.x], (unsigned)splits - 1) == (unsigned)splits - 1;
  __syncthreads();
  if (!last || !active) return;
  __threadfence();
  for (int o = 0; o < outputs; o++) {
    float total[V] = {};
#pragma unroll 8
    for (int s = 0; s < splits; s++)
#pragma unroll
      for (int i = 0; i < V; i++)
        total[i] += __ldcg(&partial[(size_t)s * whole + o * args.inputs + column + i]);
    store<float, V>(d_weight + o * args.inputs + column, total);
  }
}

int kernel_linear_backward(cudaStream_t stream, const struct linear_args *args, const void *in,
                           const void *weight, const void *d_out, void *d_in, bool add, float *d_weight,
                           float *d_bias, float *workspace, uint32_t *tickets) {
  return with_type(args->dtype, [&](auto type) {
    typedef typename decltype(type)::type T;
    bool fits = args->inputs % COLUMNS == 0 && aligned16(in) && aligned16(weight) && aligned16(d_in) &&
                aligned16(d_weight);
    dim3 grid((unsigned)ceil_div(args->inputs, THREADS * (fits ? COLUMNS : 1)) + 1,
              (unsigned)backward_splits(args));
    if (fits)
      linear_backward<T, COLUMNS><<<grid, THREADS, 0, stream>>>(*args, (const T *)in, (const T *)weight,
                                                                (const T *)d_out, (T *)d_in, add, d_weight,
                                                                d_bias, workspace, tickets);
    else
      linear_backward<T, 1><<<grid, THREADS, 0, stream>>>(*args, (const T *)in, (const T *)weight,
                                                          (const T *)d_out, (T *)d_in, add, d_weight, d_bias,
                                                          workspace, tickets);
    return (int)cudaGetLastError();
  });
}

__global__ void __launch_bounds__(256)
    bias_convert_float(const float *in, const float *bias, float *out, int64_t count, int64_t columns) {
  const int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x;
  if (at < count) out[at] = in[at] + bias[at % columns];
}

__global__ void __launch_bounds__(256)
    bias_convert_bf16(const float *in, const float *bias, bf16 *out, int64_t count, int64_t columns) {
  const int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x;
  if (at < count) out[at] = from_float<bf16>(in[at] + bias[at % columns]);
}

int kernel_bias_convert(cudaStream_t stream, enum dtype dtype, const float *in, const float *bias, void *out,
                        int64_t rows, int64_t columns) {
  unsigned blocks = (unsigned)ceil_div(rows * columns, 256);
  if (dtype == DTYPE_F32)
    bias_convert_float<<<blocks, 256, 0, stream>>>(in, bias, (float *)out, rows * columns, columns);
  else
    bias_convert_bf16<<<blocks, 256, 0, stream>>>(in, bias, (bf16 *)out, rows * columns, columns);
  return (int)cudaGetLastError();
}
