/* softmax_xent on CUDA: one kernel each way. */
#include "model/ops/kernels.h"
#include "model/ops/op_cuda.h"
#include "model/ops/table_cuda.h"

struct softmax_xent_state {
  enum dtype dtype;
  int64_t rows, classes;
  float smoothing;
};

enum status softmax_xent_cuda_create(struct op_context *context, const struct op_desc *desc,
                                     const struct op_signature *signature, void **state, size_t *workspace) {
  (void)context, (void)signature;
  struct softmax_xent_state made = {.dtype = desc->in[0].dtype,
                                    .rows = desc->in[0].dim[0],
                                    .classes = desc->in[0].dim[1],
                                    .smoothing = desc->attr.softmax_xent.smoothing};
  *workspace = kernel_softmax_xent_workspace(made.rows) * sizeof(float);
  return op_state_cuda(&made, sizeof made, state);
}

enum status softmax_xent_cuda_forward(struct op_context *context, void *state, const struct op_io *io) {
  struct cuda_context *cuda = cuda_context_of(context);
  const struct softmax_xent_state *op = state;
  TRY_CUDA(kernel_softmax_xent(cuda->stream, op->dtype, io->in[0], io->in[1], op->rows, op->classes,
                               op->smoothing, io->out, io->saved[0], io->workspace, cuda->tickets));
  return STATUS_OK;
}

enum status softmax_xent_cuda_backward(struct op_context *context, void *state, const struct op_io *io) {
  const struct softmax_xent_state *op = state;
  if (io->d_in[0])
    TRY_CUDA(kernel_softmax_xent_backward(cuda_context_of(context)->stream, op->dtype, io->in[0], io->in[1],
                                          io->saved[0], op->rows, op->classes, op->smoothing, io->scale,
                                          io->d_in[0], io->d_in_add[0]));
  return STATUS_OK;
}

void softmax_xent_cuda_destroy(struct op_context *context, void *state) {
  op_free_cuda(context, state);
}
