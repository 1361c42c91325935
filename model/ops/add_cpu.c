/* add on the CPU. */
#include <stdlib.h>
#include <string.h>

#include "model/ops/op_cpu.h"

enum status add_cpu_create(struct op_context *context, const struct op_desc *desc,
                           const struct op_signature *signature, void **state, size_t *workspace) {
  int64_t *count = malloc(sizeof *count);
  (void)context, (void)desc;
  if (!count) return RAISE(STATUS_INPUT, "out of memory");
  *count = tensor_count(&signature->out);
  *state = count;
  *workspace = 0;
  return STATUS_OK;
}

enum status add_cpu_forward(struct op_context *context, void *state, const struct op_io *io) {
  op_cpu_add(op_cpu(context), io->in[0], io->in[1], io->out, *(const int64_t *)state);
  return STATUS_OK;
}

enum status add_cpu_backward(struct op_context *context, void *state, const struct op_io *io) {
  int64_t count = *(const int64_t *)state;
  for (int i = 0; i < 2; i++) {
    if (!io->d_in[i]) continue;
    if (io->d_in_add[i])
      op_cpu_add(op_cpu(context), io->d_in[i], io->d_out, io->d_in[i], count);
    else if (io->d_in[i] != io->d_out)
      memcpy(io->d_in[i], io->d_out, (size_t)count * dtype_bytes(context->compute));
  }
  return STATUS_OK;
}

void add_cpu_destroy(struct op_context *context, void *state) {
  (void)context;
  free(state);
}
