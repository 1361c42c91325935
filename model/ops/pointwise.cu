/* Elementwise kernels: activations, additions, conversion, random numbers. */
#include "model/ops/cuda_vector.h"

extern "C" {
#include "model/ops/kernels.h"
}

enum { THREADS = 256, BLOCKS = 132 * 16 };

/* Runs op(index, is_wide): packs of V elements, then the rest one by one. */
template <int V, typename F> __global__ void __launch_bounds__(THREADS) each(int64_t count, F op) {
  int64_t first = (int64_t)blockIdx.x * THREADS + threadIdx.x, stride = (int64_t)gridDim.x * THREADS;
  int64_t packs = count / V;
  for (int64_t i = first; i < packs; i += stride) op(i * V, number<V>());
  if (V > 1 && first < count % V) op(packs * V + first, number<1>());
}

template <int V, typename F> static int launch_each(cudaStream_t stream, int64_t count, F op) {
  if (count <= 0) return 0;
  int64_t blocks = ceil_div(ceil_div(count, V), THREADS);
  each<V><<<(unsigned)(blocks < BLOCKS ? blocks : BLOCKS), THREADS, 0, stream>>>(count, op);
  return (int)cudaGetLastError();
}

template <typename T> struct random_op {
  T *data;
  template <int V> __device__ void operator()(int64_t at, number<V>) const {
    float value[V];
#pragma unroll
    for (int i = 0; i < V; i++) {
      uint32_t x = (uint32_t)(at + i) * 0x9E3779B9u + 0x7F4A7C15u; /* the mixer of MurmurHash3 */
      x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
      x = (x ^ (x >> 13)) * 0xC2B2AE35u;
      value[i] = (float)((x ^ (x >> 16)) >> 8) * (2.0f / 16777216.0f) - 1.0f;
    }
    store<T, V>(data + at, value);
  }
};

int kernel_random(cudaStream_t stream, enum dtype dtype, void *data, int64_t count) {
  return with_type(dtype, [&](auto type) {
    typedef typename decltype(type)::type T;
    return launch_each<wide<T>::count>(stream, count, random_op<T>{(T *)data});
  });
}

template <typename A, typename B> struct convert_op {
  const A *from;
  B *out;
  template <int V> __device__ void operator()(int64_t at, number<V>) const {
    float value[V];
    load<A, V>(from + at, value);
    store<B, V>(out + at, value);
  }
};

int kernel_convert(cudaStream_t stream, enum dtype from_dtype, const void *from, enum dtype out_dtype,
                   void *out, int64_t count) {
  return with_type(from_dtype, [&](auto a) {
    typedef typename decltype(a)::type A;
    return with_type(out_dtype, [&](auto b) {
      typedef typename decltype(b)::type B;
      convert_op<A, B> op = {(const A *)from, (B *)out};
      return aligned16(from) && aligned16(out) ? launch_each<4>(stream, count, op)
                                               : launch_each<1>(stream, count, op);
    });
  });
}

template <typename T> struct add_op {
  const T *a, *b;
  float scale;
  T *out;
  template <int V> __device__ void operator()(int64_t at, number<V>) const {
    float x[V], y[V];
    load<T, V>(a + at, x);
    load<T, V>(b + at, y);
#pragma unroll
    for (int i = 0; i < V; i++) x[i] = fmaf(scale, y[i], x[i]);
    store<T, V>(out + at, x);
  }
};

int kernel_add_scaled(cudaStream_t stream, enum dtype dtype, const void *a, const void *b, float scale,
                      void *out, int64_t count) {
  return with_type(dtype, [&](auto type) {
    typedef typename decltype(type)::type T;
    add_op<T> op = {(const T *)a, (const T *)b, scale, (T *)out};
    return aligned16(a) && aligned16(b) && aligned16(out) ? launch_each<wide<T>::count>(stream, count, op)
                                                          : launch_each<1>(stream, count, op);
  });
}

int kernel_add(cudaStream_t stream, enum dtype dtype, const void *a, const void *b, void *out,
               int64_t count) {
  return kernel_add_scaled(stream, dtype, a, b, 1.0f, out, count);
}

template <typename T> struct add_backward_op {
  const T *d_out;
  float scale;
  T *d_in[2];
  bool add[2];
  template <int V> __device__ void operator()(int64_t at, number<V>) const {
    float d[V];
    load<T, V>(d_out + at, d);
#pragma unroll
    for (int k = 0; k < 2; k++) {
      float value[V];
#pragma unroll
      for (int i = 0; i < V; i++) value[i] = k == 0 ? d[i] : scale * d[i];
      if (d_in[k]) put<T, V>(d_in[k] + at, value, add[k]);
    }
  }
};

int kernel_add_backward(cudaStream_t stream, enum dtype dtype, const void *d_out, float scale,
                        void *const d_in[2], const bool add[2], int64_t count) {
  return with_type(dtype, [&](auto type) {
    typedef typename decltype(type)::type T;
    add_backward_op<T> op = {(const T *)d_out, scale, {(T *)d_in[0], (T *)d_in[1]}, {add[0], add[1]}};
    return aligned16(d_out) && aligned16(d_in[0]) && aligned16(d_in[1])
               ? launch_each<wide<T>::count>(stream, count, op)
               : launch_each<1>(stream, count, op);
  });
}

template <typename T, int A> struct activation_op {
  const T *in;
  T *out;
  template <int V> __device__ void operator()(int64_t at, number<V>) const {
    float x[V];
    load<T, V>(in + at, x);
#pragma unroll
    for (int i = 0; i < V; i++) x[i] = activate<A>(x[i]);
    store<T, V>(out + at, x);
  }
};

int kernel_activation(cudaStream_t stream, enum dtype dtype, enum activation kind, const void *in, void *out,
                      int64_t count) {
  return with_type(dtype, [&](auto type) {
    typedef typename decltype(type)::type T;
    return with_activation(kind, [&](auto which) {
      activation_op<T, decltype(which)::value> op = {(const T *)in, (T *)out};
      return aligned16(in) && aligned16(out) ? launch_each<wide<T>::count>(stream, count, op)
                                             : launch_each<1>(stream, count, op);
    });
  });
}

template <typename T, int A> struct activation_backward_op {
  const T *kept, *d_out;
  T *d_in;
  bool add;
  template <int V> __device__ void operator()(int64_t at, number<V>) const {
    float x[V], d[V];
    load<T, V>(kept + at, x);
    load<T, V>(d_out + at, d);
#pragma unroll
    for (int i = 0; i < V; i++) d[i] *= slope<A>(x[i]);
    put<T, V>(d_in + at, d, add);
  }
};

int kernel_activation_backward(cudaStream_t stream, enum dtype dtype, enum activation kind, const void *kept,
                               const void *d_out, void *d_in, bool add, int64_t count) {
  return with_type(dtype, [&](auto type) {
    typedef typename decltype(type)::type T;
    return with_activation(kind, [&](auto which) {
      activation_backward_op<T, decltype(which)::value> op = {(const T *)kept, (const T *)d_out, (T *)d_in,
                                                              add};
      return aligned16(kept) && aligned16(d_out) && aligned16(d_in)
                 ? launch_each<wide<T>::count>(stream, count, op)
                 : launch_each<1>(stream, count, op);
    });
  });
}
