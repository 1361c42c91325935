/* add on the CPU. */
#include <stdlib.h>

#include "model/ops/op_cpu.h"

struct add_state {
  int64_t count;
  float scale;
};

enum status add_cpu_create(struct op_context *context, const struct op_desc *desc,
                           const struct op_signature *signature, void **state, size_t *workspace) {
  struct add_state *made = malloc(sizeof *made);
  (void)context;
  if (!made) return RAISE(STATUS_INPUT, "out of memory");
  *made = (struct add_state){.count = tensor_count(&signature->out), .scale = desc->attr.add.scale};
  *state = made;
  *workspace = 0;
  return STATUS_OK;
}

enum status add_cpu_forward(struct op_context *context, void *state, const struct op_io *io) {
  const struct add_state *op = state;
  op_cpu_add(op_cpu(context), io->in[0], io->in[1], op->scale, io->out, op->count);
  return STATUS_OK;
}

enum status add_cpu_backward(struct op_context *context, void *state, const struct op_io *io) {
  const struct add_state *op = state;
  for (int i = 0; i < 2; i++)
    if (io->d_in[i])
      op_cpu_add(op_cpu(context), io->d_in_add[i] ? io->d_in[i] : NULL, io->d_out, i == 0 ? 1 : op->scale,
                 io->d_in[i], op->count);
  return STATUS_OK;
}

void add_cpu_destroy(struct op_context *context, void *state) {
  (void)context;
  free(state);
}
