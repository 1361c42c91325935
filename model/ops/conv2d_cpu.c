/* conv2d on the CPU: oneDNN's convolutions. */
#include "model/ops/filter_cpu.h"

enum status conv2d_cpu_create(struct op_context *context, const struct op_desc *desc,
                              const struct op_signature *signature, void **state, size_t *workspace) {
  struct product_cpu_shape shape = filter_cpu_convolution(desc, signature, &desc->attr.conv2d);
  return filter_cpu_op_create(context, desc, &shape, state, workspace);
}

enum status conv2d_cpu_forward(struct op_context *context, void *state, const struct op_io *io) {
  return filter_cpu_op_forward(context, state, io);
}

enum status conv2d_cpu_backward(struct op_context *context, void *state, const struct op_io *io) {
  return filter_cpu_op_backward(context, state, io);
}

void conv2d_cpu_destroy(struct op_context *context, void *state) {
  (void)context;
  filter_cpu_destroy(state);
}
