/* Device helpers for kernels: values of fp32 or bf16 as floats, several at a time, and the activations. */
#ifndef CONVOY_MODEL_OPS_CUDA_VECTOR_H
#define CONVOY_MODEL_OPS_CUDA_VECTOR_H

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

extern "C" {
#include "model/ops/op.h"
}

typedef __nv_bfloat16 bf16;

__device__ __forceinline__ float to_float(float value) {
  return value;
}
__device__ __forceinline__ float to_float(bf16 value) {
  return __bfloat162float(value);
}
template <typename T> __device__ __forceinline__ T from_float(float value);
template <> __device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <> __device__ __forceinline__ bf16 from_float<bf16>(float value) {
  return __float2bfloat16_rn(value);
}

/* Elements of T in 16 bytes. */
template <typename T> struct wide { static constexpr int count = 16 / (int)sizeof(T); };

template <typename T, int V> struct alignas(sizeof(T) * V) pack { T element[V]; };

template <typename T, int V>
__device__ __forceinline__ void unpack(const pack<T, V> &all, float (&value)[V]) {
#pragma unroll
  for (int i = 0; i < V; i++) value[i] = to_float(all.element[i]);
}

/* V neighbours at once; p is aligned to V elements. */
template <typename T, int V> __device__ __forceinline__ pack<T, V> load_pack(const T *p) {
  return *reinterpret_cast<const pack<T, V> *>(p);
}

/* The same of what is not read again soon: the cache may forget it first. */
template <typename T, int V> __device__ __forceinline__ pack<T, V> load_last(const T *p) {
  if constexpr (sizeof(pack<T, V>) == sizeof(uint4)) {
    const uint4 all = __ldcs(reinterpret_cast<const uint4 *>(p));
    return *reinterpret_cast<const pack<T, V> *>(&all);
  } else {
    return load_pack<T, V>(p);
  }
}

template <typename T, int V> __device__ __forceinline__ void load(const T *p, float (&value)[V]) {
  unpack<T, V>(load_pack<T, V>(p), value);
}

/* 16 bytes of global memory at once. Left to itself the compiler writes them in pieces of 4 in some kernels.
 */
__device__ __forceinline__ void store16(void *p, uint4 all) {
  asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(all.x), "r"(all.y), "r"(all.z),
               "r"(all.w)
               : "memory");
}

/* To global memory. */
template <typename T, int V> __device__ __forceinline__ void store(T *p, const float (&value)[V]) {
  pack<T, V> all;
#pragma unroll
  for (int i = 0; i < V; i++) all.element[i] = from_float<T>(value[i]);
  if constexpr (sizeof all == sizeof(uint4))
    store16(p, *reinterpret_cast<const uint4 *>(&all));
  else
    *reinterpret_cast<pack<T, V> *>(p) = all;
}

/* Stores, or adds to what p holds. */
template <typename T, int V> __device__ __forceinline__ void put(T *p, float (&value)[V], bool add) {
  if (add) {
    float old[V];
    load<T, V>(p, old);
#pragma unroll
    for (int i = 0; i < V; i++) value[i] += old[i];
  }
  store<T, V>(p, value);
}

template <int A> __device__ __forceinline__ float activate(float x) {
  if (A == ACTIVATION_RELU) return x > 0.0f || x != x ? x : 0.0f; /* NaN stays NaN */
  if (A == ACTIVATION_GELU) return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
  if (A == ACTIVATION_SILU) return x / (1.0f + expf(-x));
  return x;
}

/* d activation / dx at x; for relu x may also be activation(x). */
template <int A> __device__ __forceinline__ float slope(float x) {
  if (A == ACTIVATION_RELU) return x > 0.0f ? 1.0f : 0.0f;
  if (A == ACTIVATION_GELU)
    return 0.5f * (1.0f + erff(x * 0.70710678118654752f)) +
           x * 0.39894228040143268f * expf(-0.5f * x * x); /* Phi(x) + x phi(x) */
  if (A == ACTIVATION_SILU) {
    float s = 1.0f / (1.0f + expf(-x));
    return s * (1.0f + x * (1.0f - s));
  }
  return 1.0f;
}

/* Ends a block's part of a sum: true, in all its threads, in the last of `count` blocks that share the
 * ticket, which then sees what the others wrote before. */
__device__ __forceinline__ bool last_of(uint32_t *ticket, unsigned count) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc(ticket, count - 1) == count - 1;
  __syncthreads();
  if (last) __threadfence();
  return last;
}

static inline bool aligned16(const void *p) {
  return ((uintptr_t)p & 15) == 0;
}

/* Calls `body` (a macro or lambda taking a type tag) for fp32 or bf16. */
template <typename T> struct tag { typedef T type; };
template <typename F> static inline int with_type(enum dtype dtype, F body) {
  if (dtype == DTYPE_F32) return body(tag<float>());
  if (dtype == DTYPE_BF16) return body(tag<bf16>());
  return (int)cudaErrorInvalidValue;
}

template <int N> struct number { static constexpr int value = N; };
template <typename F> static inline int with_activation(enum activation kind, F body) {
  switch (kind) {
  case ACTIVATION_NONE:
    return body(number<ACTIVATION_NONE>());
  case ACTIVATION_RELU:
    return body(number<ACTIVATION_RELU>());
  case ACTIVATION_GELU:
    return body(number<ACTIVATION_GELU>());
  case ACTIVATION_SILU:
    return body(number<ACTIVATION_SILU>());
  }
  return (int)cudaErrorInvalidValue;
}

static inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

#endif
