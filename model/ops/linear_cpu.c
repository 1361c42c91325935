/* linear on the CPU: oneDNN's inner products. */
#include "model/ops/filter_cpu.h"

enum status linear_cpu_create(struct op_context *context, const struct op_desc *desc,
                              const struct op_signature *signature, void **state, size_t *workspace) {
  int64_t batch = desc->in[0].dim[0];
  struct product_cpu_shape shape = {
      .batch = batch,
      .in_c = tensor_count(&desc->in[0]) / batch,
      .conv = {.filters = desc->attr.linear.outputs, .bias = desc->attr.linear.bias},
      .matrix = true};
  struct filter_cpu *filter = NULL;
  (void)signature;
  *workspace = 0;
  TRY(filter_cpu_create(op_cpu(context), &shape, desc->training, &filter, workspace));
  *state = filter;
  return STATUS_OK;
}

enum status linear_cpu_forward(struct op_context *context, void *state, const struct op_io *io) {
  TRY(filter_cpu_forward(op_cpu(context), state, io->in[0], io->param[0], io->param[1], io->out,
                         io->workspace));
  return STATUS_OK;
}

enum status linear_cpu_backward(struct op_context *context, void *state, const struct op_io *io) {
  struct filter_cpu_backward arrays = {.in = io->in[0],
                                       .weight = io->param[0],
                                       .d_out = io->d_out,
                                       .d_weight = io->d_param[0],
                                       .d_bias = io->d_param[1],
                                       .d_in = io->d_in[0],
                                       .d_in_add = io->d_in_add[0]};
  TRY(filter_cpu_backward(op_cpu(context), state, &arrays, io->workspace));
  return STATUS_OK;
}

void linear_cpu_destroy(struct op_context *context, void *state) {
  (void)context;
  filter_cpu_destroy(state);
}
