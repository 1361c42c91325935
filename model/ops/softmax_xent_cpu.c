/* softmax_xent on the CPU. A batch has few logits, so this is plain code on one thread, in doubles. */
#include <math.h>
#include <stdlib.h>

#include "model/ops/op_cpu.h"

struct softmax_state {
  int64_t batch, classes;
  double smoothing;
  bool bf16;
};

enum status softmax_xent_cpu_create(struct op_context *context, const struct op_desc *desc,
                                    const struct op_signature *signature, void **state, size_t *workspace) {
  struct softmax_state *made = malloc(sizeof *made);
  (void)signature;
  if (!made) return RAISE(STATUS_INPUT, "out of memory");
  *made = (struct softmax_state){desc->in[0].dim[0], desc->in[0].dim[1],
                                 (double)desc->attr.softmax_xent.smoothing, context->compute == DTYPE_BF16};
  *state = made;
  *workspace = 0;
  return STATUS_OK;
}

/* One row's log-sum-exp; *first_largest is the index of its first largest logit. */
static double row_lse(const struct softmax_state *s, const void *logits, int64_t row,
                      int64_t *first_largest) {
  int64_t at = row * s->classes, best = 0;
  double sum = 0;
  for (int64_t k = 1; k < s->classes; k++)
    if (op_cpu_load(logits, s->bf16, at + k) > op_cpu_load(logits, s->bf16, at + best)) best = k;
  double largest = (double)op_cpu_load(logits, s->bf16, at + best);
  for (int64_t k = 0; k < s->classes; k++) sum += exp((double)op_cpu_load(logits, s->bf16, at + k) - largest);
  *first_largest = best;
  return largest + log(sum);
}

enum status softmax_xent_cpu_forward(struct op_context *context, void *state, const struct op_io *io) {
  const struct softmax_state *s = state;
  const void *logits = io->in[0];
  const int32_t *labels = io->in[1];
  float *out = io->out, *saved = io->saved[0];
  double loss = 0, off = s->smoothing / (double)s->classes;
  int64_t correct = 0;
  (void)context;
  for (int64_t n = 0; n < s->batch; n++) {
    int64_t best, at = n * s->classes;
    double lse = row_lse(s, logits, n, &best), sum = 0;
    for (int64_t k = 0; k < s->classes; k++) sum += lse - (double)op_cpu_load(logits, s->bf16, at + k);
    loss += (1 - s->smoothing) * (lse - (double)op_cpu_load(logits, s->bf16, at + labels[n])) + off * sum;
    correct += best == labels[n];
    if (saved) saved[n] = (float)lse;
  }
  out[0] = (float)loss;
  out[1] = (float)correct;
  return STATUS_OK;
}

enum status softmax_xent_cpu_backward(struct op_context *context, void *state, const struct op_io *io) {
  const struct softmax_state *s = state;
  const void *logits = io->in[0];
  const int32_t *labels = io->in[1];
  const float *saved = io->saved[0];
  double off = s->smoothing / (double)s->classes, scale = (double)*io->scale;
  (void)context;
  if (!io->d_in[0]) return STATUS_OK;
  for (int64_t n = 0; n < s->batch; n++)
    for (int64_t k = 0; k < s->classes; k++) {
      int64_t i = n * s->classes + k;
      double target = off + (labels[n] == k ? 1 - s->smoothing : 0);
      double d = (exp((double)op_cpu_load(logits, s->bf16, i) - (double)saved[n]) - target) * scale;
      if (io->d_in_add[0]) d += (double)op_cpu_load(io->d_in[0], s->bf16, i);
      op_cpu_store(io->d_in[0], s->bf16, i, (float)d);
    }
  return STATUS_OK;
}

void softmax_xent_cpu_destroy(struct op_context *context, void *state) {
  (void)context;
  free(state);
}
