/* conv_bn on the CPU: oneDNN's convolution, then batch normalisation, addition and activation in one pass. */
#include <stdlib.h>

#include "model/ops/filter_cpu.h"
#include "model/ops/norm_cpu.h"

struct conv_bn_state {
  struct filter_cpu *filter;
  struct norm_cpu norm;
  bool training;
  size_t shared_bytes; /* of workspace that convolution and normalisation use in turn; d_conv lies behind */
};

enum status conv_bn_cpu_create(struct op_context *context, const struct op_desc *desc,
                               const struct op_signature *signature, void **state, size_t *workspace) {
  const struct conv_bn_attr *attr = &desc->attr.conv_bn;
  enum status status = STATUS_OK;
  struct product_cpu_shape shape = filter_cpu_convolution(desc, signature, &attr->conv);
  struct conv_bn_state *made = calloc(1, sizeof *made);
  if (!made) return RAISE(STATUS_INPUT, "out of memory");
  made->training = desc->training;
  made->norm = norm_cpu(op_cpu(context), &signature->out, &attr->batchnorm, attr->activation);
  size_t bytes = norm_cpu_workspace(&made->norm);
  TRY_OUT(filter_cpu_create(op_cpu(context), &shape, desc->training, &made->filter, &bytes));
  made->shared_bytes = op_cpu_align(bytes);
  *workspace = made->shared_bytes + (desc->training ? tensor_bytes(&signature->out) : 0);
  *state = made;
  made = NULL;
out:
  conv_bn_cpu_destroy(context, made);
  return status;
}

enum status conv_bn_cpu_forward(struct op_context *context, void *state, const struct op_io *io) {
  const struct conv_bn_state *s = state;
  void *conv_out = s->training ? io->saved[0] : io->out;
  struct norm_cpu_forward arrays = {
      .x = conv_out, .addend = io->in[1], .weight = io->param[1], .bias = io->param[2], .out = io->out};
  TRY(filter_cpu_forward(op_cpu(context), s->filter, io->in[0], io->param[0], NULL, conv_out, io->workspace));
  if (s->training && !s->norm.running)
    norm_cpu_statistics(&s->norm, io, 1, &arrays);
  else
    norm_cpu_running(&s->norm, io, &arrays.mean, &arrays.invstd);
  norm_cpu_forward(&s->norm, &arrays, io->workspace);
  return STATUS_OK;
}

enum status conv_bn_cpu_backward(struct op_context *context, void *state, const struct op_io *io) {
  const struct conv_bn_state *s = state;
  void *d_conv = (char *)io->workspace + s->shared_bytes;
  struct norm_cpu_backward norm = {.x = io->saved[0],
                                   .addend = io->in[1],
                                   .out = io->out,
                                   .d_out = io->d_out,
                                   .mean = io->saved[1],
                                   .invstd = io->saved[2],
                                   .weight = io->param[1],
                                   .bias = io->param[2],
                                   .d_weight = io->d_param[1],
                                   .d_bias = io->d_param[2],
                                   .d_x = d_conv,
                                   .d_addend = io->d_in[1],
                                   .d_addend_add = io->d_in_add[1]};
  if (s->norm.running) norm_cpu_running(&s->norm, io, &norm.mean, &norm.invstd);
  norm_cpu_backward(&s->norm, &norm, io->workspace);
  struct filter_cpu_backward filter = {.in = io->in[0],
                                       .weight = io->param[0],
                                       .d_out = d_conv,
                                       .d_weight = io->d_param[0],
                                       .d_in = io->d_in[0],
                                       .d_in_add = io->d_in_add[0]};
  TRY(filter_cpu_backward(op_cpu(context), s->filter, &filter, io->workspace));
  return STATUS_OK;
}

void conv_bn_cpu_destroy(struct op_context *context, void *state) {
  struct conv_bn_state *s = state;
  (void)context;
  if (!s) return;
  filter_cpu_destroy(s->filter);
  free(s);
}
