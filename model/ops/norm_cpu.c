/* Batch normalisation's passes over memory; see norm_cpu.h. Channels are taken OP_CPU_WIDTH at a time, so
 * that sums stay in registers, over tiles of rows that stay in the first-level cache; a tile's float sums go
 * into doubles. */
#include "model/ops/norm_cpu.h"

#include <math.h>
#include <string.h>

#include "model/ops/activation_cpu.h"

enum { TILE_ELEMENTS = 4096, TILE_ROWS_MIN = 8 };

/* Workspace: a block per thread, then three (C) floats for all: two of the pass, and invstd. */
struct scratch {
  double *first, *second;      /* this thread's sums */
  float *shift, *sum, *square; /* this thread's tile */
};

static size_t thread_bytes(const struct norm_cpu *norm) {
  return op_cpu_align((size_t)norm->channels * (2 * sizeof(double) + 3 * sizeof(float)));
}

static struct scratch scratch_of(const struct norm_cpu *norm, void *workspace, int thread) {
  size_t c = (size_t)norm->channels;
  double *own = (double *)(void *)((char *)workspace + (size_t)thread * thread_bytes(norm));
  float *tile = (float *)(void *)(own + 2 * c);
  return (struct scratch){own, own + c, tile, tile + c, tile + 2 * c};
}

static float *shared_scratch(const struct norm_cpu *norm, void *workspace) {
  return (float *)(void *)((char *)workspace + (size_t)norm->threads * thread_bytes(norm));
}

struct norm_cpu norm_cpu(const struct op_cpu_context *context, const struct tensor *x,
                         const struct batchnorm_attr *attr, enum activation activation) {
  int64_t channels = x->dim[x->rank - 1];
  return (struct norm_cpu){.rows = tensor_count(x) / channels,
                           .channels = channels,
                           .batch = x->dim[0],
                           .bf16 = context->base.compute == DTYPE_BF16,
                           .epsilon = attr->epsilon,
                           .activation = activation,
                           .running = attr->running,
                           .threads = context->threads};
}

size_t norm_cpu_workspace(const struct norm_cpu *norm) {
  return (size_t)norm->threads * thread_bytes(norm) +
         op_cpu_align((size_t)norm->channels * 3 * sizeof(float));
}

static int64_t tile_rows(const struct norm_cpu *norm) {
  int64_t rows = TILE_ELEMENTS / norm->channels;
  return rows < TILE_ROWS_MIN ? TILE_ROWS_MIN : rows;
}

/* ---- statistics ---- */

/* sum[w] and square[w] of x - shift over rows [first, last) of the w channels from c on. */
OP_CPU_INLINE void tile_moments(const void *x, bool bf16, int64_t first, int64_t last, int64_t channels,
                                int64_t c, int w, const float *shift, float *sum, float *square) {
  float s[OP_CPU_WIDTH] = {0}, q[OP_CPU_WIDTH] = {0}, k[OP_CPU_WIDTH] = {0};
  for (int j = 0; j < w; j++) k[j] = shift[c + j];
  for (int64_t row = first; row < last; row++) {
#pragma omp simd
    for (int j = 0; j < w; j++) {
      float d = op_cpu_load(x, bf16, row * channels + c + j) - k[j];
      s[j] += d;
      q[j] += d * d;
    }
  }
  for (int j = 0; j < w; j++) sum[c + j] = s[j], square[c + j] = q[j];
}

OP_CPU_INLINE void tile_moments_all(const void *x, bool bf16, int64_t first, int64_t last, int64_t channels,
                                    const float *shift, float *sum, float *square) {
  int64_t c = 0;
  for (; c + OP_CPU_WIDTH <= channels; c += OP_CPU_WIDTH)
    tile_moments(x, bf16, first, last, channels, c, OP_CPU_WIDTH, shift, sum, square);
  if (c < channels) tile_moments(x, bf16, first, last, channels, c, (int)(channels - c), shift, sum, square);
}

OP_CPU_CLONES static void moments_f32(const void *x, int64_t first, int64_t last, int64_t channels,
                                      const float *shift, float *sum, float *square) {
  tile_moments_all(x, false, first, last, channels, shift, sum, square);
}
OP_CPU_CLONES static void moments_bf16(const void *x, int64_t first, int64_t last, int64_t channels,
                                       const float *shift, float *sum, float *square) {
  tile_moments_all(x, true, first, last, channels, shift, sum, square);
}

/* Joins a group of n2 values, given by their mean's distance `delta` from `mean` and their squares around
 * their own mean, to a group of n1. */
OP_CPU_INLINE void join(double n1, double n2, double delta, double square2, double *mean, double *square) {
  double part = n2 / (n1 + n2);
  *mean += delta * part;
  *square += square2 + delta * delta * n1 * part;
}

OP_CPU_CLONES static void join_tile(int64_t channels, double before, double count, const float *shift,
                                    const float *sum, const float *square, double *mean, double *squares) {
  double inverse = 1.0 / count;
#pragma omp simd
  for (int64_t c = 0; c < channels; c++) {
    double around = (double)square[c] - (double)sum[c] * (double)sum[c] * inverse;
    join(before, count, (double)shift[c] + (double)sum[c] * inverse - mean[c], around, &mean[c], &squares[c]);
  }
}

/* Mean and squares around it of rows [first, last), into s.first and s.second. Each tile is summed around the
 * mean so far; the first one around its own, found by a pass of its own. */
static void range_moments(const struct norm_cpu *norm, const void *x, struct op_cpu_range range,
                          struct scratch s) {
  int64_t channels = norm->channels, step = tile_rows(norm);
  void (*moments)(const void *, int64_t, int64_t, int64_t, const float *, float *, float *) =
      norm->bf16 ? moments_bf16 : moments_f32;
  memset(s.first, 0, (size_t)channels * sizeof(double));
  memset(s.second, 0, (size_t)channels * sizeof(double));
  for (int64_t row = range.first; row < range.last; row += step) {
    int64_t end = row + step < range.last ? row + step : range.last;
    if (row == range.first) {
      for (int64_t c = 0; c < channels; c++) s.shift[c] = op_cpu_load(x, norm->bf16, row * channels + c);
      moments(x, row, end, channels, s.shift, s.sum, s.square);
      for (int64_t c = 0; c < channels; c++) s.shift[c] += s.sum[c] / (float)(end - row);
    } else {
      for (int64_t c = 0; c < channels; c++) s.shift[c] = (float)s.first[c];
    }
    moments(x, row, end, channels, s.shift, s.sum, s.square);
    join_tile(channels, (double)(row - range.first), (double)(end - row), s.shift, s.sum, s.square, s.first,
              s.second);
  }
}

void norm_cpu_statistics(const struct norm_cpu *norm, const struct op_io *io, int first,
                         struct norm_cpu_forward *arrays) {
  const void *x = arrays->x;
  void *workspace = io->workspace;
#pragma omp parallel for schedule(static) num_threads(norm->threads) if (norm->threads > 1)
  for (int t = 0; t < norm->threads; t++)
    range_moments(norm, x, op_cpu_range(norm->rows, norm->threads, t), scratch_of(norm, workspace, t));
  struct scratch all = scratch_of(norm, workspace, 0);
  double done = (double)op_cpu_range(norm->rows, norm->threads, 0).last;
  for (int t = 1; t < norm->threads; t++) {
    struct op_cpu_range range = op_cpu_range(norm->rows, norm->threads, t);
    struct scratch part = scratch_of(norm, workspace, t);
    double count = (double)(range.last - range.first);
    if (range.last == range.first) continue;
    for (int64_t c = 0; c < norm->channels; c++)
      join(done, count, part.first[c] - all.first[c], part.second[c], &all.first[c], &all.second[c]);
    done += count;
  }
  float *mean = io->saved[first], *invstd = io->saved[first + 1];
  double rows = (double)norm->rows, weight = (double)norm->batch * (double)*io->scale;
  for (int64_t c = 0; c < norm->channels; c++) {
    mean[c] = (float)all.first[c];
    invstd[c] = (float)(1.0 / sqrt(all.second[c] / rows + (double)norm->epsilon));
    io->batch_statistic[0][c] = (float)(all.first[c] * weight);
    io->batch_statistic[1][c] = (float)(all.second[c] / (norm->rows > 1 ? rows - 1 : 1) * weight);
  }
  arrays->mean = mean;
  arrays->invstd = invstd;
}

void norm_cpu_running(const struct norm_cpu *norm, const struct op_io *io, const float **mean,
                      const float **invstd) {
  float *computed = shared_scratch(norm, io->workspace) + 2 * norm->channels;
  for (int64_t c = 0; c < norm->channels; c++)
    computed[c] = (float)(1.0 / sqrt((double)io->statistic[1][c] + (double)norm->epsilon));
  *mean = io->statistic[0];
  *invstd = computed;
}

/* ---- forward ---- */

OP_CPU_INLINE void forward_block(bool bf16, enum activation kind, const struct norm_cpu_forward *io,
                                 const float *scale, int64_t at, int64_t c, int w) {
  const float *mean = io->mean + c, *bias = io->bias + c, *factor = scale + c;
  float z[OP_CPU_WIDTH];
#pragma omp simd
  for (int j = 0; j < w; j++) z[j] = (op_cpu_load(io->x, bf16, at + j) - mean[j]) * factor[j] + bias[j];
  if (io->addend) {
#pragma omp simd
    for (int j = 0; j < w; j++) z[j] += op_cpu_load(io->addend, bf16, at + j);
  }
#pragma omp simd
  for (int j = 0; j < w; j++) op_cpu_store(io->out, bf16, at + j, activation_cpu_value(kind, z[j]));
}

OP_CPU_INLINE void forward_rows(bool bf16, enum activation kind, const struct norm_cpu_forward *args,
                                const float *scale, int64_t channels, struct op_cpu_range range) {
  const struct norm_cpu_forward io = *args;
  for (int64_t row = range.first; row < range.last; row++) {
    int64_t c = 0;
    for (; c + OP_CPU_WIDTH <= channels; c += OP_CPU_WIDTH)
      forward_block(bf16, kind, &io, scale, row * channels + c, c, OP_CPU_WIDTH);
    if (c < channels) forward_block(bf16, kind, &io, scale, row * channels + c, c, (int)(channels - c));
  }
}

OP_CPU_CLONES static void forward_range(bool bf16, enum activation kind, const struct norm_cpu_forward *io,
                                        const float *scale, int64_t channels, struct op_cpu_range range) {
  ACTIVATION_CPU_DISPATCH(forward_rows, bf16, kind, io, scale, channels, range);
}

void norm_cpu_forward(const struct norm_cpu *norm, const struct norm_cpu_forward *io, void *workspace) {
  float *scale = shared_scratch(norm, workspace);
  for (int64_t c = 0; c < norm->channels; c++) scale[c] = io->weight[c] * io->invstd[c];
#pragma omp parallel for schedule(static) num_threads(norm->threads) if (norm->threads > 1)
  for (int t = 0; t < norm->threads; t++)
    forward_range(norm->bf16, norm->activation, io, scale, norm->channels,
                  op_cpu_range(norm->rows, norm->threads, t));
}

/* ---- backward ---- */

/* d[w]: the gradient at the activation's input; centred[w]: x - mean. */
OP_CPU_INLINE void gradient_block(bool bf16, enum activation kind, const struct norm_cpu_backward *io,
                                  int64_t at, int64_t c, int w, float *d, float *centred) {
  const float *mean = io->mean + c;
  float kept[OP_CPU_WIDTH] = {0};
#pragma omp simd
  for (int j = 0; j < w; j++) centred[j] = op_cpu_load(io->x, bf16, at + j) - mean[j];
  if (kind == ACTIVATION_RELU) {
#pragma omp simd
    for (int j = 0; j < w; j++) kept[j] = op_cpu_load(io->out, bf16, at + j);
  } else if (kind != ACTIVATION_NONE) {
#pragma omp simd
    for (int j = 0; j < w; j++)
      kept[j] = centred[j] * (io->weight[c + j] * io->invstd[c + j]) + io->bias[c + j];
    if (io->addend) {
#pragma omp simd
      for (int j = 0; j < w; j++) kept[j] += op_cpu_load(io->addend, bf16, at + j);
    }
  }
#pragma omp simd
  for (int j = 0; j < w; j++)
    d[j] = activation_cpu_gradient(kind, kept[j], op_cpu_load(io->d_out, bf16, at + j));
}

OP_CPU_INLINE void sums_block(bool bf16, enum activation kind, const struct norm_cpu_backward *io,
                              int64_t first, int64_t last, int64_t channels, int64_t c, int w, double *sum,
                              double *product) {
  float s[OP_CPU_WIDTH] = {0}, p[OP_CPU_WIDTH] = {0};
  for (int64_t row = first; row < last; row++) {
    float d[OP_CPU_WIDTH], centred[OP_CPU_WIDTH];
    gradient_block(bf16, kind, io, row * channels + c, c, w, d, centred);
#pragma omp simd
    for (int j = 0; j < w; j++) {
      s[j] += d[j];
      p[j] += d[j] * centred[j];
    }
  }
  for (int j = 0; j < w; j++) sum[c + j] += (double)s[j], product[c + j] += (double)p[j];
}

OP_CPU_INLINE void sums_rows(bool bf16, enum activation kind, const struct norm_cpu_backward *args,
                             int64_t channels, int64_t step, struct op_cpu_range range, double *sum,
                             double *product) {
  const struct norm_cpu_backward io = *args;
  for (int64_t row = range.first; row < range.last; row += step) {
    int64_t end = row + step < range.last ? row + step : range.last, c = 0;
    for (; c + OP_CPU_WIDTH <= channels; c += OP_CPU_WIDTH)
      sums_block(bf16, kind, &io, row, end, channels, c, OP_CPU_WIDTH, sum, product);
    if (c < channels) sums_block(bf16, kind, &io, row, end, channels, c, (int)(channels - c), sum, product);
  }
}

OP_CPU_CLONES static void sums_range(bool bf16, enum activation kind, const struct norm_cpu_backward *io,
                                     int64_t channels, int64_t step, struct op_cpu_range range, double *sum,
                                     double *product) {
  ACTIVATION_CPU_DISPATCH(sums_rows, bf16, kind, io, channels, step, range, sum, product);
}

OP_CPU_INLINE void write_block(bool bf16, void *data, bool add, int64_t at, int w, const float *value) {
  if (!data) return;
  /* NOLINTNEXTLINE(bugprone-branch-clone): it does not look into loops below a pragma */
  if (add) {
#pragma omp simd
    for (int j = 0; j < w; j++) op_cpu_store(data, bf16, at + j, op_cpu_load(data, bf16, at + j) + value[j]);
  } else {
#pragma omp simd
    for (int j = 0; j < w; j++) op_cpu_store(data, bf16, at + j, value[j]);
  }
}

/* d_x = weight invstd (d - k1 - centred k2), k1 and k2 the means of d and of d times the normalised x (Ioffe
 * and Szegedy, 2015), k2 with one more invstd for each x that is not normalised. */
OP_CPU_INLINE void backward_block(bool bf16, enum activation kind, const struct norm_cpu_backward *io,
                                  const float *k1, const float *k2, int64_t at, int64_t c, int w) {
  float d[OP_CPU_WIDTH], centred[OP_CPU_WIDTH];
  gradient_block(bf16, kind, io, at, c, w, d, centred);
  write_block(bf16, io->d_addend, io->d_addend_add, at, w, d);
#pragma omp simd
  for (int j = 0; j < w; j++)
    d[j] = (io->weight[c + j] * io->invstd[c + j]) * (d[j] - k1[c + j] - centred[j] * k2[c + j]);
  write_block(bf16, io->d_x, io->d_x_add, at, w, d);
}

OP_CPU_INLINE void backward_rows(bool bf16, enum activation kind, const struct norm_cpu_backward *args,
                                 const float *k1, const float *k2, int64_t channels,
                                 struct op_cpu_range range) {
  const struct norm_cpu_backward io = *args;
  for (int64_t row = range.first; row < range.last; row++) {
    int64_t c = 0;
    for (; c + OP_CPU_WIDTH <= channels; c += OP_CPU_WIDTH)
      backward_block(bf16, kind, &io, k1, k2, row * channels + c, c, OP_CPU_WIDTH);
    if (c < channels) backward_block(bf16, kind, &io, k1, k2, row * channels + c, c, (int)(channels - c));
  }
}

OP_CPU_CLONES static void backward_range(bool bf16, enum activation kind, const struct norm_cpu_backward *io,
                                         const float *k1, const float *k2, int64_t channels,
                                         struct op_cpu_range range) {
  ACTIVATION_CPU_DISPATCH(backward_rows, bf16, kind, io, k1, k2, channels, range);
}

/* The sums over all rows: the parameters' gradients, and k1 and k2 of backward_block. */
static void backward_sums(const struct norm_cpu *norm, const struct norm_cpu_backward *io, float *k1,
                          float *k2, void *workspace) {
  int64_t channels = norm->channels;
#pragma omp parallel for schedule(static) num_threads(norm->threads) if (norm->threads > 1)
  for (int t = 0; t < norm->threads; t++) {
    struct scratch s = scratch_of(norm, workspace, t);
    memset(s.first, 0, (size_t)channels * 2 * sizeof(double)); /* first and second lie together */
    sums_range(norm->bf16, norm->activation, io, channels, tile_rows(norm),
               op_cpu_range(norm->rows, norm->threads, t), s.first, s.second);
  }
  for (int64_t c = 0; c < channels; c++) {
    double sum = 0, product = 0, invstd = (double)io->invstd[c];
    for (int t = 0; t < norm->threads; t++) {
      struct scratch s = scratch_of(norm, workspace, t);
      sum += s.first[c];
      product += s.second[c];
    }
    if (io->d_bias) io->d_bias[c] = (float)sum;
    if (io->d_weight) io->d_weight[c] = (float)(product * invstd);
    k1[c] = (float)(sum / (double)norm->rows);
    k2[c] = (float)(product * invstd * invstd / (double)norm->rows);
  }
}

void norm_cpu_backward(const struct norm_cpu *norm, const struct norm_cpu_backward *io, void *workspace) {
  int64_t channels = norm->channels;
  float *k1 = shared_scratch(norm, workspace), *k2 = k1 + channels;
  if (!norm->running || io->d_weight || io->d_bias) backward_sums(norm, io, k1, k2, workspace);
  if (norm->running) memset(k1, 0, (size_t)channels * 2 * sizeof(float)); /* k2 lies behind it */
  if (!io->d_x && !io->d_addend) return;
#pragma omp parallel for schedule(static) num_threads(norm->threads) if (norm->threads > 1)
  for (int t = 0; t < norm->threads; t++)
    backward_range(norm->bf16, norm->activation, io, k1, k2, channels,
                   op_cpu_range(norm->rows, norm->threads, t));
}
