/* Definition of conv_bn: the chain that it stands for, op by op; see op.h. */
#include "tests/reference/reference.h"

#include <stdlib.h>

/* The chain's parts and its inner values. */
struct chain {
  struct op_desc conv, norm;
  double *conv_out; /* also batchnorm's input */
  double *sum;      /* batchnorm's output + residual: the activation's input */
  int64_t count;
};

static struct chain chain_create(const struct op_desc *desc, const struct reference_io *io) {
  const struct conv2d_attr *attr = &desc->attr.conv_bn.conv;
  const int64_t *in = desc->in[0].dim;
  struct chain chain = {
      .conv = {.kind = OP_CONV2D, .training = desc->training, .in_count = 1, .in = {desc->in[0]}},
      .norm = {.kind = OP_BATCHNORM, .training = desc->training, .in_count = 1}};
  chain.conv.attr.conv2d = *attr;
  chain.norm.attr.batchnorm = desc->attr.conv_bn.batchnorm;
  chain.norm.in[0] = tensor_4d(DTYPE_F32, in[0], (in[1] + 2 * attr->pad - attr->kernel_h) / attr->stride + 1,
                               (in[2] + 2 * attr->pad - attr->kernel_w) / attr->stride + 1, attr->filters);
  chain.count = tensor_count(&chain.norm.in[0]);
  chain.conv_out = reference_array(chain.count);
  chain.sum = reference_array(chain.count);

  struct reference_io conv_io = {.in = {io->in[0]}, .param = {io->param[0]}, .out = chain.conv_out};
  reference_conv2d_forward(&chain.conv, &conv_io);
  struct reference_io norm_io = {.in = {chain.conv_out},
                                 .param = {io->param[1], io->param[2]},
                                 .statistic = {io->statistic[0], io->statistic[1]},
                                 .batch_statistic = {io->batch_statistic[0], io->batch_statistic[1]},
                                 .saved = {io->saved[1], io->saved[2]},
                                 .scale = io->scale,
                                 .out = chain.sum};
  reference_batchnorm_forward(&chain.norm, &norm_io);
  for (int64_t i = 0; desc->in_count == 2 && i < chain.count; i++) chain.sum[i] += io->in[1][i];
  return chain;
}

static void chain_destroy(struct chain *chain) {
  free(chain->conv_out);
  free(chain->sum);
}

void reference_conv_bn_forward(const struct op_desc *desc, const struct reference_io *io) {
  struct chain chain = chain_create(desc, io);
  for (int64_t i = 0; i < chain.count; i++) {
    io->out[i] = reference_activation(desc->attr.conv_bn.activation, chain.sum[i]);
    if (io->saved[0]) io->saved[0][i] = chain.conv_out[i];
  }
  chain_destroy(&chain);
}

void reference_conv_bn_backward(const struct op_desc *desc, const struct reference_io *io) {
  enum activation kind = desc->attr.conv_bn.activation;
  struct reference_io inner = *io;
  for (int i = 0; i < OP_MAX_SAVED; i++) inner.saved[i] = NULL;
  for (int i = 0; i < OP_MAX_STATISTIC; i++) inner.batch_statistic[i] = NULL;
  struct chain chain = chain_create(desc, &inner);
  double *d_sum = reference_array(chain.count), *d_conv_out = reference_array(chain.count);
  for (int64_t i = 0; i < chain.count; i++) {
    double slope = kind == ACTIVATION_RELU ? (io->out[i] > 0 ? 1 : 0)
                                           : reference_activation_derivative(kind, chain.sum[i]);
    d_sum[i] = io->d_out[i] * slope;
    if (io->d_in[1]) io->d_in[1][i] = d_sum[i];
  }
  struct reference_io norm_io = {.in = {chain.conv_out},
                                 .param = {io->param[1], io->param[2]},
                                 .statistic = {io->statistic[0], io->statistic[1]},
                                 .d_out = d_sum,
                                 .d_in = {d_conv_out},
                                 .d_param = {io->d_param[1], io->d_param[2]}};
  reference_batchnorm_backward(&chain.norm, &norm_io);
  struct reference_io conv_io = {.in = {io->in[0]},
                                 .param = {io->param[0]},
                                 .d_out = d_conv_out,
                                 .d_in = {io->d_in[0]},
                                 .d_param = {io->d_param[0]}};
  reference_conv2d_backward(&chain.conv, &conv_io);
  free(d_sum);
  free(d_conv_out);
  chain_destroy(&chain);
}
