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
  (void)signature;
  return filter_cpu_op_create(context, desc, &shape, state, workspace);
}

enum status linear_cpu_forward(struct op_context *context, void *state, const struct op_io *io) {
  return filter_cpu_op_forward(context, state, io);
}

enum status linear_cpu_backward(struct op_context *context, void *state, const struct op_io *io) {
  return filter_cpu_op_backward(context, state, io);
}

void linear_cpu_destroy(struct op_context *context, void *state) {
  (void)context;
  filter_cpu_destroy(state);
}
