/* maxpool on the CPU. Backward gathers: each input element sums the gradients of the windows that chose it,
 * so it is written once, in any overlap of windows and in parallel. */
#include <stdlib.h>

#include "model/ops/op_cpu.h"

struct maxpool_state {
  int64_t batch, in_h, in_w, out_h, out_w, channels;
  int kernel, stride;
  bool bf16;
};

enum status maxpool_cpu_create(struct op_context *context, const struct op_desc *desc,
                               const struct op_signature *signature, void **state, size_t *workspace) {
  struct maxpool_state *made = malloc(sizeof *made);
  const int64_t *in = desc->in[0].dim, *out = signature->out.dim;
  if (!made) return RAISE(STATUS_INPUT, "out of memory");
  *made = (struct maxpool_state){.batch = in[0],
                                 .in_h = in[1],
                                 .in_w = in[2],
                                 .out_h = out[1],
                                 .out_w = out[2],
                                 .channels = in[3],
                                 .kernel = desc->attr.maxpool.kernel,
                                 .stride = desc->attr.maxpool.stride,
                                 .bf16 = context->compute == DTYPE_BF16};
  *state = made;
  *workspace = 0;
  return STATUS_OK;
}

/* w channels of one window: `in` points at its first pixel's first channel, row is the elements of an input
 * row. */
OP_CPU_INLINE void window_block(bool bf16, const void *in, int64_t at, int64_t row, int64_t channels,
                                int kernel, int w, void *out, uint8_t *place, int64_t to) {
  float best[OP_CPU_WIDTH];
  int32_t where[OP_CPU_WIDTH] = {0};
#pragma omp simd
  for (int j = 0; j < w; j++) best[j] = op_cpu_load(in, bf16, at + j);
  for (int v = 0; v < kernel; v++)
    for (int u = 0; u < kernel; u++) {
      int64_t from = at + v * row + u * channels;
      int32_t here = v * kernel + u;
#pragma omp simd
      for (int j = 0; j < w; j++) {
        float value = op_cpu_load(in, bf16, from + j), before = best[j];
        where[j] = value > before ? here : where[j];
        best[j] = value > before ? value : before;
        where[j] = value != value ? here : where[j]; /* a NaN wins, so that the loss shows it */
        best[j] = value != value ? value : best[j];
      }
    }
#pragma omp simd
  for (int j = 0; j < w; j++) op_cpu_store(out, bf16, to + j, best[j]);
  if (!place) return;
#pragma omp simd
  for (int j = 0; j < w; j++) place[to + j] = (uint8_t)where[j];
}

OP_CPU_INLINE void forward_rows(bool bf16, const struct maxpool_state *s, const void *in, void *out,
                                uint8_t *place, struct op_cpu_range range) {
  const int64_t c = s->channels, row = s->in_w * c;
  const int kernel = s->kernel;
  for (int64_t r = range.first; r < range.last; r++) {
    int64_t top = (r / s->out_h * s->in_h + r % s->out_h * s->stride) * row;
    for (int64_t x = 0; x < s->out_w; x++) {
      int64_t at = top + x * s->stride * c, to = (r * s->out_w + x) * c, k = 0;
      for (; k + OP_CPU_WIDTH <= c; k += OP_CPU_WIDTH)
        window_block(bf16, in, at + k, row, c, kernel, OP_CPU_WIDTH, out, place, to + k);
      if (k < c) window_block(bf16, in, at + k, row, c, kernel, (int)(c - k), out, place, to + k);
    }
  }
}

OP_CPU_CLONES static void forward_range(const struct maxpool_state *s, const void *in, void *out,
                                        uint8_t *place, struct op_cpu_range range) {
  if (s->bf16)
    forward_rows(true, s, in, out, place, range);
  else
    forward_rows(false, s, in, out, place, range);
}

/* The windows [first, last) that cover a position along one axis. */
struct windows {
  int64_t first, last;
};

/* Moves on from an earlier position's windows to those over p. */
OP_CPU_INLINE void windows_move(struct windows *windows, int64_t p, int kernel, int stride, int64_t count) {
  while (windows->first * stride + kernel <= p) windows->first++;
  while (windows->last < count && windows->last * stride <= p) windows->last++;
}

/* w channels of one input element (y, x): `to` is its index, image its windows' first index. */
OP_CPU_INLINE void element_block(bool bf16, const struct maxpool_state *s, const void *d_out,
                                 const uint8_t *place, int64_t image, int64_t y, int64_t x,
                                 struct windows rows, struct windows columns, int w, void *d_in, bool add,
                                 int64_t to) {
  float sum[OP_CPU_WIDTH] = {0};
  for (int64_t v = rows.first; v < rows.last; v++)
    for (int64_t u = columns.first; u < columns.last; u++) {
      int64_t from = image + (v * s->out_w + u) * s->channels;
      int32_t mine = (int32_t)((y - v * s->stride) * s->kernel + x - u * s->stride);
#pragma omp simd
      for (int j = 0; j < w; j++) {
        float d = op_cpu_load(d_out, bf16, from + j); /* loaded in any case, so that the loop vectorises */
        int32_t chosen = place[from + j];
        sum[j] += chosen == mine ? d : 0.0f;
      }
    }
  if (add) {
#pragma omp simd
    for (int j = 0; j < w; j++) sum[j] += op_cpu_load(d_in, bf16, to + j);
  }
#pragma omp simd
  for (int j = 0; j < w; j++) op_cpu_store(d_in, bf16, to + j, sum[j]);
}

OP_CPU_INLINE void backward_rows(bool bf16, const struct maxpool_state *args, const void *d_out,
                                 const uint8_t *place, void *d_in, bool add, struct op_cpu_range range) {
  const struct maxpool_state state = *args, *s = &state;
  const int64_t channels = s->channels;
  for (int64_t r = range.first; r < range.last; r++) {
    int64_t y = r % s->in_h, image = r / s->in_h * s->out_h * s->out_w * channels;
    struct windows rows = {0, 0}, columns = {0, 0};
    windows_move(&rows, y, s->kernel, s->stride, s->out_h);
    for (int64_t x = 0; x < s->in_w; x++) {
      windows_move(&columns, x, s->kernel, s->stride, s->out_w);
      int64_t to = (r * s->in_w + x) * channels, c = 0;
      for (; c + OP_CPU_WIDTH <= channels; c += OP_CPU_WIDTH)
        element_block(bf16, s, d_out, place, image + c, y, x, rows, columns, OP_CPU_WIDTH, d_in, add, to + c);
      if (c < channels)
        element_block(bf16, s, d_out, place, image + c, y, x, rows, columns, (int)(channels - c), d_in, add,
                      to + c);
    }
  }
}

OP_CPU_CLONES static void backward_range(const struct maxpool_state *s, const void *d_out,
                                         const uint8_t *place, void *d_in, bool add,
                                         struct op_cpu_range range) {
  if (s->bf16)
    backward_rows(true, s, d_out, place, d_in, add, range);
  else
    backward_rows(false, s, d_out, place, d_in, add, range);
}

enum status maxpool_cpu_forward(struct op_context *context, void *state, const struct op_io *io) {
  const struct maxpool_state *s = state;
  int threads = op_cpu(context)->threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int t = 0; t < threads; t++)
    forward_range(s, io->in[0], io->out, io->saved[0], op_cpu_range(s->batch * s->out_h, threads, t));
  return STATUS_OK;
}

enum status maxpool_cpu_backward(struct op_context *context, void *state, const struct op_io *io) {
  const struct maxpool_state *s = state;
  int threads = op_cpu(context)->threads;
  if (!io->d_in[0]) return STATUS_OK;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int t = 0; t < threads; t++)
    backward_range(s, io->d_out, io->saved[0], io->d_in[0], io->d_in_add[0],
                   op_cpu_range(s->batch * s->in_h, threads, t));
  return STATUS_OK;
}

void maxpool_cpu_destroy(struct op_context *context, void *state) {
  (void)context;
  free(state);
}
