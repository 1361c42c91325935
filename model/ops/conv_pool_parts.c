/* conv_pool as a chain of other ops; see conv_pool_parts.h. */
#include "model/ops/conv_pool_parts.h"

#include <stdlib.h>

enum { ALIGN = 256 };

struct conv_pool_parts {
  const struct conv_pool_tables *tables;
  void *conv2d, *maxpool, *activation; /* their states */
  bool active;                         /* there is an activation */
  size_t conv_bytes, pooled_bytes; /* workspace: convolution's result or gradient, masked gradient, rest */
};

static size_t align(size_t bytes) {
  return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Creates one part and raises *workspace to what it needs. */
static enum status part_create(struct op_context *context, const struct op_table *table,
                               const struct op_desc *desc, struct op_signature *signature, void **state,
                               size_t *workspace) {
  size_t bytes = 0;
  TRY(op_infer(desc, signature));
  TRY(table->create(context, desc, signature, state, &bytes));
  if (bytes > *workspace) *workspace = bytes;
  return STATUS_OK;
}

enum status conv_pool_parts_create(struct op_context *context, const struct conv_pool_tables *tables,
                                   const struct op_desc *desc, const struct op_signature *signature,
                                   struct conv_pool_parts **out, size_t *workspace) {
  const struct conv_pool_attr *attr = &desc->attr.conv_pool;
  enum status status = STATUS_OK;
  struct op_desc part = {.kind = OP_CONV2D, .training = desc->training, .in_count = 1, .in = {desc->in[0]}};
  struct op_signature conv, pool, active;
  size_t rest = 0;
  struct conv_pool_parts *parts = calloc(1, sizeof *parts);
  if (!parts) return RAISE(STATUS_INPUT, "out of memory");
  parts->tables = tables;
  parts->active = attr->activation != ACTIVATION_NONE;
  part.attr.conv2d = attr->conv;
  TRY_OUT(part_create(context, &tables->conv2d, &part, &conv, &parts->conv2d, &rest));
  part.kind = OP_MAXPOOL;
  part.in[0] = conv.out;
  part.attr.maxpool = attr->maxpool;
  TRY_OUT(part_create(context, &tables->maxpool, &part, &pool, &parts->maxpool, &rest));
  if (parts->active) {
    part.kind = OP_ACTIVATION;
    part.in[0] = signature->out;
    part.attr.activation.kind = attr->activation;
    TRY_OUT(part_create(context, &tables->activation, &part, &active, &parts->activation, &rest));
  }
  parts->conv_bytes = align(tensor_bytes(&conv.out));
  parts->pooled_bytes = desc->training && parts->active ? align(tensor_bytes(&signature->out)) : 0;
  *workspace = parts->conv_bytes + parts->pooled_bytes + rest;
  *out = parts;
  parts = NULL;
out:
  conv_pool_parts_destroy(context, parts);
  return status;
}

enum status conv_pool_parts_forward(struct op_context *context, const struct conv_pool_parts *parts,
                                    const struct op_io *io) {
  char *conv_out = io->workspace, *rest = conv_out + parts->conv_bytes + parts->pooled_bytes;
  struct op_io conv = {.in = {io->in[0]},
                       .out = conv_out,
                       .param = {io->param[0], io->param[1]},
                       .workspace = rest,
                       .scale = io->scale};
  struct op_io pool = {.in = {conv_out}, .out = io->out, .saved = {io->saved[0]}, .workspace = rest};
  struct op_io active = {.in = {io->out}, .out = io->out, .workspace = rest};
  TRY(parts->tables->conv2d.forward(context, parts->conv2d, &conv));
  TRY(parts->tables->maxpool.forward(context, parts->maxpool, &pool));
  if (parts->active) TRY(parts->tables->activation.forward(context, parts->activation, &active));
  return STATUS_OK;
}

enum status conv_pool_parts_backward(struct op_context *context, const struct conv_pool_parts *parts,
                                     const struct op_io *io) {
  char *d_conv = io->workspace, *d_pooled = d_conv + parts->conv_bytes;
  char *rest = d_pooled + parts->pooled_bytes;
  struct op_io active = {.out = io->out, .d_out = io->d_out, .d_in = {d_pooled}, .workspace = rest};
  struct op_io pool = {.saved = {io->saved[0]},
                       .d_out = parts->active ? d_pooled : io->d_out,
                       .d_in = {d_conv},
                       .workspace = rest};
  struct op_io conv = {.in = {io->in[0]},
                       .param = {io->param[0], io->param[1]},
                       .workspace = rest,
                       .scale = io->scale,
                       .d_out = d_conv,
                       .d_in = {io->d_in[0]},
                       .d_in_add = {io->d_in_add[0]},
                       .d_param = {io->d_param[0], io->d_param[1]}};
  if (parts->active) TRY(parts->tables->activation.backward(context, parts->activation, &active));
  TRY(parts->tables->maxpool.backward(context, parts->maxpool, &pool));
  TRY(parts->tables->conv2d.backward(context, parts->conv2d, &conv));
  return STATUS_OK;
}

void conv_pool_parts_destroy(struct op_context *context, struct conv_pool_parts *parts) {
  if (!parts) return;
  parts->tables->conv2d.destroy(context, parts->conv2d);
  parts->tables->maxpool.destroy(context, parts->maxpool);
  parts->tables->activation.destroy(context, parts->activation);
  free(parts);
}
