/* Pooling kernels: largest of each window, and the mean over height and width. */
#include "model/ops/cuda_vector.h"

extern "C" {
#include "model/ops/kernels.h"
}

enum { THREADS = 256 };

/* One thread makes V channels of one output. */
template <typename T, int V>
__global__ void __launch_bounds__(THREADS) maxpool(const __grid_constant__ struct pool_args args, const T *in,
                                                   T *out, uint8_t *index, int64_t packs) {
  const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (at >= packs) return;
  const int across = (int)(args.c / V);
  const int c = (int)(at % across) * V;
  int64_t place = at / across;
  const int x = (int)(place % args.out_w);
  place /= args.out_w;
  const int y = (int)(place % args.out_h);
  const int64_t n = place / args.out_h;
  float best[V];
  int which[V];
  for (int r = 0; r < args.kernel; r++)
    for (int s = 0; s < args.kernel; s++) {
      float value[V];
      load<T, V>(in + ((n * args.h + y * args.stride + r) * args.w + x * args.stride + s) * args.c + c,
                 value);
#pragma unroll
      for (int i = 0; i < V; i++)
        if ((r == 0 && s == 0) || value[i] > best[i] || (value[i] != value[i] && best[i] == best[i])) {
          best[i] = value[i];
          which[i] = r * args.kernel + s;
        }
    }
  store<T, V>(out + at * V, best);
  if (!index) return;
  pack<uint8_t, V> all;
#pragma unroll
  for (int i = 0; i < V; i++) all.element[i] = (uint8_t)which[i];
  *reinterpret_cast<pack<uint8_t, V> *>(index + at * V) = all;
}

/* One thread makes V channels of one input's gradient: the sum over the windows that chose it, in row order.
 */
template <typename T, int V>
__global__ void __launch_bounds__(THREADS)
    maxpool_backward(const __grid_constant__ struct pool_args args, const T *d_out, const uint8_t *index,
                     T *d_in, bool add, int64_t packs) {
  const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (at >= packs) return;
  const int across = (int)(args.c / V);
  const int c = (int)(at % across) * V;
  int64_t place = at / across;
  const int x = (int)(place % args.w);
  place /= args.w;
  const int y = (int)(place % args.h);
  const int64_t n = place / args.h;
  /* Windows oy with oy * stride <= y < oy * stride + kernel. */
  const int first_y = y < args.kernel ? 0 : (y - args.kernel) / args.stride + 1;
  const int first_x = x < args.kernel ? 0 : (x - args.kernel) / args.stride + 1;
  float sum[V] = {};
  for (int oy = first_y; oy <= y / args.stride && oy < args.out_h; oy++)
    for (int ox = first_x; ox <= x / args.stride && ox < args.out_w; ox++) {
      const int mine = (y - oy * args.stride) * args.kernel + (x - ox * args.stride);
      const int64_t from = ((n * args.out_h + oy) * args.out_w + ox) * args.c + c;
      const pack<uint8_t, V> which = *reinterpret_cast<const pack<uint8_t, V> *>(index + from);
      float d[V];
      load<T, V>(d_out + from, d);
#pragma unroll
      for (int i = 0; i < V; i++) sum[i] += which.element[i] == mine ? d[i] : 0.0f;
    }
  put<T, V>(d_in + at * V, sum, add);
}

static bool pool_wide(const struct pool_args *args, const void *a, const void *b, const void *c) {
  int vector = args->dtype == DTYPE_BF16 ? wide<bf16>::count : wide<float>::count;
  return args->c % vector == 0 && aligned16(a) && aligned16(b) && aligned16(c);
}

/* Calls body(type, vector). */
template <typename F> static int with_pool(const struct pool_args *args, bool fits, F body) {
  return with_type(args->dtype, [&](auto type) {
    typedef typename decltype(type)::type T;
    if (fits) return body(type, number<wide<T>::count>());
    return body(type, number<1>());
  });
}

int kernel_maxpool(cudaStream_t stream, const struct pool_args *args, const void *in, void *out,
                   uint8_t *index) {
  return with_pool(args, pool_wide(args, in, out, index), [&](auto type, auto vector) {
    typedef typename decltype(type)::type T;
    constexpr int V = decltype(vector)::value;
    int64_t packs = args->n * args->out_h * args->out_w * (args->c / V);
    maxpool<T, V><<<(unsigned)ceil_div(packs, THREADS), THREADS, 0, stream>>>(*args, (const T *)in, (T *)out,
                                                                              index, packs);
    return (int)cudaGetLastError();
  });
}

int kernel_maxpool_backward(cudaStream_t stream, const struct pool_args *args, const void *d_out,
                            const uint8_t *index, void *d_in, bool add) {
  return with_pool(args, pool_wide(args, d_out, index, d_in), [&](auto type, auto vector) {
    typedef typename decltype(type)::type T;
    constexpr int V = decltype(vector)::value;
    int64_t packs = args->n * args->h * args->w * (args->c / V);
    maxpool_backward<T, V><<<(unsigned)ceil_div(packs, THREADS), THREADS, 0, stream>>>(
        *args, (const T *)d_out, index, (T *)d_in, add, packs);
    return (int)cudaGetLastError();
  });
}

/* One thread sums V channels of one image over its places. */
template <typename T, int V>
__global__ void __launch_bounds__(THREADS)
    avgpool(const __grid_constant__ struct pool_args args, const T *in, T *out, int64_t packs) {
  const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (at >= packs) return;
  const int64_t across = args.c / V, places = args.h * args.w;
  const T *from = in + (at / across) * places * args.c + (at % across) * V;
  float sum[V] = {};
#pragma unroll 8
  for (int64_t p = 0; p < places; p++) {
    float value[V];
    load<T, V>(from + p * args.c, value);
#pragma unroll
    for (int i = 0; i < V; i++) sum[i] += value[i];
  }
#pragma unroll
  for (int i = 0; i < V; i++) sum[i] /= (float)places;
  store<T, V>(out + at * V, sum);
}

template <typename T, int V>
__global__ void __launch_bounds__(THREADS)
    avgpool_backward(const __grid_constant__ struct pool_args args, const T *d_out, T *d_in, bool add,
                     int64_t packs) {
  const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (at >= packs) return;
  const int64_t across = args.c / V, places = args.h * args.w, n = at / across / places;
  float d[V];
  load<T, V>(d_out + n * args.c + (at % across) * V, d);
#pragma unroll
  for (int i = 0; i < V; i++) d[i] /= (float)places;
  put<T, V>(d_in + at * V, d, add);
}

int kernel_avgpool(cudaStream_t stream, const struct pool_args *args, const void *in, void *out) {
  return with_pool(args, pool_wide(args, in, out, NULL), [&](auto type, auto vector) {
    typedef typename decltype(type)::type T;
    constexpr int V = decltype(vector)::value;
    int64_t packs = args->n * (args->c / V);
    avgpool<T, V>
        <<<(unsigned)ceil_div(packs, THREADS), THREADS, 0, stream>>>(*args, (const T *)in, (T *)out, packs);
    return (int)cudaGetLastError();
  });
}

int kernel_avgpool_backward(cudaStream_t stream, const struct pool_args *args, const void *d_out, void *d_in,
                            bool add) {
  return with_pool(args, pool_wide(args, d_out, d_in, NULL), [&](auto type, auto vector) {
    typedef typename decltype(type)::type T;
    constexpr int V = decltype(vector)::value;
    int64_t packs = args->n * args->h * args->w * (args->c / V);
    avgpool_backward<T, V><<<(unsigned)ceil_div(packs, THREADS), THREADS, 0, stream>>>(
        *args, (const T *)d_out, (T *)d_in, add, packs);
    return (int)cudaGetLastError();
  });
}
