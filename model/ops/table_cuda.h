/* The CUDA ops' functions, one op a file <op>_cuda.c, declared from ops.def; and what those files share. */
#ifndef CONVOY_MODEL_OPS_TABLE_CUDA_H
#define CONVOY_MODEL_OPS_TABLE_CUDA_H

#include "model/ops/op.h"

#define OP(NAME, name)                                                                                       \
  enum status name##_cuda_create(struct op_context *context, const struct op_desc *desc,                     \
                                 const struct op_signature *signature, void **state, size_t *workspace);     \
  enum status name##_cuda_forward(struct op_context *context, void *state, const struct op_io *io);          \
  enum status name##_cuda_backward(struct op_context *context, void *state, const struct op_io *io);         \
  void name##_cuda_destroy(struct op_context *context, void *state);
#include "model/ops/ops.def"
#undef OP

/* *state = a copy of made[bytes], to be freed by op_free_cuda: the states of ops that own nothing else. */
enum status op_state_cuda(const void *made, size_t bytes, void **state);
void op_free_cuda(struct op_context *context, void *state);

#endif
