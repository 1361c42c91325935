/* Kernels of bf16 convolutions and what they are held to: a layer's arrays, the calls, the comparisons.
 * Include after cmocka.h. */
#ifndef CONVOY_TESTS_CUDA_CONV_FIXTURE_H
#define CONVOY_TESTS_CUDA_CONV_FIXTURE_H

#include "tests/cuda_fixture.h"

enum { COUNTS = 8 };
struct layer {
  int h, w, c, filters, kernel, stride, pad;
  int n[COUNTS]; /* images; 0 ends the list */
  bool moments;  /* its forward kernel leaves them */
};

/* ---- a layer's arrays: of DISTINCT images, in doubles ---- */

/* Apart, so that a mean over other images shows. */
static const double image_mean[DISTINCT] = {-1, -0.5, 0.25, 0.5, 1};

struct problem {
  const struct layer *layer;
  int64_t in, out, weights;         /* elements of an image, of a result, and of all filters */
  double *x, *weight, *d_out, *old; /* old: what d_in is added to */
};

static inline int64_t out_h(const struct layer *l) {
  return op_window(l->h, l->kernel, l->stride, l->pad);
}
static inline int64_t out_w(const struct layer *l) {
  return op_window(l->w, l->kernel, l->stride, l->pad);
}

static inline struct conv_args args_of(const struct layer *l, int n) {
  return (struct conv_args){.n = n,
                            .h = l->h,
                            .w = l->w,
                            .c = l->c,
                            .filters = l->filters,
                            .kernel_h = l->kernel,
                            .kernel_w = l->kernel,
                            .out_h = out_h(l),
                            .out_w = out_w(l),
                            .stride = l->stride,
                            .pad = l->pad};
}

static inline struct op_desc desc_of(const struct layer *l, int n) {
  struct op_desc desc = {.kind = OP_CONV2D, .training = true, .in_count = 1};
  desc.in[0] = tensor_4d(DTYPE_F32, n, l->h, l->w, l->c);
  desc.attr.conv2d = (struct conv2d_attr){l->filters, l->kernel, l->kernel, l->stride, l->pad, false};
  return desc;
}

static inline double *drawn(int64_t count, double deviation, uint32_t sequence) {
  double *made = reference_array(count);
  array_normal(made, count, DTYPE_BF16, 0, deviation, sequence);
  return made;
}

static inline struct problem problem_create(const struct layer *l) {
  const int64_t window = (int64_t)l->kernel * l->kernel * l->c;
  struct problem p = {.layer = l,
                      .in = (int64_t)l->h * l->w * l->c,
                      .out = out_h(l) * out_w(l) * l->filters,
                      .weights = window * l->filters};
  p.x = reference_array(DISTINCT * p.in);
  for (int i = 0; i < DISTINCT; i++)
    array_normal(p.x + i * p.in, p.in, DTYPE_BF16, image_mean[i], 1, (uint32_t)(10 + i));
  p.weight = drawn(p.weights, 1 / sqrt((double)window), 2);
  p.d_out = drawn(DISTINCT * p.out, 1, 3);
  p.old = drawn(DISTINCT * p.in, 1, 4);
  return p;
}

static inline void problem_destroy(struct problem *p) {
  free(p->x);
  free(p->weight);
  free(p->d_out);
  free(p->old);
}

/* ---- what the kernels are called with ---- */

struct job {
  struct conv_args args;
  const void *in, *weight, *d_out;
  void *out, *d_in;
  bool add;
  float *part, *d_weight, *workspace;
  uint32_t *tickets;
};

struct family {
  const char *name;
  bool (*fits)(const struct conv_args *args);
  launch *forward, *data, *filter; /* NULL: no such kernel, or of another family */
  struct conv_moments (*moments)(const struct conv_args *args); /* NULL: none */
  size_t (*workspace)(const struct conv_args *args);            /* floats, of filter */
  bool tickets;                                                 /* likewise */
  bool sm_90;                                                   /* other devices have none of them */
};

/* ---- checks ---- */

/* Moments are those of what is written, rounded: of the pieces i, i + parts, … of the rows for part i. Sums
 * of fp32 again; a pixel of the smallest part's thousand moves them by 2^-10. */
static inline void assert_moments(const struct array *part, const struct array *out,
                                  struct conv_moments moments, int64_t rows, int64_t channels) {
  const int64_t piece = rows / moments.pieces, count = moments.parts * channels;
  double *value = found(out, DTYPE_BF16, rows * channels), *moment = found(part, DTYPE_F32, 2 * count);
  double *mean = reference_array(count), *square = reference_array(count), *size = reference_array(count);
  double *want = reference_array(2 * count), *limit = reference_array(2 * count);
  for (int64_t i = 0; i < rows * channels; i++) {
    const int64_t at = i / channels / piece % moments.parts * channels + i % channels;
    mean[at] += value[i];
    size[at]++;
  }
  for (int64_t at = 0; at < count; at++) mean[at] /= size[at];
  for (int64_t i = 0; i < rows * channels; i++) {
    const int64_t at = i / channels / piece % moments.parts * channels + i % channels;
    square[at] += (value[i] - mean[at]) * (value[i] - mean[at]);
  }
  for (int64_t at = 0; at < count; at++) {
    const double all = square[at] / size[at] + mean[at] * mean[at];
    want[2 * at] = mean[at];
    want[2 * at + 1] = square[at];
    limit[2 * at] = 0x1p-16 * sqrt(all);
    limit[2 * at + 1] = 0x1p-14 * all * size[at];
  }
  assert_within("moments", 0, moment, want, limit, 2 * count);
  double *all[] = {value, moment, mean, square, size, want, limit};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static inline void check_forward(const struct family *f, const struct problem *p, const struct batch *batch,
                                 bool moments, const double *y, const double *limit) {
  const struct layer *l = p->layer;
  const struct conv_args args = args_of(l, batch->n);
  struct conv_moments left = {0, 0};
  if (moments && f->moments) {
    left = f->moments(&args);
    if ((left.parts > 0) != l->moments) fail_msg("%s: moments in %d parts", what, left.parts);
  }
  if (moments && left.parts == 0) return;
  release_arrays();
  struct array *out = result("out", DTYPE_BF16, batch->n * p->out), *part = NULL;
  struct job job = {.args = args,
                    .in = given_images("in", p->x, p->in, batch),
                    .weight = given("weight", DTYPE_BF16, p->weight, p->weights),
                    .out = out->data};
  if (moments) part = result("moments", DTYPE_F32, (int64_t)left.parts * l->filters * 2);
  if (part) job.part = part->data;
  call_twice(f->forward, &job);
  assert_images(out, y, limit, p->out, batch);
  if (part) assert_moments(part, out, left, batch->n * out_h(l) * out_w(l), l->filters);
}

static inline void check_data(const struct family *f, const struct problem *p, const struct batch *batch,
                              bool add, const double *d_x, const double *absolute_d_x) {
  release_arrays();
  struct array *d_in = result(add ? "d_in, added to" : "d_in", DTYPE_BF16, batch->n * p->in);
  const struct job job = {.args = args_of(p->layer, batch->n),
                          .d_out = given_images("d_out", p->d_out, p->out, batch),
                          .weight = given("weight", DTYPE_BF16, p->weight, p->weights),
                          .d_in = d_in->data,
                          .add = add};
  double *want = reference_array(DISTINCT * p->in), *limit = reference_array(DISTINCT * p->in);
  for (int64_t i = 0; i < DISTINCT * p->in; i++) {
    const double old = add ? p->old[i] : 0;
    want[i] = d_x[i] + old;
    limit[i] = limit_bf16(d_x[i], absolute_d_x[i], old);
  }
  if (add) lay_images(d_in, p->old, p->in, batch);
  call_twice(f->data, &job);
  assert_images(d_in, want, limit, p->in, batch);
  free(want);
  free(limit);
}

/* The images' parts (DISTINCT, weights). */
static inline void check_filter(const struct family *f, const struct problem *p, const struct batch *batch,
                                const double *part, const double *absolute_part) {
  release_arrays();
  struct array *d_weight = result("d_weight", DTYPE_F32, p->weights);
  struct job job = {.args = args_of(p->layer, batch->n),
                    .in = given_images("in", p->x, p->in, batch),
                    .d_out = given_images("d_out", p->d_out, p->out, batch),
                    .d_weight = d_weight->data};
  job.workspace = scratch(f->workspace(&job.args));
  if (f->tickets) job.tickets = counters();
  double *want = reference_array(p->weights), *limit = reference_array(p->weights);
  for (int i = 0; i < DISTINCT; i++)
    for (int64_t at = 0; at < p->weights; at++) {
      want[at] += batch->times[i] * part[i * p->weights + at];
      limit[at] += sum_error * batch->times[i] * absolute_part[i * p->weights + at];
    }
  call_twice(f->filter, &job);
  double *value = found(d_weight, DTYPE_F32, p->weights);
  assert_within("d_weight, of all", batch->n, value, want, limit, p->weights);
  free(value);
  free(want);
  free(limit);
}

/* The next batch size of a layer, which must fit. */
static inline struct batch next_batch(const struct family *f, const struct layer *l, int i) {
  struct batch batch = batch_of(l->n[i]);
  const struct conv_args args = args_of(l, batch.n);
  snprintf(what, sizeof what, "%s, %dx%d, %d to %d, %d images", f->name, l->h, l->w, l->c, l->filters,
           batch.n);
  need_fit(f->fits(&args), f->sm_90);
  return batch;
}

#endif
