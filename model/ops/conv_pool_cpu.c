/* conv_pool on the CPU: the chain of its parts, without an array of the convolution's result that lives from
 * forward to backward, and with the activation on the pooled values only. */
#include "model/ops/conv_pool_parts.h"
#include "model/ops/op_cpu.h"

static const struct conv_pool_tables tables = {
    .conv2d = {conv2d_cpu_create, conv2d_cpu_forward, conv2d_cpu_backward, conv2d_cpu_destroy},
    .maxpool = {maxpool_cpu_create, maxpool_cpu_forward, maxpool_cpu_backward, maxpool_cpu_destroy},
    .activation = {activation_cpu_create, activation_cpu_forward, activation_cpu_backward,
                   activation_cpu_destroy}};

enum status conv_pool_cpu_create(struct op_context *context, const struct op_desc *desc,
                                 const struct op_signature *signature, void **state, size_t *workspace) {
  struct conv_pool_parts *parts;
  TRY(conv_pool_parts_create(context, &tables, desc, signature, &parts, workspace));
  *state = parts;
  return STATUS_OK;
}

enum status conv_pool_cpu_forward(struct op_context *context, void *state, const struct op_io *io) {
  TRY(conv_pool_parts_forward(context, state, io));
  return STATUS_OK;
}

enum status conv_pool_cpu_backward(struct op_context *context, void *state, const struct op_io *io) {
  TRY(conv_pool_parts_backward(context, state, io));
  return STATUS_OK;
}

void conv_pool_cpu_destroy(struct op_context *context, void *state) {
  conv_pool_parts_destroy(context, state);
}
