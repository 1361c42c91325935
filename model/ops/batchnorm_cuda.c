/* batchnorm on CUDA: own kernels, one pass each over the activations. */
#include "model/ops/kernels.h"
#include "model/ops/op_cuda.h"
#include "model/ops/table_cuda.h"

struct batchnorm_state {
  struct norm_args norm; /* without pointers */
  bool batch;            /* statistics of the batch, not the running ones */
};

enum status batchnorm_cuda_create(struct op_context *context, const struct op_desc *desc,
                                  const struct op_signature *signature, void **state, size_t *workspace) {
  (void)context, (void)signature;
  const struct tensor *in = &desc->in[0];
  struct batchnorm_state made = {.batch = desc->training && !desc->attr.batchnorm.running};
  made.norm = (struct norm_args){.dtype = in->dtype,
                                 .activation = ACTIVATION_NONE,
                                 .rows = tensor_count(in) / in->dim[3],
                                 .channels = in->dim[3],
                                 .epsilon = desc->attr.batchnorm.epsilon,
                                 .batch = (float)in->dim[0]};
  *workspace = desc->training
                   ? kernel_channel_workspace(in->dtype, made.norm.rows, made.norm.channels) * sizeof(float)
                   : 0;
  return op_state_cuda(&made, sizeof made, state);
}

static struct norm_args bind(const struct cuda_context *cuda, const struct batchnorm_state *op,
                             const struct op_io *io) {
  struct norm_args norm = op->norm;
  norm.in = io->in[0];
  norm.out = io->out;
  norm.weight = io->param[0];
  norm.bias = io->param[1];
  norm.mean = op->batch ? io->saved[0] : NULL;
  norm.invstd = op->batch ? io->saved[1] : NULL;
  norm.running_mean = io->statistic[0];
  norm.running_var = io->statistic[1];
  norm.batch_mean = io->batch_statistic[0];
  norm.batch_var = io->batch_statistic[1];
  norm.scale = io->scale;
  norm.workspace = io->workspace;
  norm.tickets = cuda->tickets;
  return norm;
}

enum status batchnorm_cuda_forward(struct op_context *context, void *state, const struct op_io *io) {
  struct cuda_context *cuda = cuda_context_of(context);
  const struct batchnorm_state *op = state;
  struct norm_args norm = bind(cuda, op, io);
  TRY_CUDA(op->batch ? kernel_norm_forward(cuda->stream, &norm) : kernel_norm_apply(cuda->stream, &norm));
  return STATUS_OK;
}

enum status batchnorm_cuda_backward(struct op_context *context, void *state, const struct op_io *io) {
  struct cuda_context *cuda = cuda_context_of(context);
  struct norm_args norm = bind(cuda, state, io);
  norm.d_out = io->d_out;
  norm.d_in = io->d_in[0];
  norm.d_in_add = io->d_in_add[0];
  norm.d_weight = io->d_param[0];
  norm.d_bias = io->d_param[1];
  TRY_CUDA(kernel_norm_backward(cuda->stream, &norm));
  return STATUS_OK;
}

void batchnorm_cuda_destroy(struct op_context *context, void *state) {
  op_free_cuda(context, state);
}
