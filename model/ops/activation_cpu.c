/* activation on the CPU. */
#include "model/ops/activation_cpu.h"

#include <stdlib.h>

struct activation_state {
  int64_t count;
  enum activation kind;
};

enum status activation_cpu_create(struct op_context *context, const struct op_desc *desc,
                                  const struct op_signature *signature, void **state, size_t *workspace) {
  struct activation_state *made = malloc(sizeof *made);
  (void)context;
  if (!made) return RAISE(STATUS_INPUT, "out of memory");
  *made = (struct activation_state){tensor_count(&signature->out), desc->attr.activation.kind};
  *state = made;
  *workspace = 0;
  return STATUS_OK;
}

OP_CPU_INLINE void forward_loop(bool bf16, enum activation kind, const void *in, void *out,
                                struct op_cpu_range range) {
#pragma omp simd
  for (int64_t i = range.first; i < range.last; i++)
    op_cpu_store(out, bf16, i, activation_cpu_value(kind, op_cpu_load(in, bf16, i)));
}

OP_CPU_CLONES static void forward_range(bool bf16, enum activation kind, const void *in, void *out,
                                        struct op_cpu_range range) {
  ACTIVATION_CPU_DISPATCH(forward_loop, bf16, kind, in, out, range);
}

OP_CPU_INLINE void backward_loop(bool bf16, enum activation kind, const void *kept, const void *d_out,
                                 void *d_in, bool add, struct op_cpu_range range) {
#pragma omp simd
  for (int64_t i = range.first; i < range.last; i++) {
    float d = activation_cpu_gradient(kind, op_cpu_load(kept, bf16, i), op_cpu_load(d_out, bf16, i));
    op_cpu_store(d_in, bf16, i, add ? op_cpu_load(d_in, bf16, i) + d : d);
  }
}

OP_CPU_CLONES static void backward_range(bool bf16, enum activation kind, const void *kept, const void *d_out,
                                         void *d_in, bool add, struct op_cpu_range range) {
  if (add)
    ACTIVATION_CPU_DISPATCH(backward_loop, bf16, kind, kept, d_out, d_in, true, range);
  else
    ACTIVATION_CPU_DISPATCH(backward_loop, bf16, kind, kept, d_out, d_in, false, range);
}

enum status activation_cpu_forward(struct op_context *context, void *state, const struct op_io *io) {
  const struct activation_state *s = state;
  int threads = op_cpu(context)->threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int t = 0; t < threads; t++)
    forward_range(context->compute == DTYPE_BF16, s->kind, io->in[0], io->out,
                  op_cpu_range(s->count, threads, t));
  return STATUS_OK;
}

enum status activation_cpu_backward(struct op_context *context, void *state, const struct op_io *io) {
  const struct activation_state *s = state;
  const void *kept = s->kind == ACTIVATION_RELU ? io->out : io->in[0];
  int threads = op_cpu(context)->threads;
  if (!io->d_in[0]) return STATUS_OK;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int t = 0; t < threads; t++)
    backward_range(context->compute == DTYPE_BF16, s->kind, kept, io->d_out, io->d_in[0], io->d_in_add[0],
                   op_cpu_range(s->count, threads, t));
  return STATUS_OK;
}

void activation_cpu_destroy(struct op_context *context, void *state) {
  (void)context;
  free(state);
}
