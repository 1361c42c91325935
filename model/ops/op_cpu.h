/* What the CPU's ops share: the context with oneDNN's engine, element access for both compute types, the
 * split of a loop over threads, and the attribute that compiles a hot loop for several instruction sets.
 *
 * Loops are written over rows (N x H x W) of contiguous channels. Thread t of T always gets the same part of
 * a loop, and partial sums are combined in thread order, so results depend on the thread count and on nothing
 * else. */
#ifndef CONVOY_MODEL_OPS_OP_CPU_H
#define CONVOY_MODEL_OPS_OP_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/ops/op.h"

struct dnnl_engine;
struct dnnl_stream;

struct op_cpu_context {
  struct op_context base; /* first: the ops get its address */
  struct dnnl_engine *engine;
  struct dnnl_stream *stream;
  int threads; /* of this rank */
};

static inline struct op_cpu_context *op_cpu(struct op_context *context) {
  return (struct op_cpu_context *)context;
}

/* Compiles a function once for each instruction set and picks at program start; inside, `omp simd` loops use
 * the widest registers. Sanitizers run before the pick could (ifunc), so they get the plain build. */
#if defined(__x86_64__) && !defined(CONVOY_SANITIZE)
#define OP_CPU_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define OP_CPU_CLONES
#endif
#define OP_CPU_INLINE static inline __attribute__((always_inline))

enum {
  OP_CPU_WIDTH = 16,    /* channels that an inner loop takes at a time */
  OP_CPU_ALIGNMENT = 64 /* bytes, of each part of a workspace */
};

/* Part `part` of `parts` of [0, count), as even as can be. */
struct op_cpu_range {
  int64_t first, last;
};
static inline struct op_cpu_range op_cpu_range(int64_t count, int parts, int part) {
  return (struct op_cpu_range){count * part / parts, count * (part + 1) / parts};
}

/* Rounds bytes up to OP_CPU_ALIGNMENT. */
static inline size_t op_cpu_align(size_t bytes) {
  return (bytes + OP_CPU_ALIGNMENT - 1) / OP_CPU_ALIGNMENT * OP_CPU_ALIGNMENT;
}

/* Element i of an array of the compute type; `bf16` is a constant where these are inlined. */
OP_CPU_INLINE float op_cpu_load(const void *data, bool bf16, int64_t i) {
  if (!bf16) return ((const float *)data)[i];
  union {
    uint32_t bits;
    float value;
  } word = {.bits = (uint32_t)((const uint16_t *)data)[i] << 16};
  return word.value;
}

/* To bf16: nearest, ties to even; NaN stays NaN. */
OP_CPU_INLINE uint16_t op_cpu_round(float value) {
  union {
    float value;
    uint32_t bits;
  } word = {.value = value};
  uint32_t rounded = word.bits + 0x7fffu + ((word.bits >> 16) & 1u);
  uint32_t bits = value != value ? word.bits | 0x400000u : rounded;
  return (uint16_t)(bits >> 16);
}

OP_CPU_INLINE void op_cpu_store(void *data, bool bf16, int64_t i, float value) {
  if (bf16)
    ((uint16_t *)data)[i] = op_cpu_round(value);
  else
    ((float *)data)[i] = value;
}

/* out = a + scale b, `count` elements of the compute type; out may be one of them. a NULL: out = scale b. */
void op_cpu_add(const struct op_cpu_context *context, const void *a, const void *b, float scale, void *out,
                int64_t count);

#define OP(NAME, name)                                                                                       \
  enum status name##_cpu_create(struct op_context *context, const struct op_desc *desc,                      \
                                const struct op_signature *signature, void **state, size_t *workspace);      \
  enum status name##_cpu_forward(struct op_context *context, void *state, const struct op_io *io);           \
  enum status name##_cpu_backward(struct op_context *context, void *state, const struct op_io *io);          \
  void name##_cpu_destroy(struct op_context *context, void *state);
#include "model/ops/ops.def"
#undef OP

#endif
