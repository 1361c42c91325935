/* Hopper's asynchronous tensor-core products (wgmma, PTX ISA 9.7.15) of bf16 with fp32 sums, and the copies
 * that feed them. Four warps, a warp group, multiply 64 rows of A, in shared memory or registers, by 64 or
 * 128 columns of B in shared memory.
 *
 * Operands there lie in swizzled rows of 64 values (operand_swizzled) or in planes of 8 channels: 16 bytes a
 * pixel (or filter), neighbours side by side. 8 neighbours are the 128 bytes that the unit reads at once, and
 * they may begin at any pixel, so a filter's tap is nothing but an offset. The same memory serves as rows by
 * channels and, transposed, as channels by rows. */
#ifndef CONVOY_MODEL_OPS_CUDA_WGMMA_H
#define CONVOY_MODEL_OPS_CUDA_WGMMA_H

#include "model/ops/cuda_tile.h"

enum { WGMMA_GROUP = 128 /* threads */, WGMMA_TILE = 64, WGMMA_SUMS = 32 /* of a thread */ };

/* An operand at `address` in shared memory, in bytes; what lead and stride are depends on which way it is
 * read. */
__device__ __forceinline__ uint64_t wgmma_operand(uint32_t address, uint32_t lead, uint32_t stride) {
  return (uint64_t)(address >> 4) | (uint64_t)(lead >> 4) << 16 | (uint64_t)(stride >> 4) << 32;
}

/* Channels are summed: rows of a tile in groups of 8 that are `rows` bytes apart, planes `plane` bytes apart.
 */
__device__ __forceinline__ uint64_t operand_rows(uint32_t address, uint32_t rows, uint32_t plane) {
  return wgmma_operand(address, plane, rows);
}

/* Rows of 64 values (128 bytes), which asynchronous copies write quickly, unlike planes: 8 rows, 1024 bytes
 * that are aligned to as many, are swizzled: 16 bytes number i of row r lie at i ^ r. `rows`: bytes between
 * groups of 8 rows; `more`: between what is beside each other, if the operand is transposed (the row's values
 * are the tile's rows) and wider than 64. */
__device__ __forceinline__ uint64_t operand_swizzled(uint32_t address, uint32_t rows, uint32_t more) {
  return wgmma_operand(address, more, rows) | (uint64_t)1 << 62;
}

/* Pixels are summed, channels are the tile's rows: the operand is to be transposed. */
__device__ __forceinline__ uint64_t operand_channels(uint32_t address, uint32_t rows, uint32_t plane) {
  return wgmma_operand(address, rows, plane);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define CONVOY_WGMMA 1

/* sum (64x64) = sum * keep + a (64x16) b (16x64). Thread t of the group holds rows 16 (t / 32) + t % 32 / 4 +
 * {0, 8} and columns 8 j + 2 (t % 4) + {0, 1}: sum[4 j + {0, 1}] of the first row, sum[4 j + {2, 3}] of the
 * second. */
template <int A_CHANNELS, int B_CHANNELS>
__device__ __forceinline__ void wgmma(float (&d)[WGMMA_SUMS], uint64_t a, uint64_t b, int keep) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
               "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%"
               "25,%26,%27,%28,%29,"
               "%30,%31}, %32, %33, p, 1, 1, %35, %36;\n}\n"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
                 "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
                 "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
                 "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
                 "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
               : "l"(a), "l"(b), "r"(keep), "n"(A_CHANNELS), "n"(B_CHANNELS));
}

/* The same with A in registers, a warp's 16 rows as in multiply() of cuda_tile.h, added to the sum. They must
 * not change until the product is done. */
template <int B_CHANNELS>
__device__ __forceinline__ void wgmma_fragment(float (&d)[WGMMA_SUMS], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
               "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%"
               "25,%26,%27,%28,%29,"
               "%30,%31}, {%32,%33,%34,%35}, %36, p, 1, 1, %37;\n}\n"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
                 "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
                 "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
                 "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
                 "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(B_CHANNELS));
}

/* wgmma() for 128 columns: sum (64x128). */
template <int A_CHANNELS, int B_CHANNELS>
__device__ __forceinline__ void wgmma_wide(float (&d)[2 * WGMMA_SUMS], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%"
      "27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%"
      "52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, p, 1, 1, %67, %68;\n}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
        "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),
        "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]),
        "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]),
        "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b), "r"(keep), "n"(A_CHANNELS), "n"(B_CHANNELS));
}

/* Before the first product after registers or shared memory were written. */
__device__ __forceinline__ void wgmma_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* All but the N groups committed last are done; their sums may be read after wgmma_settle. */
template <int N> __device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/* The compiler reads these sums no earlier than here. */
template <int N> __device__ __forceinline__ void wgmma_settle(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

/* Registers a thread of this warp group may use from here on; all groups take part. */
template <int N> __device__ __forceinline__ void registers_more() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ __forceinline__ void registers_fewer() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
#endif

__device__ __forceinline__ uint4 load_global(const bf16 *from) {
  return __ldg(reinterpret_cast<const uint4 *>(from));
}
__device__ __forceinline__ void store_shared(uint32_t to, uint4 v) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

/* Barriers in shared memory. `count` arrivals end a phase; phases alternate between 0 and 1. */
__device__ __forceinline__ void barrier_create(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(barrier)
               : "memory");
}
/* Arrives once this thread's copy16 so far are there. */
__device__ __forceinline__ void barrier_arrive_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t phase) {
  asm volatile("{\n.reg .pred done;\nagain:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@!done bra again;\n}" ::"r"(barrier),
               "r"(phase)
               : "memory");
}
/* What was written to shared memory, and is known to be there, is so for products too. */
__device__ __forceinline__ void fence_shared(void) {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Waits for the first THREADS threads of the block, those that multiply, while others copy. */
template <int THREADS> __device__ __forceinline__ void meet_multiply() {
  asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

/* Is there the unit that these products need? The code for it is built for sm_90a alone. */
static inline bool hopper(void) {
  int device = 0, major = 0, minor = 0;
  (void)cudaGetDevice(&device);
  (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return major == 9 && minor == 0;
}

#endif
