/* conv2d on CUDA: cuDNN's products; bias and its gradient by own kernels. */
#include <stdlib.h>

#include "model/ops/conv_cuda.h"
#include "model/ops/kernels.h"
#include "model/ops/op_cuda.h"
#include "model/ops/table_cuda.h"

struct conv2d_state {
  struct conv_products products;
  enum dtype dtype;
  bool bias;
  int64_t rows, channels; /* of out */
};

enum status conv2d_cuda_create(struct op_context *context, const struct op_desc *desc,
                               const struct op_signature *signature, void **state, size_t *workspace) {
  const struct conv2d_attr *attr = &desc->attr.conv2d;
  struct conv2d_state made = {.dtype = desc->in[0].dtype, .bias = attr->bias, .channels = attr->filters};
  made.rows = tensor_count(&signature->out) / attr->filters;
  TRY(conv_products_create(cuda_context_of(context), &desc->in[0], &signature->out, attr, desc->training,
                           desc->training && !desc->fixed_in[0], &made.products, workspace));
  size_t sums = kernel_channel_workspace(made.dtype, made.rows, made.channels) * sizeof(float);
  if (attr->bias && desc->training && sums > *workspace) *workspace = sums;
  return op_state_cuda(&made, sizeof made, state);
}

enum status conv2d_cuda_forward(struct op_context *context, void *state, const struct op_io *io) {
  struct cuda_context *cuda = cuda_context_of(context);
  const struct conv2d_state *conv = state;
  TRY(conv_forward(cuda, &conv->products, io->in[0], io->param[0], io->out, NULL, io->workspace));
  if (conv->bias)
    TRY_CUDA(kernel_bias_add(cuda->stream, conv->dtype, io->out, io->param[1], conv->rows, conv->channels));
  return STATUS_OK;
}

enum status conv2d_cuda_backward(struct op_context *context, void *state, const struct op_io *io) {
  struct cuda_context *cuda = cuda_context_of(context);
  const struct conv2d_state *conv = state;
  if (io->d_param[1])
    TRY_CUDA(kernel_column_sum(cuda->stream, conv->dtype, io->d_out, io->d_param[1], conv->rows,
                               conv->channels, io->workspace, cuda->tickets));
  if (io->d_param[0])
    TRY(conv_backward_filter(cuda, &conv->products, io->in[0], io->d_out, io->d_param[0], io->workspace));
  if (io->d_in[0])
    TRY(conv_backward_data(cuda, &conv->products, io->d_out, io->param[0], io->d_in[0], io->d_in_add[0],
                           io->workspace));
  return STATUS_OK;
}

void conv2d_cuda_destroy(struct op_context *context, void *state) {
  op_free_cuda(context, state);
}
