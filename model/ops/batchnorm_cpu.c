/* batchnorm on the CPU: own passes over memory (norm_cpu.h). */
#include <stdlib.h>

#include "model/ops/norm_cpu.h"

struct batchnorm_state {
  struct norm_cpu norm;
  bool training;
};

enum status batchnorm_cpu_create(struct op_context *context, const struct op_desc *desc,
                                 const struct op_signature *signature, void **state, size_t *workspace) {
  struct batchnorm_state *made = malloc(sizeof *made);
  if (!made) return RAISE(STATUS_INPUT, "out of memory");
  (void)signature;
  made->norm = norm_cpu(op_cpu(context), &desc->in[0], &desc->attr.batchnorm, ACTIVATION_NONE);
  made->training = desc->training;
  *workspace = norm_cpu_workspace(&made->norm);
  *state = made;
  return STATUS_OK;
}

enum status batchnorm_cpu_forward(struct op_context *context, void *state, const struct op_io *io) {
  const struct batchnorm_state *s = state;
  struct norm_cpu_forward arrays = {
      .x = io->in[0], .weight = io->param[0], .bias = io->param[1], .out = io->out};
  (void)context;
  if (s->training && !s->norm.running)
    norm_cpu_statistics(&s->norm, io, 0, &arrays);
  else
    norm_cpu_running(&s->norm, io, &arrays.mean, &arrays.invstd);
  norm_cpu_forward(&s->norm, &arrays, io->workspace);
  return STATUS_OK;
}

enum status batchnorm_cpu_backward(struct op_context *context, void *state, const struct op_io *io) {
  const struct batchnorm_state *s = state;
  struct norm_cpu_backward arrays = {.x = io->in[0],
                                     .d_out = io->d_out,
                                     .mean = io->saved[0],
                                     .invstd = io->saved[1],
                                     .weight = io->param[0],
                                     .bias = io->param[1],
                                     .d_weight = io->d_param[0],
                                     .d_bias = io->d_param[1],
                                     .d_x = io->d_in[0],
                                     .d_x_add = io->d_in_add[0]};
  (void)context;
  if (s->norm.running) norm_cpu_running(&s->norm, io, &arrays.mean, &arrays.invstd);
  norm_cpu_backward(&s->norm, &arrays, io->workspace);
  return STATUS_OK;
}

void batchnorm_cpu_destroy(struct op_context *context, void *state) {
  (void)context;
  free(state);
}
