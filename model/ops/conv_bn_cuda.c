/* conv_bn on CUDA: the convolution (conv_cuda.c), which may leave the statistics' sums, then one kernel for
 * them, normalisation, addition and activation; backward one kernel for sums and gradients, then the
 * convolution's two products; of a first layer, one that does all. In evaluation the convolution's result
 * lies in `out` and is normalised in place. */
#include <stdlib.h>

#include "model/ops/conv_cuda.h"
#include "model/ops/kernels.h"
#include "model/ops/op_cuda.h"
#include "model/ops/table_cuda.h"

struct conv_bn_state {
  struct conv_products products;
  struct norm_args norm; /* without pointers */
  bool training, residual;
  bool batch;    /* statistics of the batch, not the running ones */
  size_t d_conv; /* bytes of the convolution's gradient, at the workspace's start */
};

enum status conv_bn_cuda_create(struct op_context *context, const struct op_desc *desc,
                                const struct op_signature *signature, void **state, size_t *workspace) {
  const struct conv_bn_attr *attr = &desc->attr.conv_bn;
  struct conv_bn_state made = {.training = desc->training,
                               .residual = desc->in_count == 2,
                               .batch = desc->training && !attr->batchnorm.running};
  made.norm = (struct norm_args){.dtype = desc->in[0].dtype,
                                 .activation = attr->activation,
                                 .rows = tensor_count(&signature->out) / attr->conv.filters,
                                 .channels = attr->conv.filters,
                                 .epsilon = attr->batchnorm.epsilon,
                                 .batch = (float)desc->in[0].dim[0]};
  TRY(conv_products_create(cuda_context_of(context), &desc->in[0], &signature->out, &attr->conv,
                           desc->training, desc->training && !desc->fixed_in[0], &made.products, workspace));
  if (desc->training) {
    const struct conv_moments moments = conv_moments(&made.products);
    const size_t needed[] = {kernel_channel_workspace(made.norm.dtype, made.norm.rows, made.norm.channels) *
                                 sizeof(float),
                             (size_t)moments.parts * (size_t)attr->conv.filters * 2 * sizeof(float),
                             conv_norm_workspace(&made.products)};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
      if (needed[i] > *workspace) *workspace = needed[i];
    made.d_conv = cuda_align(tensor_bytes(&signature->out));
    *workspace += made.d_conv;
    if (made.batch) made.norm.parts = moments.parts;
    made.norm.pieces = moments.pieces;
  }
  return op_state_cuda(&made, sizeof made, state);
}

static struct norm_args bind(const struct cuda_context *cuda, const struct conv_bn_state *op,
                             const struct op_io *io) {
  struct norm_args norm = op->norm;
  norm.in = op->training ? io->saved[0] : io->out;
  norm.residual = op->residual ? io->in[1] : NULL;
  norm.out = io->out;
  norm.weight = io->param[1];
  norm.bias = io->param[2];
  norm.mean = op->batch ? io->saved[1] : NULL;
  norm.invstd = op->batch ? io->saved[2] : NULL;
  norm.running_mean = io->statistic[0];
  norm.running_var = io->statistic[1];
  norm.batch_mean = io->batch_statistic[0];
  norm.batch_var = io->batch_statistic[1];
  norm.scale = io->scale;
  norm.workspace = cuda_offset(io->workspace, op->d_conv);
  norm.tickets = cuda->tickets;
  return norm;
}

enum status conv_bn_cuda_forward(struct op_context *context, void *state, const struct op_io *io) {
  struct cuda_context *cuda = cuda_context_of(context);
  const struct conv_bn_state *op = state;
  struct norm_args norm = bind(cuda, op, io);
  void *made = op->training ? io->saved[0] : io->out;
  float *part = norm.parts > 0 ? io->workspace : NULL; /* such a convolution needs none itself */
  norm.part = part;
  TRY(conv_forward(cuda, &op->products, io->in[0], io->param[0], made, part, io->workspace));
  TRY_CUDA(op->batch ? kernel_norm_forward(cuda->stream, &norm) : kernel_norm_apply(cuda->stream, &norm));
  return STATUS_OK;
}

enum status conv_bn_cuda_backward(struct op_context *context, void *state, const struct op_io *io) {
  struct cuda_context *cuda = cuda_context_of(context);
  const struct conv_bn_state *op = state;
  struct norm_args norm = bind(cuda, op, io);
  void *d_conv = io->workspace, *rest = cuda_offset(io->workspace, op->d_conv);
  norm.d_out = io->d_out;
  norm.d_in = d_conv;
  norm.d_residual = op->residual ? io->d_in[1] : NULL;
  /* Both gradients may be one array, of a value that is both inputs: then whichever comes second here adds.
   */
  bool same = op->residual && io->d_in[0] && io->d_in[0] == io->d_in[1];
  norm.d_residual_add = same ? io->d_in_add[0] : io->d_in_add[1];
  norm.d_weight = io->d_param[1];
  norm.d_bias = io->d_param[2];
  if (!io->d_in[0] && io->d_param[0] && conv_norm_fits(&op->products, &norm))
    return conv_norm_filter(cuda, &op->products, &norm, io->in[0], io->d_param[0]);
  TRY_CUDA(kernel_norm_backward(cuda->stream, &norm));
  if (io->d_param[0]) TRY(conv_backward_filter(cuda, &op->products, io->in[0], d_conv, io->d_param[0], rest));
  if (io->d_in[0])
    TRY(conv_backward_data(cuda, &op->products, d_conv, io->param[0], io->d_in[0], same || io->d_in_add[0],
                           rest));
  return STATUS_OK;
}

void conv_bn_cuda_destroy(struct op_context *context, void *state) {
  op_free_cuda(context, state);
}
