/* Moving tiles of bf16 between memories, and products of fragments on tensor cores (mma.m16n8k16, PTX ISA
 * 9.7.14). In a fragment the thread (group, member) = (lane / 4, lane % 4) of a warp holds pairs of
 * neighbours. */
#ifndef CONVOY_MODEL_OPS_CUDA_TILE_H
#define CONVOY_MODEL_OPS_CUDA_TILE_H

#include "model/ops/cuda_vector.h"

__device__ __forceinline__ uint32_t shared_address(const void *p) {
  return (uint32_t)__cvta_generic_to_shared(p);
}

/* 16 bytes to shared memory without passing registers, zeros if not `inside`; `from` must be valid in any
 * case. Slow where a warp's neighbours go to different lines: 32 clocks. */
__device__ __forceinline__ void copy16(uint32_t to, const void *from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0)
               : "memory");
}
/* This thread's copies since the last call are a group, which may be empty. */
__device__ __forceinline__ void copies_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/* All of this thread's groups but the N committed last are there. */
template <int N> __device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Four 8x8 matrices: lane l gives the address of row l % 8 of matrix l / 8. Thread (group, member) gets of
 * each the elements (group, 2 member + {0, 1}), or, TRANSPOSED, (2 member + {0, 1}, group). */
template <bool TRANSPOSED> __device__ __forceinline__ void load_matrices(uint32_t (&v)[4], uint32_t address) {
  if (TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(address)
                 : "memory");
}

/* sum (16x8) += a (16x16) b (16x8). Thread (group, member) holds of the sum the rows group and group + 8 and
 * the columns 2 member + {0, 1}; of a the same rows with k = 2 member + {0, 1}, then with k + 8; of b the
 * column group. */
__device__ __forceinline__ void multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
               "{%0,%1,%2,%3};"
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Two bf16 in a word. */
__device__ __forceinline__ uint32_t pack2(float low, float high) {
  uint32_t two; /* one instruction, where two roundings were two slow ones */
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  return two;
}
__device__ __forceinline__ float low_of(uint32_t two) {
  return __uint_as_float(two << 16);
}
__device__ __forceinline__ float high_of(uint32_t two) {
  return __uint_as_float(two & 0xffff0000u);
}

/* v += old, pairs of bf16. */
__device__ __forceinline__ void add_pairs(uint32_t (&v)[4], const uint4 &old) {
  const uint32_t o[4] = {old.x, old.y, old.z, old.w};
#pragma unroll
  for (int i = 0; i < 4; i++) v[i] = pack2(low_of(v[i]) + low_of(o[i]), high_of(v[i]) + high_of(o[i]));
}

/* 4x4 words within 4 neighbouring lanes: word i of lane m and word m of lane i change places. */
__device__ __forceinline__ void transpose_quad(uint32_t (&v)[4], int member) {
#pragma unroll
  for (int step = 1; step <= 2; step *= 2)
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (!(i & step)) {
        const bool high = member & step;
        const uint32_t got = __shfl_xor_sync(0xffffffffu, high ? v[i] : v[i + step], step);
        if (high)
          v[i] = got;
        else
          v[i + step] = got;
      }
}

/* Launches a kernel that takes `shared` bytes of shared memory, which may be more than 48 KB. */
template <typename K, typename... Args>
static inline int launch_shared(cudaStream_t stream, K kernel, dim3 grid, int threads, int shared,
                                Args... args) {
  int error = (int)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  if (error) return error;
  kernel<<<grid, (unsigned)threads, (size_t)shared, stream>>>(args...);
  return (int)cudaGetLastError();
}

#endif
