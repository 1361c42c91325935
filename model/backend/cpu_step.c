/* A step's own work on the CPU: its row, the batch, the update, the metrics. Each pass reads and writes once.
 */
#include <math.h>
#include <string.h>

#include "model/backend/cpu.h"

enum status cpu_step_begin(struct backend *backend, struct step_control *control, const struct step_row *rows,
                           const int32_t *stop, float *metrics) {
  (void)backend;
  control->row = rows[control->next++];
  memset(metrics, 0, METRIC_COUNT * sizeof *metrics);
  metrics[METRIC_STOP] = (float)*(const volatile int32_t *)stop; /* a signal handler may write it */
  return STATUS_OK;
}

enum status cpu_publish(struct backend *backend, const struct step_control *control, const float *metrics,
                        float *ring) {
  (void)backend;
  memcpy(ring + (size_t)METRIC_COUNT * control->row.slot, metrics, METRIC_COUNT * sizeof *metrics);
  return STATUS_OK;
}

/* ---- gather ---- */

/* The input coordinate of an output coordinate that was moved to `at`; -1: there is none. */
static int source(int at, int size, bool reflect) {
  if (at >= 0 && at < size) return at;
  if (!reflect) return -1;
  return at < 0 ? -at : 2 * (size - 1) - at;
}

/* One image to batch element `at` on. `value` holds each channel's 256 normalised pixels. */
static void gather_image(const struct gather_desc *desc, const struct sample *sample, float value[4][256],
                         bool bf16, void *batch, int64_t at) {
  int height = desc->height, width = desc->width, channels = desc->channels;
  const uint8_t *image = desc->images + (size_t)sample->index * (size_t)(height * width * channels);
  for (int y = 0; y < height; y++) {
    int from_y = source(y + sample->shift_y, height, sample->reflect);
    bool cut_row = y >= sample->cut_y && y < sample->cut_y + sample->cut;
    for (int x = 0; x < width; x++) {
      int from_x = source((sample->flip ? width - 1 - x : x) + sample->shift_x, width, sample->reflect);
      bool cut = cut_row && x >= sample->cut_x && x < sample->cut_x + sample->cut;
      bool inside = from_y >= 0 && from_x >= 0 && !cut;
      const uint8_t *pixel = image + (inside ? ((int64_t)from_y * width + from_x) * channels : 0);
      for (int c = 0; c < channels; c++) op_cpu_store(batch, bf16, at++, inside ? value[c][pixel[c]] : 0.0f);
    }
  }
}

enum status cpu_gather(struct backend *backend, const struct gather_desc *desc,
                       const struct step_control *control, const struct sample *list, void *batch,
                       int32_t *labels) {
  const struct op_cpu_context *context = &cpu_backend(backend)->context;
  const struct sample *first = list + control->row.first;
  int64_t pixels = (int64_t)desc->height * desc->width * desc->channels;
  bool bf16 = context->base.compute == DTYPE_BF16;
  float value[4][256];
  for (int c = 0; c < desc->channels; c++)
    for (int b = 0; b < 256; b++) value[c][b] = ((float)b / 255.0f - desc->mean[c]) / desc->std[c];
#pragma omp parallel for schedule(static) num_threads(context->threads) if (context->threads > 1)
  for (int64_t n = 0; n < desc->count; n++) {
    gather_image(desc, &first[n], value, bf16, batch, n * pixels);
    labels[n] = desc->labels[first[n].index];
  }
  return STATUS_OK;
}

/* ---- update ---- */

/* What a loop over one range needs; `decay` is 0 outside the decayed range. */
struct update {
  float *params, *slot0, *slot1;
  uint16_t *low;
  const float *gradients;
  float rate, decay, momentum, beta1, beta2, epsilon, step, root_correction2;
  bool nesterov;
};

OP_CPU_CLONES static void sgd_range(const struct update *args, struct op_cpu_range range) {
  const struct update u = *args;
#pragma omp simd
  for (int64_t i = range.first; i < range.last; i++) {
    float d = u.gradients[i] + u.decay * u.params[i];
    float m = u.momentum * u.slot0[i] + d;
    u.slot0[i] = m;
    u.params[i] -= u.rate * (u.nesterov ? d + u.momentum * m : m);
  }
}

/* Adam adds the decay to the gradient, AdamW shrinks the parameter. */
OP_CPU_CLONES static void adam_range(const struct update *args, bool decoupled, struct op_cpu_range range) {
  const struct update u = *args;
  float coupled = decoupled ? 0.0f : u.decay, shrink = decoupled ? 1.0f - u.rate * u.decay : 1.0f;
#pragma omp simd
  for (int64_t i = range.first; i < range.last; i++) {
    float d = u.gradients[i] + coupled * u.params[i];
    float m = u.beta1 * u.slot0[i] + (1.0f - u.beta1) * d;
    float v = u.beta2 * u.slot1[i] + (1.0f - u.beta2) * d * d;
    u.slot0[i] = m;
    u.slot1[i] = v;
    u.params[i] = shrink * u.params[i] - u.step * (m / (sqrtf(v) / u.root_correction2 + u.epsilon));
  }
}

OP_CPU_CLONES static void round_range(const float *params, uint16_t *low, struct op_cpu_range range) {
#pragma omp simd
  for (int64_t i = range.first; i < range.last; i++) low[i] = op_cpu_round(params[i]);
}

static void update_range(enum optimizer_kind kind, const struct update *update, struct op_cpu_range range) {
  if (kind == OPTIMIZER_SGD)
    sgd_range(update, range);
  else
    adam_range(update, kind == OPTIMIZER_ADAMW, range);
  if (update->low) round_range(update->params, update->low, range);
}

/* One thread's part of all ranges. */
static void update_part(const struct update_desc *desc, const struct update *update, int threads,
                        int thread) {
  struct update decayed = *update, plain = *update;
  plain.decay = 0.0f;
  struct op_cpu_range all = op_cpu_range(desc->parameter_count, threads, thread);
  int64_t split = desc->decay_count < all.first  ? all.first
                  : desc->decay_count > all.last ? all.last
                                                 : desc->decay_count;
  update_range(desc->kind, &decayed, (struct op_cpu_range){all.first, split});
  update_range(desc->kind, &plain, (struct op_cpu_range){split, all.last});
}

enum status cpu_update(struct backend *backend, const struct update_desc *desc, struct step_control *control,
                       float *params, void *low, const float *gradients, float *slot0, float *slot1,
                       const float *metrics) {
  const struct step_row *row = &control->row;
  int threads = cpu_backend(backend)->context.threads;
  if (!isfinite(metrics[METRIC_LOSS])) control->halted = 1;
  if (control->halted) return STATUS_OK;
  struct update update = {.params = params,
                          .low = low,
                          .gradients = gradients,
                          .rate = row->learning_rate,
                          .decay = desc->weight_decay,
                          .momentum = desc->momentum,
                          .beta1 = desc->beta1,
                          .beta2 = desc->beta2,
                          .epsilon = desc->epsilon,
                          .step = row->learning_rate / row->correction1,
                          .root_correction2 = sqrtf(row->correction2),
                          .nesterov = desc->nesterov};
  update.slot0 = slot0;
  update.slot1 = slot1;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int t = 0; t < threads; t++) update_part(desc, &update, threads, t);
  for (int64_t i = desc->parameter_count; i < desc->total_count; i++)
    params[i] = (1.0f - desc->statistic_momentum) * params[i] + desc->statistic_momentum * gradients[i];
  return STATUS_OK;
}

enum status cpu_convert(struct backend *backend, const float *params, void *low, int64_t count) {
  int threads = cpu_backend(backend)->context.threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int t = 0; t < threads; t++) round_range(params, low, op_cpu_range(count, threads, t));
  return STATUS_OK;
}

OP_CPU_CLONES static void shorten_range(float *data, struct op_cpu_range range) {
#pragma omp simd
  for (int64_t i = range.first; i < range.last; i++) {
    uint16_t low = op_cpu_round(data[i]);
    data[i] = op_cpu_load(&low, true, 0);
  }
}

void cpu_round(struct backend *backend, float *data, int64_t count) {
  int threads = cpu_backend(backend)->context.threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int t = 0; t < threads; t++) shorten_range(data, op_cpu_range(count, threads, t));
}

OP_CPU_CLONES static void add_range(float *data, const float *other, struct op_cpu_range range) {
#pragma omp simd
  for (int64_t i = range.first; i < range.last; i++) data[i] += other[i];
}

enum status cpu_add(struct backend *backend, float *data, const float *other, int64_t count) {
  int threads = cpu_backend(backend)->context.threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int t = 0; t < threads; t++) add_range(data, other, op_cpu_range(count, threads, t));
  return STATUS_OK;
}
