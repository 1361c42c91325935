/* What the device can do at most, measured by the backend's own ops: memory traffic by adding two arrays far
 * larger than any cache, products by one large matrix product; on random data. */
#include "app/bench_ceiling.h"

#include <stdlib.h>

#include "model/base/clock.h"
#include "model/base/random.h"

enum { REPEATS = 4, WINDOWS = 5 };

/* An op's forward pass on its own memory. */
struct trial {
  struct backend *backend;
  struct op_desc desc;
  struct op_signature signature;
  void *state;
  struct op_io io;
  void *memory[8];
  int memory_count;
};

static enum status trial_alloc(struct trial *trial, const struct tensor *tensor, void **memory) {
  size_t bytes = tensor_bytes(tensor), block = 1 << 20;
  TRY(trial->backend->table->alloc(trial->backend, bytes, memory));
  trial->memory[trial->memory_count++] = *memory;
  uint16_t *random = malloc(block); /* the same random block again and again: no zeros, no denormals */
  if (!random) return RAISE(STATUS_INPUT, "out of memory");
  struct random_key key = random_key(0, RANDOM_TEST, (uint32_t)trial->memory_count);
  for (size_t i = 0; i < block / sizeof *random; i++) {
    float value = (float)random_normal(key, i / (tensor->dtype == DTYPE_F32 ? 2 : 1));
    if (tensor->dtype == DTYPE_BF16)
      random[i] = bf16_from_float(value);
    else
      ((float *)(void *)random)[i / 2] = value;
  }
  enum status status = STATUS_OK;
  for (size_t done = 0; done < bytes && status == STATUS_OK; done += block)
    status = trial->backend->table->upload(trial->backend, (char *)*memory + done, random,
                                           bytes - done < block ? bytes - done : block);
  free(random);
  return status;
}

static enum status body(void *argument) {
  struct trial *trial = argument;
  const struct op_table *op = &trial->backend->table->ops[trial->desc.kind];
  for (int i = 0; i < REPEATS; i++) TRY(op->forward(trial->backend->context, trial->state, &trial->io));
  return STATUS_OK;
}

static enum status trial_open(struct trial *trial) {
  void *memory;
  size_t workspace = 0;
  TRY(op_infer(&trial->desc, &trial->signature));
  for (int i = 0; i < trial->desc.in_count; i++) {
    TRY(trial_alloc(trial, &trial->desc.in[i], &memory));
    trial->io.in[i] = memory;
  }
  for (int i = 0; i < trial->signature.param_count; i++) {
    TRY(trial_alloc(trial, &trial->signature.param[i].tensor, &memory));
    trial->io.param[i] = memory;
  }
  TRY(trial_alloc(trial, &trial->signature.out, &trial->io.out));
  const struct backend_table *table = trial->backend->table;
  TRY(table->ops[trial->desc.kind].create(trial->backend->context, &trial->desc, &trial->signature,
                                          &trial->state, &workspace));
  TRY(table->alloc(trial->backend, workspace, &trial->io.workspace));
  trial->memory[trial->memory_count++] = trial->io.workspace;
  return STATUS_OK;
}

/* Seconds of one forward pass: the best of the windows, since it is a ceiling. */
static enum status trial_run(struct trial *trial, double *seconds) {
  const struct backend_table *table = trial->backend->table;
  struct program *program = NULL;
  enum status status = STATUS_OK;
  *seconds = 1e30;
  for (int i = 0; i <= WINDOWS; i++) {
    uint64_t ticket;
    TRY_OUT(table->sync(trial->backend));
    double begin = clock_seconds();
    TRY_OUT(table->run(trial->backend, &program, body, trial, &ticket));
    TRY_OUT(table->wait(trial->backend, ticket));
    double each = (clock_seconds() - begin) / REPEATS;
    if (i > 0 && each < *seconds) *seconds = each;
  }
out:
  table->program_destroy(trial->backend, program);
  return status;
}

static enum status measure(struct trial *trial, double *seconds) {
  const struct backend_table *table = trial->backend->table;
  enum status status = trial_open(trial);
  if (status == STATUS_OK) status = trial_run(trial, seconds);
  table->ops[trial->desc.kind].destroy(trial->backend->context, trial->state);
  for (int i = 0; i < trial->memory_count; i++) table->release(trial->backend, trial->memory[i]);
  return status;
}

enum status bench_ceiling(struct backend *backend, struct bench_ceiling *ceiling) {
  enum dtype compute = backend->context->compute;
  int64_t rows = ceiling->memory_elements, side = ceiling->matrix_side;
  double seconds;
  struct tensor large = tensor_2d(compute, rows / 1024, 1024);
  struct trial add = {.backend = backend,
                      .desc = {.kind = OP_ADD, .in_count = 2, .in = {large, large}, .attr.add = {1}}};
  TRY(measure(&add, &seconds));
  ceiling->bytes_per_s = 3 * (double)tensor_bytes(&large) / seconds;
  struct trial product = {.backend = backend,
                          .desc = {.kind = OP_LINEAR,
                                   .in_count = 1,
                                   .in = {tensor_2d(compute, side, side)},
                                   .attr.linear = {.outputs = (int)side, .bias = true}}};
  TRY(measure(&product, &seconds));
  ceiling->operations_per_s = 2 * (double)side * (double)side * (double)side / seconds;
  return STATUS_OK;
}
