/* Running a trial on a backend; see trial.h. */
#include <stdlib.h>
#include <string.h>

#include "tests/reference/trial.h"

enum { POISON = 0xff, GUARD = 64, GUARD_BYTE = 0xa5 }; /* 0xff...: NaN as fp32 and as bf16 */

static enum status fill(struct backend *backend, void *device, int byte, size_t bytes) {
  if (bytes == 0) return STATUS_OK;
  void *host = malloc(bytes);
  if (!host) return RAISE(STATUS_INPUT, "no memory");
  memset(host, byte, bytes);
  enum status status = backend->table->upload(backend, device, host, bytes);
  free(host);
  return status;
}

/* Puts the given values, or poison, on the device. */
static enum status put(struct backend *backend, struct trial_array *array, bool poison) {
  size_t bytes = tensor_bytes(&array->tensor);
  if (bytes == 0) return STATUS_OK;
  if (poison) return fill(backend, array->device, POISON, bytes);
  void *host = malloc(bytes);
  if (!host) return RAISE(STATUS_INPUT, "no memory");
  array_encode(host, array->tensor.dtype, array->given, tensor_count(&array->tensor));
  enum status status = backend->table->upload(backend, array->device, host, bytes);
  free(host);
  return status;
}

/* Reads an array and checks that nothing was written past its end. */
static enum status get(struct backend *backend, const struct trial_array *array, unsigned char *bytes,
                       const char *name) {
  size_t count = tensor_bytes(&array->tensor);
  unsigned char guard[GUARD];
  TRY(backend->table->download(backend, bytes, array->device, count));
  TRY(backend->table->download(backend, guard, (unsigned char *)array->device + count, GUARD));
  for (int i = 0; i < GUARD; i++)
    if (guard[i] != GUARD_BYTE) return RAISE(STATUS_INTERNAL, "%s: written past its end, byte %d", name, i);
  return STATUS_OK;
}

static enum status get_results(struct backend *backend, struct trial *trial, enum trial_role first,
                               enum trial_role last) {
  for (int role = (int)first; role <= (int)last; role++)
    for (int i = 0; i < TRIAL_ARRAYS; i++) {
      struct trial_array *array = &trial->array[role][i];
      if (array->tensor.rank == 0) continue;
      TRY(get(backend, array, array->bytes, trial_role_name((enum trial_role)role)));
      array_decode(array->found, array->tensor.dtype, array->bytes, tensor_count(&array->tensor));
    }
  return STATUS_OK;
}

/* The op must leave what it reads as it was. */
static enum status check_inputs(struct backend *backend, struct trial *trial) {
  for (int role = TRIAL_IN; role <= TRIAL_PARAM; role++)
    for (int i = 0; i < TRIAL_ARRAYS; i++) {
      struct trial_array *array = &trial->array[role][i];
      size_t bytes = tensor_bytes(&array->tensor);
      if (bytes == 0) continue;
      enum status status = STATUS_OK;
      unsigned char *before = malloc(bytes), *after = malloc(bytes);
      if (!before || !after)
        status = RAISE(STATUS_INPUT, "no memory");
      else
        status = get(backend, array, after, trial_role_name((enum trial_role)role));
      if (status == STATUS_OK) {
        array_encode(before, array->tensor.dtype, array->given, tensor_count(&array->tensor));
        if (memcmp(before, after, bytes) != 0)
          status = RAISE(STATUS_INTERNAL, "forward changed %s %d", trial_role_name((enum trial_role)role), i);
      }
      free(before);
      free(after);
      TRY(status);
    }
  return STATUS_OK;
}

static enum status place(struct backend *backend, struct trial *trial, enum trial_mode mode) {
  for (int role = 0; role < TRIAL_ROLES; role++)
    for (int i = 0; i < TRIAL_ARRAYS; i++) {
      struct trial_array *array = &trial->array[role][i];
      size_t bytes = tensor_bytes(&array->tensor);
      if (bytes == 0) continue;
      TRY(backend->table->alloc(backend, bytes + GUARD, &array->device));
      TRY(fill(backend, (unsigned char *)array->device + bytes, GUARD_BYTE, GUARD));
      bool add = role == TRIAL_D_IN && (mode == TRIAL_ADD_BOTH || (mode == TRIAL_ADD_FIRST && i == 0) ||
                                        (mode == TRIAL_ADD_SECOND && i == 1));
      TRY(put(backend, array, role >= TRIAL_OUT && !add));
    }
  return STATUS_OK;
}

static struct op_io pointers(const struct trial *trial, enum trial_mode mode) {
  const struct trial_array(*array)[TRIAL_ARRAYS] = trial->array;
  struct op_io io = {.out = array[TRIAL_OUT][0].device, .d_out = array[TRIAL_D_OUT][0].device};
  for (int i = 0; i < OP_MAX_IN; i++) {
    io.in[i] = array[TRIAL_IN][i].device;
    io.d_in[i] = mode == TRIAL_NO_D_IN ? NULL : array[TRIAL_D_IN][i].device;
  }
  io.d_in_add[0] = mode == TRIAL_ADD_FIRST || mode == TRIAL_ADD_BOTH;
  io.d_in_add[1] = mode == TRIAL_ADD_SECOND || mode == TRIAL_ADD_BOTH;
  for (int i = 0; i < OP_MAX_PARAM; i++) {
    io.param[i] = array[TRIAL_PARAM][i].device;
    io.d_param[i] = trial_wants_param(mode, i) ? array[TRIAL_D_PARAM][i].device : NULL;
  }
  for (int i = 0; i < OP_MAX_STATISTIC; i++) {
    io.statistic[i] = array[TRIAL_STATISTIC][i].device;
    io.batch_statistic[i] = array[TRIAL_BATCH_STATISTIC][i].device;
  }
  for (int i = 0; i < OP_MAX_SAVED; i++) io.saved[i] = array[TRIAL_SAVED][i].device;
  return io;
}

static enum status run_backward(struct trial *trial, struct backend *backend, void *state,
                                const struct op_io *io, size_t workspace) {
  const struct op_signature *signature = &trial->signature;
  struct trial_array *out = &trial->array[TRIAL_OUT][0];
  trial_reference_backward(trial);
  for (int i = 0; i < trial->desc.in_count; i++)
    if (!signature->keeps_in[i]) TRY(put(backend, &trial->array[TRIAL_IN][i], true));
  if (!signature->keeps_out) TRY(put(backend, out, true));
  TRY(fill(backend, io->workspace, POISON, workspace));
  TRY(backend->table->ops[trial->desc.kind].backward(backend->context, state, io));
  return get_results(backend, trial, TRIAL_D_IN, TRIAL_D_PARAM);
}

enum status trial_run(struct trial *trial, struct backend *backend, enum trial_mode mode) {
  const struct backend_table *table = backend->table;
  const struct op_table *op = &table->ops[trial->desc.kind];
  enum status status = STATUS_OK;
  void *state = NULL, *memory = NULL, *scale = NULL;
  size_t workspace = 0;
  struct op_desc desc = trial->desc;
  for (int i = 0; i < OP_MAX_IN; i++) desc.fixed_in[i] = mode == TRIAL_NO_D_IN;
  TRY_OUT(op->create(backend->context, &desc, &trial->signature, &state, &workspace));
  TRY_OUT(place(backend, trial, mode));
  TRY_OUT(table->alloc(backend, sizeof trial->scale, &scale));
  TRY_OUT(table->upload(backend, scale, &trial->scale, sizeof trial->scale));
  if (workspace) TRY_OUT(table->alloc(backend, workspace, &memory));
  TRY_OUT(fill(backend, memory, POISON, workspace));
  struct op_io io = pointers(trial, mode);
  io.workspace = memory;
  io.scale = scale;
  TRY_OUT(op->forward(backend->context, state, &io));
  TRY_OUT(get_results(backend, trial, TRIAL_OUT, TRIAL_SAVED));
  TRY_OUT(check_inputs(backend, trial));
  if (trial->desc.training) TRY_OUT(run_backward(trial, backend, state, &io, workspace));
  TRY_OUT(table->sync(backend));
out:
  op->destroy(backend->context, state);
  for (int role = 0; role < TRIAL_ROLES; role++)
    for (int i = 0; i < TRIAL_ARRAYS; i++) {
      table->release(backend, trial->array[role][i].device);
      trial->array[role][i].device = NULL;
    }
  table->release(backend, scale);
  table->release(backend, memory);
  return status;
}
