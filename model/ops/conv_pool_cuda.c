/* conv_pool on CUDA: one own kernel each way where filters have few taps (a first layer's), else the chain of
 * its parts. */
#include <stdlib.h>

#include "model/ops/conv_pool_parts.h"
#include "model/ops/kernels.h"
#include "model/ops/op_cuda.h"
#include "model/ops/table_cuda.h"

static const struct conv_pool_tables tables = {
    .conv2d = {conv2d_cuda_create, conv2d_cuda_forward, conv2d_cuda_backward, conv2d_cuda_destroy},
    .maxpool = {maxpool_cuda_create, maxpool_cuda_forward, maxpool_cuda_backward, maxpool_cuda_destroy},
    .activation = {activation_cuda_create, activation_cuda_forward, activation_cuda_backward,
                   activation_cuda_destroy}};

struct conv_pool_state {
  struct conv_pool_parts *parts; /* NULL: own kernels */
  struct conv_pool_args args;    /* without pointers */
};

static struct conv_pool_args describe(const struct op_desc *desc, const struct op_signature *signature) {
  const struct conv_pool_attr *attr = &desc->attr.conv_pool;
  const int64_t *in = desc->in[0].dim, *out = signature->out.dim;
  return (struct conv_pool_args){.dtype = desc->in[0].dtype,
                                 .n = in[0],
                                 .h = (int)in[1],
                                 .w = (int)in[2],
                                 .c = (int)in[3],
                                 .out_h = (int)out[1],
                                 .out_w = (int)out[2],
                                 .filters = attr->conv.filters,
                                 .kernel_h = attr->conv.kernel_h,
                                 .kernel_w = attr->conv.kernel_w,
                                 .stride = attr->conv.stride,
                                 .pad = attr->conv.pad,
                                 .pool = attr->maxpool.kernel,
                                 .pool_stride = attr->maxpool.stride,
                                 .relu = attr->activation == ACTIVATION_RELU};
}

enum status conv_pool_cuda_create(struct op_context *context, const struct op_desc *desc,
                                  const struct op_signature *signature, void **state, size_t *workspace) {
  enum status status = STATUS_OK;
  struct conv_pool_state *made = calloc(1, sizeof *made);
  if (!made) return RAISE(STATUS_INPUT, "out of memory");
  made->args = describe(desc, signature);
  if (kernel_conv_pool_fits(&made->args))
    *workspace = desc->training ? kernel_conv_pool_workspace(&made->args) * sizeof(float) : 0;
  else
    TRY_OUT(conv_pool_parts_create(context, &tables, desc, signature, &made->parts, workspace));
  *state = made;
  made = NULL;
out:
  conv_pool_cuda_destroy(context, made);
  return status;
}

static struct conv_pool_args bind(const struct cuda_context *cuda, const struct conv_pool_state *op,
                                  const struct op_io *io) {
  struct conv_pool_args args = op->args;
  args.in = io->in[0];
  args.weight = io->param[0];
  args.bias = io->param[1];
  args.out = io->out;
  args.place = io->saved[0];
  args.workspace = io->workspace;
  args.tickets = cuda->tickets;
  return args;
}

enum status conv_pool_cuda_forward(struct op_context *context, void *state, const struct op_io *io) {
  struct cuda_context *cuda = cuda_context_of(context);
  const struct conv_pool_state *op = state;
  if (op->parts) {
    TRY(conv_pool_parts_forward(context, op->parts, io));
    return STATUS_OK;
  }
  struct conv_pool_args args = bind(cuda, op, io);
  TRY_CUDA(kernel_conv_pool(cuda->stream, &args));
  return STATUS_OK;
}

enum status conv_pool_cuda_backward(struct op_context *context, void *state, const struct op_io *io) {
  struct cuda_context *cuda = cuda_context_of(context);
  const struct conv_pool_state *op = state;
  if (op->parts) {
    TRY(conv_pool_parts_backward(context, op->parts, io));
    return STATUS_OK;
  }
  struct conv_pool_args args = bind(cuda, op, io);
  args.d_out = io->d_out;
  args.d_weight = io->d_param[0];
  args.d_bias = io->d_param[1];
  args.d_in = io->d_in[0];
  args.d_in_add = io->d_in_add[0];
  if (args.d_weight || args.d_bias) TRY_CUDA(kernel_conv_pool_backward_filter(cuda->stream, &args));
  if (args.d_in) TRY_CUDA(kernel_conv_pool_backward_data(cuda->stream, &args));
  return STATUS_OK;
}

void conv_pool_cuda_destroy(struct op_context *context, void *state) {
  struct conv_pool_state *op = state;
  if (!op) return;
  conv_pool_parts_destroy(context, op->parts);
  free(op);
}
