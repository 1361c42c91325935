/* avgpool on CUDA: the mean over height and width. */
#include "model/ops/kernels.h"
#include "model/ops/op_cuda.h"
#include "model/ops/table_cuda.h"

enum status avgpool_cuda_create(struct op_context *context, const struct op_desc *desc,
                                const struct op_signature *signature, void **state, size_t *workspace) {
  (void)context;
  (void)signature;
  const struct tensor *in = &desc->in[0];
  struct pool_args made = {
      .dtype = in->dtype, .n = in->dim[0], .h = in->dim[1], .w = in->dim[2], .c = in->dim[3]};
  *workspace = 0;
  return op_state_cuda(&made, sizeof made, state);
}

enum status avgpool_cuda_forward(struct op_context *context, void *state, const struct op_io *io) {
  TRY_CUDA(kernel_avgpool(cuda_context_of(context)->stream, state, io->in[0], io->out));
  return STATUS_OK;
}

enum status avgpool_cuda_backward(struct op_context *context, void *state, const struct op_io *io) {
  if (io->d_in[0])
    TRY_CUDA(kernel_avgpool_backward(cuda_context_of(context)->stream, state, io->d_out, io->d_in[0],
                                     io->d_in_add[0]));
  return STATUS_OK;
}

void avgpool_cuda_destroy(struct op_context *context, void *state) {
  op_free_cuda(context, state);
}
