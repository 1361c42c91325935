/* linear on CUDA: own kernels where there are few outputs (a classifier), else cuBLASLt. There, the bias is
 * added by our kernel from an fp32 product, since cuBLASLt has no fp32 bias beside a bf16 result. */
#include <stdlib.h>

#include "model/ops/blas_cuda.h"
#include "model/ops/kernels.h"
#include "model/ops/op_cuda.h"
#include "model/ops/table_cuda.h"

struct linear_state {
  struct linear_args args;
  bool thin;                                  /* few outputs: no product of a library */
  struct blas_product *out, *d_in, *d_weight; /* else */
  size_t product;                             /* bytes of the fp32 result at the workspace's start */
};

void linear_cuda_destroy(struct op_context *context, void *state) {
  struct linear_state *op = state;
  (void)context;
  if (!op) return;
  blas_product_destroy(op->out);
  blas_product_destroy(op->d_in);
  blas_product_destroy(op->d_weight);
  free(op);
}

static enum status create_products(struct cuda_context *cuda, struct linear_state *op, bool training,
                                   size_t *workspace) {
  const struct linear_args *args = &op->args;
  struct blas_problem problem = {.dtype = args->dtype,
                                 .result = DTYPE_F32,
                                 .m = args->rows,
                                 .n = args->outputs,
                                 .k = args->inputs,
                                 .b_transposed = true};
  size_t bytes;
  op->product = cuda_align((size_t)(args->rows * args->outputs) * sizeof(float));
  TRY(blas_product_create(cuda, &problem, &op->out, &bytes));
  *workspace = op->product + bytes;
  if (!training) return STATUS_OK;
  problem = (struct blas_problem){
      .dtype = args->dtype, .result = args->dtype, .m = args->rows, .n = args->inputs, .k = args->outputs};
  TRY(blas_product_create(cuda, &problem, &op->d_in, &bytes));
  if (bytes > *workspace) *workspace = bytes;
  problem = (struct blas_problem){.dtype = args->dtype,
                                  .result = DTYPE_F32,
                                  .m = args->outputs,
                                  .n = args->inputs,
                                  .k = args->rows,
                                  .a_transposed = true};
  TRY(blas_product_create(cuda, &problem, &op->d_weight, &bytes));
  if (bytes > *workspace) *workspace = bytes;
  bytes = kernel_channel_workspace(args->dtype, args->rows, args->outputs) * sizeof(float);
  if (bytes > *workspace) *workspace = bytes;
  return STATUS_OK;
}

enum status linear_cuda_create(struct op_context *context, const struct op_desc *desc,
                               const struct op_signature *signature, void **state, size_t *workspace) {
  enum status status = STATUS_OK;
  struct linear_state *op = calloc(1, sizeof *op);
  (void)signature;
  if (!op) return RAISE(STATUS_INPUT, "out of memory");
  op->args = (struct linear_args){.dtype = desc->in[0].dtype,
                                  .rows = desc->in[0].dim[0],
                                  .inputs = tensor_count(&desc->in[0]) / desc->in[0].dim[0],
                                  .outputs = desc->attr.linear.outputs};
  op->thin = op->args.outputs <= KERNEL_LINEAR_OUTPUTS;
  if (op->thin)
    *workspace = kernel_linear_workspace(&op->args) * sizeof(float);
  else
    TRY_OUT(create_products(cuda_context_of(context), op, desc->training, workspace));
  *state = op;
out:
  if (status != STATUS_OK) linear_cuda_destroy(context, op);
  return status;
}

enum status linear_cuda_forward(struct op_context *context, void *state, const struct op_io *io) {
  struct cuda_context *cuda = cuda_context_of(context);
  const struct linear_state *op = state;
  const struct linear_args *args = &op->args;
  if (op->thin) {
    TRY_CUDA(kernel_linear(cuda->stream, args, io->in[0], io->param[0], io->param[1], io->out, io->workspace,
                           cuda->tickets));
    return STATUS_OK;
  }
  TRY(blas_product_run(cuda, op->out, io->in[0], io->param[0], io->workspace, false,
                       cuda_offset(io->workspace, op->product)));
  TRY_CUDA(kernel_bias_convert(cuda->stream, args->dtype, io->workspace, io->param[1], io->out, args->rows,
                               args->outputs));
  return STATUS_OK;
}

enum status linear_cuda_backward(struct op_context *context, void *state, const struct op_io *io) {
  struct cuda_context *cuda = cuda_context_of(context);
  const struct linear_state *op = state;
  const struct linear_args *args = &op->args;
  if (op->thin) {
    TRY_CUDA(kernel_linear_backward(cuda->stream, args, io->in[0], io->param[0], io->d_out, io->d_in[0],
                                    io->d_in_add[0], io->d_param[0], io->d_param[1], io->workspace,
                                    cuda->tickets));
    return STATUS_OK;
  }
  if (io->d_param[1])
    TRY_CUDA(kernel_column_sum(cuda->stream, args->dtype, io->d_out, io->d_param[1], args->rows,
                               args->outputs, io->workspace, cuda->tickets));
  if (io->d_param[0])
    TRY(blas_product_run(cuda, op->d_weight, io->d_out, io->in[0], io->d_param[0], false, io->workspace));
  if (io->d_in[0])
    TRY(blas_product_run(cuda, op->d_in, io->d_out, io->param[0], io->d_in[0], io->d_in_add[0],
                         io->workspace));
  return STATUS_OK;
}
