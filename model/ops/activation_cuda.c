/* activation on CUDA: one elementwise kernel each way. */
#include "model/ops/kernels.h"
#include "model/ops/op_cuda.h"
#include "model/ops/table_cuda.h"

struct activation_state {
  enum dtype dtype;
  enum activation kind;
  int64_t count;
};

enum status activation_cuda_create(struct op_context *context, const struct op_desc *desc,
                                   const struct op_signature *signature, void **state, size_t *workspace) {
  (void)context, (void)signature;
  struct activation_state made = {
      .dtype = desc->in[0].dtype, .kind = desc->attr.activation.kind, .count = tensor_count(&desc->in[0])};
  *workspace = 0;
  return op_state_cuda(&made, sizeof made, state);
}

enum status activation_cuda_forward(struct op_context *context, void *state, const struct op_io *io) {
  const struct activation_state *op = state;
  TRY_CUDA(kernel_activation(cuda_context_of(context)->stream, op->dtype, op->kind, io->in[0], io->out,
                             op->count));
  return STATUS_OK;
}

enum status activation_cuda_backward(struct op_context *context, void *state, const struct op_io *io) {
  const struct activation_state *op = state;
  const void *kept = op->kind == ACTIVATION_RELU ? io->out : io->in[0];
  if (io->d_in[0])
    TRY_CUDA(kernel_activation_backward(cuda_context_of(context)->stream, op->dtype, op->kind, kept,
                                        io->d_out, io->d_in[0], io->d_in_add[0], op->count));
  return STATUS_OK;
}

void activation_cuda_destroy(struct op_context *context, void *state) {
  op_free_cuda(context, state);
}
