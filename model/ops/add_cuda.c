/* add on CUDA: one elementwise kernel each way; backward makes both gradients in one pass. */
#include "model/ops/kernels.h"
#include "model/ops/op_cuda.h"
#include "model/ops/table_cuda.h"

struct add_state {
  enum dtype dtype;
  int64_t count;
  float scale;
};

enum status add_cuda_create(struct op_context *context, const struct op_desc *desc,
                            const struct op_signature *signature, void **state, size_t *workspace) {
  (void)context, (void)signature;
  struct add_state made = {
      .dtype = desc->in[0].dtype, .count = tensor_count(&desc->in[0]), .scale = desc->attr.add.scale};
  *workspace = 0;
  return op_state_cuda(&made, sizeof made, state);
}

enum status add_cuda_forward(struct op_context *context, void *state, const struct op_io *io) {
  const struct add_state *op = state;
  TRY_CUDA(kernel_add_scaled(cuda_context_of(context)->stream, op->dtype, io->in[0], io->in[1], op->scale,
                             io->out, op->count));
  return STATUS_OK;
}

enum status add_cuda_backward(struct op_context *context, void *state, const struct op_io *io) {
  const struct add_state *op = state;
  TRY_CUDA(kernel_add_backward(cuda_context_of(context)->stream, op->dtype, io->d_out, op->scale, io->d_in,
                               io->d_in_add, op->count));
  return STATUS_OK;
}

void add_cuda_destroy(struct op_context *context, void *state) {
  op_free_cuda(context, state);
}
