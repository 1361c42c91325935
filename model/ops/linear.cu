/* Linear layers with few outputs, as classifiers have: too thin for a matrix library's tiles, so bound by
 * reading `in` once. Products and sums in fp32; sums over parts of the work are added in order by the last
 * block. */
#include "model/ops/cuda_vector.h"

extern "C" {
#include "model/ops/kernels.h"
}

enum {
  THREADS = 256, /* forward */
  ROWS = 4,      /* forward: rows a block makes */
  PARTS = 8,     /* forward: lanes of a warp that hold different sums once they are halved three times */
  COLUMNS = 128, /* backward: threads, one for each input */
  STAGED = 32,   /* backward: rows of d_out held at once */
  AHEAD = 16,    /* backward: rows read at once, a divisor of STAGED */
  BLOCKS = 264,  /* aimed at */
  MOST_SPLITS = 16,
  MOST_TICKETS = 4096,
};

static int forward_splits(const struct linear_args *args) {
  int64_t groups = ceil_div(args->rows, ROWS), splits = BLOCKS / groups,
          most = ceil_div(args->inputs, THREADS * 2);
  if (splits > most) splits = most;
  if (splits > MOST_SPLITS) splits = MOST_SPLITS;
  return splits < 1 || groups > MOST_TICKETS ? 1 : (int)splits;
}

static int backward_splits(const struct linear_args *args) {
  int64_t groups = ceil_div(args->inputs, COLUMNS), splits = BLOCKS / groups;
  if (splits > ceil_div(args->rows, 8)) splits = ceil_div(args->rows, 8);
  if (splits > MOST_SPLITS) splits = MOST_SPLITS;
  return splits < 1 || groups > MOST_TICKETS ? 1 : (int)splits;
}

size_t kernel_linear_workspace(const struct linear_args *args) {
  size_t forward = (size_t)forward_splits(args) * (size_t)(ceil_div(args->rows, ROWS) * ROWS * args->outputs);
  size_t backward = (size_t)backward_splits(args) * (size_t)(args->outputs * args->inputs);
  return forward > backward ? forward : backward;
}

/* Calls body(O): the least number of outputs that is compiled and not below `outputs`. Loads of the outputs
 * too many read the last one again. */
template <typename F> static int with_outputs(int64_t outputs, F body) {
  if (outputs <= 4) return body(number<4>());
  if (outputs <= 10) return body(number<10>());
  if (outputs <= KERNEL_LINEAR_OUTPUTS) return body(number<KERNEL_LINEAR_OUTPUTS>());
  return (int)cudaErrorInvalidValue;
}

/* One step of a sum over a warp: each lane gives half of its N values to the lane `distance` away and adds
 * what it gets to the other half, which is left in value[0 .. N/2). */
template <int N> __device__ __forceinline__ void halve(float *value, int distance) {
  const bool upper = threadIdx.x & distance;
#pragma unroll
  for (int i = 0; i < N / 2; i++) {
    const float given = upper ? value[i] : value[i + N / 2], kept = upper ? value[i + N / 2] : value[i];
    value[i] = kept + __shfl_xor_sync(0xffffffffu, given, distance);
  }
}

/* Block (group, split): ROWS rows, a part of the inputs. */
template <typename T, int V, int O>
__global__ void __launch_bounds__(THREADS, O > 10 ? 1 : 2)
    linear_forward(const __grid_constant__ struct linear_args args, const T *in, const T *weight,
                   const float *bias, T *out, float *partial, uint32_t *tickets) {
  constexpr int SUMS = ROWS * O, LEFT = SUMS / PARTS;
  __shared__ float warp_part[THREADS / 32][SUMS];
  const int outputs = (int)args.outputs, splits = (int)gridDim.y;
  const int64_t first = (int64_t)blockIdx.x * ROWS;
  const int packs = (int)(args.inputs / V), each = (packs + splits - 1) / splits;
  const int begin = (int)blockIdx.y * each, end = packs - begin < each ? packs : begin + each;
  float sum[SUMS] = {};
  for (int p = begin + (int)threadIdx.x; p < end; p += THREADS) {
    float x[ROWS][V], w[O][V];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const int64_t row = first + r < args.rows ? first + r : args.rows - 1;
      load<T, V>(in + row * args.inputs + p * V, x[r]);
    }
#pragma unroll
    for (int o = 0; o < O; o++)
      load<T, V>(weight + (o < outputs ? o : outputs - 1) * args.inputs + p * V, w[o]);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int o = 0; o < O; o++)
#pragma unroll
        for (int i = 0; i < V; i++) sum[r * O + o] = fmaf(x[r][i], w[o][i], sum[r * O + o]);
  }
  halve<SUMS>(sum, 16);
  halve<SUMS / 2>(sum, 8);
  halve<SUMS / 4>(sum, 4);
  const int lane = (int)threadIdx.x % 32;
  const int at = (lane & 16 ? SUMS / 2 : 0) + (lane & 8 ? SUMS / 4 : 0) + (lane & 4 ? SUMS / 8 : 0);
#pragma unroll
  for (int i = 0; i < LEFT; i++) {
    sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 2);
    sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], 1);
    if (lane % 4 == 0) warp_part[threadIdx.x / 32][at + i] = sum[i];
  }
  __syncthreads();
  const int r = (int)threadIdx.x / O, o = (int)threadIdx.x % O; /* THREADS >= SUMS */
  const bool mine = r < ROWS && o < outputs && first + r < args.rows;
  float value = 0;
  if (mine)
#pragma unroll
    for (int w = 0; w < THREADS / 32; w++) value += warp_part[w][threadIdx.x];
  if (splits > 1) {
    float *all = partial + (size_t)blockIdx.x * splits * SUMS + threadIdx.x;
    if (mine) all[(size_t)blockIdx.y * SUMS] = value;
    if (!last_of(&tickets[blockIdx.x], (unsigned)splits)) return;
    value = 0;
    if (mine)
#pragma unroll 8
      for (int s = 0; s < splits; s++) value += __ldcg(&all[(size_t)s * SUMS]);
  }
  if (mine) out[(first + r) * outputs + o] = from_float<T>(value + (bias ? bias[o] : 0.0f));
}

template <typename T, int V>
static int launch_forward(cudaStream_t stream, const struct linear_args *args, const T *in, const T *weight,
                          const float *bias, T *out, float *workspace, uint32_t *tickets) {
  const dim3 grid((unsigned)ceil_div(args->rows, ROWS), (unsigned)forward_splits(args));
  return with_outputs(args->outputs, [&](auto outputs) {
    constexpr int O = decltype(outputs)::value;
    linear_forward<T, V, O><<<grid, THREADS, 0, stream>>>(*args, in, weight, bias, out, workspace, tickets);
    return (int)cudaGetLastError();
  });
}

int kernel_linear(cudaStream_t stream, const struct linear_args *args, const void *in, const void *weight,
                  const float *bias, void *out, float *workspace, uint32_t *tickets) {
  return with_type(args->dtype, [&](auto type) {
    typedef typename decltype(type)::type T;
    const bool fits = args->inputs % 4 == 0 && aligned16(in) && aligned16(weight);
    return (fits ? launch_forward<T, 4> : launch_forward<T, 1>)(stream, args, (const T *)in,
                                                                (const T *)weight, bias, (T *)out, workspace,
                                                                tickets);
  });
}

/* Sums of d_out's columns: a warp an output, lanes over the rows. */
template <typename T>
__device__ void bias_gradient(const struct linear_args &args, const T *d_out, float *d_bias) {
  const int outputs = (int)args.outputs;
  for (int o = (int)threadIdx.x / 32; o < outputs; o += COLUMNS / 32) {
    float sum = 0;
#pragma unroll 4
    for (int64_t n = threadIdx.x % 32; n < args.rows; n += 32) sum += to_float(d_out[n * outputs + o]);
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % 32 == 0) d_bias[o] = sum;
  }
}

/* Block (columns, split): d_in and a part of d_weight for its columns and its share of the rows. The blocks
 * one past the last columns make d_bias. */
template <typename T, int O>
__global__ void __launch_bounds__(COLUMNS)
    linear_backward(const __grid_constant__ struct linear_args args, const T *__restrict__ in,
                    const T *weight, const T *d_out, T *__restrict__ d_in, bool add, float *d_weight,
                    float *d_bias, float *partial, uint32_t *tickets) {
  __shared__ alignas(16) float d[STAGED][(O + 3) / 4 * 4];
  const int outputs = (int)args.outputs, splits = (int)gridDim.y, groups = (int)gridDim.x - 1;
  if ((int)blockIdx.x == groups) {
    if (blockIdx.y == 0 && d_bias) bias_gradient<T>(args, d_out, d_bias);
    return;
  }
  const int64_t column = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
  const bool active = column < args.inputs;
  const int64_t place = active ? column : args.inputs - 1; /* reads */
  const int all_rows = (int)args.rows, each = (all_rows + splits - 1) / splits;
  const int begin = (int)blockIdx.y * each, end = all_rows - begin < each ? all_rows : begin + each;
  float w[O], sum[O] = {};
#pragma unroll
  for (int o = 0; o < O; o++) w[o] = o < outputs ? to_float(weight[o * args.inputs + place]) : 0.0f;
  for (int n0 = begin; n0 < end; n0 += STAGED) {
    const int rows = end - n0 < STAGED ? end - n0 : STAGED;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < STAGED * O; i += COLUMNS) {
      const int r = i / O, o = i % O;
      d[r][o] = r < rows && o < outputs ? to_float(d_out[(n0 + r) * outputs + o]) : 0.0f;
    }
    __syncthreads();
    for (int r0 = 0; r0 < rows; r0 += AHEAD) {
      float x[AHEAD];
#pragma unroll
      for (int a = 0; a < AHEAD; a++) {
        const int r = r0 + a < rows ? r0 + a : rows - 1; /* of d_out zero, if it is not this one's */
        x[a] = to_float(in[(n0 + r) * args.inputs + place]);
      }
#pragma unroll
      for (int a = 0; a < AHEAD; a++) {
        float back[1] = {0};
#pragma unroll
        for (int o = 0; o < O; o++) {
          sum[o] = fmaf(d[r0 + a][o], x[a], sum[o]);
          back[0] = fmaf(d[r0 + a][o], w[o], back[0]);
        }
        if (d_in && active && r0 + a < rows)
          put<T, 1>(d_in + (n0 + r0 + a) * args.inputs + column, back, add);
      }
    }
  }
  if (!d_weight) return;
  const int64_t whole = args.outputs * args.inputs;
  float *target = splits > 1 ? partial + (size_t)blockIdx.y * whole : d_weight;
#pragma unroll
  for (int o = 0; o < O; o++)
    if (active && o < outputs) target[o * args.inputs + column] = sum[o];
  if (splits == 1 || !last_of(&tickets[blockIdx.x], (unsigned)splits) || !active) return;
  float total[O] = {};
#pragma unroll 4
  for (int s = 0; s < splits; s++)
#pragma unroll
    for (int o = 0; o < O; o++)
      total[o] += __ldcg(&partial[(size_t)s * whole + (o < outputs ? o : 0) * args.inputs + column]);
#pragma unroll
  for (int o = 0; o < O; o++)
    if (o < outputs) d_weight[o * args.inputs + column] = total[o];
}

int kernel_linear_backward(cudaStream_t stream, const struct linear_args *args, const void *in,
                           const void *weight, const void *d_out, void *d_in, bool add, float *d_weight,
                           float *d_bias, float *workspace, uint32_t *tickets) {
  const dim3 grid((unsigned)ceil_div(args->inputs, COLUMNS) + 1, (unsigned)backward_splits(args));
  return with_type(args->dtype, [&](auto type) {
    return with_outputs(args->outputs, [&](auto outputs) {
      typedef typename decltype(type)::type T;
      constexpr int O = decltype(outputs)::value;
      linear_backward<T, O><<<grid, COLUMNS, 0, stream>>>(*args, (const T *)in, (const T *)weight,
                                                          (const T *)d_out, (T *)d_in, add, d_weight, d_bias,
                                                          workspace, tickets);
      return (int)cudaGetLastError();
    });
  });
}

__global__ void __launch_bounds__(256)
    bias_convert_float(const float *in, const float *bias, float *out, int64_t count, int64_t columns) {
  const int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x;
  if (at < count) out[at] = in[at] + (bias ? bias[at % columns] : 0.0f);
}

__global__ void __launch_bounds__(256)
    bias_convert_bf16(const float *in, const float *bias, bf16 *out, int64_t count, int64_t columns) {
  const int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x;
  if (at < count) out[at] = from_float<bf16>(in[at] + (bias ? bias[at % columns] : 0.0f));
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
