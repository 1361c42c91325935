/* avgpool on the CPU: the mean over height and width of each image and channel. */
#include <stdlib.h>

#include "model/ops/op_cpu.h"

struct avgpool_state {
  int64_t batch, pixels, channels;
  bool bf16;
};

enum status avgpool_cpu_create(struct op_context *context, const struct op_desc *desc,
                               const struct op_signature *signature, void **state, size_t *workspace) {
  struct avgpool_state *made = malloc(sizeof *made);
  const int64_t *in = desc->in[0].dim;
  (void)signature;
  if (!made) return RAISE(STATUS_INPUT, "out of memory");
  *made = (struct avgpool_state){in[0], in[1] * in[2], in[3], context->compute == DTYPE_BF16};
  *state = made;
  *workspace = 0;
  return STATUS_OK;
}

OP_CPU_INLINE void forward_block(bool bf16, const void *in, int64_t at, int64_t pixels, int64_t channels,
                                 int w, void *out, int64_t to) {
  float sum[OP_CPU_WIDTH] = {0};
  for (int64_t p = 0; p < pixels; p++)
#pragma omp simd
    for (int j = 0; j < w; j++) sum[j] += op_cpu_load(in, bf16, at + p * channels + j);
  for (int j = 0; j < w; j++) op_cpu_store(out, bf16, to + j, sum[j] / (float)pixels);
}

OP_CPU_INLINE void forward_images(bool bf16, const struct avgpool_state *s, const void *in, void *out,
                                  struct op_cpu_range range) {
  for (int64_t n = range.first; n < range.last; n++) {
    int64_t at = n * s->pixels * s->channels, to = n * s->channels, c = 0;
    for (; c + OP_CPU_WIDTH <= s->channels; c += OP_CPU_WIDTH)
      forward_block(bf16, in, at + c, s->pixels, s->channels, OP_CPU_WIDTH, out, to + c);
    if (c < s->channels)
      forward_block(bf16, in, at + c, s->pixels, s->channels, (int)(s->channels - c), out, to + c);
  }
}

OP_CPU_CLONES static void forward_range(const struct avgpool_state *s, const void *in, void *out,
                                        struct op_cpu_range range) {
  if (s->bf16)
    forward_images(true, s, in, out, range);
  else
    forward_images(false, s, in, out, range);
}

OP_CPU_INLINE void backward_images(bool bf16, const struct avgpool_state *s, const void *d_out, void *d_in,
                                   bool add, struct op_cpu_range range) {
  float share = 1.0f / (float)s->pixels;
  int64_t channels = s->channels;
  for (int64_t row = range.first * s->pixels; row < range.last * s->pixels; row++) {
    int64_t from = row / s->pixels * channels, to = row * channels;
#pragma omp simd
    for (int64_t c = 0; c < channels; c++) {
      float d = op_cpu_load(d_out, bf16, from + c) * share;
      op_cpu_store(d_in, bf16, to + c, add ? op_cpu_load(d_in, bf16, to + c) + d : d);
    }
  }
}

OP_CPU_CLONES static void backward_range(const struct avgpool_state *s, const void *d_out, void *d_in,
                                         bool add, struct op_cpu_range range) {
  if (s->bf16)
    backward_images(true, s, d_out, d_in, add, range);
  else
    backward_images(false, s, d_out, d_in, add, range);
}

enum status avgpool_cpu_forward(struct op_context *context, void *state, const struct op_io *io) {
  const struct avgpool_state *s = state;
  int threads = op_cpu(context)->threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int t = 0; t < threads; t++) forward_range(s, io->in[0], io->out, op_cpu_range(s->batch, threads, t));
  return STATUS_OK;
}

enum status avgpool_cpu_backward(struct op_context *context, void *state, const struct op_io *io) {
  const struct avgpool_state *s = state;
  int threads = op_cpu(context)->threads;
  if (!io->d_in[0]) return STATUS_OK;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int t = 0; t < threads; t++)
    backward_range(s, io->d_out, io->d_in[0], io->d_in_add[0], op_cpu_range(s->batch, threads, t));
  return STATUS_OK;
}

void avgpool_cpu_destroy(struct op_context *context, void *state) {
  (void)context;
  free(state);
}
