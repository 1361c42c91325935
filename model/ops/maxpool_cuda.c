/* maxpool on CUDA: the place of each window's largest is kept as a byte. */
#include "model/ops/kernels.h"
#include "model/ops/op_cuda.h"
#include "model/ops/table_cuda.h"

enum status maxpool_cuda_create(struct op_context *context, const struct op_desc *desc,
                                const struct op_signature *signature, void **state, size_t *workspace) {
  (void)context;
  const struct tensor *in = &desc->in[0];
  struct pool_args made = {
      .dtype = in->dtype, .n = in->dim[0], .h = in->dim[1], .w = in->dim[2], .c = in->dim[3]};
  made.out_h = signature->out.dim[1];
  made.out_w = signature->out.dim[2];
  made.kernel = desc->attr.maxpool.kernel;
  made.stride = desc->attr.maxpool.stride;
  *workspace = 0;
  return op_state_cuda(&made, sizeof made, state);
}

enum status maxpool_cuda_forward(struct op_context *context, void *state, const struct op_io *io) {
  TRY_CUDA(kernel_maxpool(cuda_context_of(context)->stream, state, io->in[0], io->out, io->saved[0]));
  return STATUS_OK;
}

enum status maxpool_cuda_backward(struct op_context *context, void *state, const struct op_io *io) {
  if (io->d_in[0])
    TRY_CUDA(kernel_maxpool_backward(cuda_context_of(context)->stream, state, io->d_out, io->saved[0],
                                     io->d_in[0], io->d_in_add[0]));
  return STATUS_OK;
}

void maxpool_cuda_destroy(struct op_context *context, void *state) {
  op_free_cuda(context, state);
}
