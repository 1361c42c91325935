/* Sums of arrays, which several of the CPU's ops need. */
#include "model/ops/op_cpu.h"

OP_CPU_INLINE void sum_elements(bool bf16, const void *a, const void *b, float scale, void *out,
                                struct op_cpu_range range) {
  /* NOLINTNEXTLINE(bugprone-branch-clone): it does not look into loops below a pragma */
  if (a) {
#pragma omp simd
    for (int64_t i = range.first; i < range.last; i++)
      op_cpu_store(out, bf16, i, op_cpu_load(a, bf16, i) + scale * op_cpu_load(b, bf16, i));
  } else {
#pragma omp simd
    for (int64_t i = range.first; i < range.last; i++)
      op_cpu_store(out, bf16, i, scale * op_cpu_load(b, bf16, i));
  }
}

OP_CPU_CLONES static void sum_range(bool bf16, const void *a, const void *b, float scale, void *out,
                                    struct op_cpu_range range) {
  if (bf16)
    sum_elements(true, a, b, scale, out, range);
  else
    sum_elements(false, a, b, scale, out, range);
}

void op_cpu_add(const struct op_cpu_context *context, const void *a, const void *b, float scale, void *out,
                int64_t count) {
  bool bf16 = context->base.compute == DTYPE_BF16;
#pragma omp parallel for schedule(static) num_threads(context->threads) if (context->threads > 1)
  for (int t = 0; t < context->threads; t++)
    sum_range(bf16, a, b, scale, out, op_cpu_range(count, context->threads, t));
}
