/* A layer's arrays, its convolution of each image alone, and an op made for a batch of these images. Include
 * after cmocka.h. */
#ifndef CONVOY_TESTS_COPIES_FIXTURE_H
#define CONVOY_TESTS_COPIES_FIXTURE_H

#include "tests/reference/copies.h"

struct layer {
  int size, channels, filters, kernel, stride;
};

enum { PARAMS = 3 };
static const float epsilon = 1e-5f;
/* Apart, so that a mean over too few images shows, too. */
static const double image_mean[DISTINCT] = {-1, -0.5, 0.25, 0.5, 1};

/* A layer's arrays: of images (DISTINCT, elements), of each image's part of a sum (DISTINCT, filters). */
struct problem {
  const struct layer *layer;
  bool relu;
  int64_t in, out, weights, filters, rows; /* elements of an image, a result, all filters; out / filters */
  double *x, *old, *residual, *d_out, *param[PARAMS]; /* given; old: what d_in is added to */
  void *device_param[PARAMS];
  double *y, *d_x, *d_weight;               /* the convolution of each image alone, and its gradients */
  double *normal, *want, *found;            /* y normalised; conv_bn's out */
  double *factor;                           /* weight / sqrt(variance + epsilon) (filters) */
  double *d_sum, *d_y;                      /* gradients of the sum before the activation, and of y */
  double *sum, *square, *d_shift, *d_scale; /* parts of the sums of y and y^2, and of gradients */
};

static inline double *drawn(int64_t count, enum dtype type, double mean, double deviation) {
  double *made = array(count);
  array_normal(made, count, type, mean, deviation, (uint32_t)held);
  return made;
}

static inline struct problem problem_create(const struct layer *l) {
  int64_t size = l->size / l->stride, window = (int64_t)l->kernel * l->kernel * l->channels;
  struct problem p = {.layer = l,
                      .relu = l->kernel > 1,
                      .in = (int64_t)l->size * l->size * l->channels,
                      .out = size * size * l->filters,
                      .weights = window * l->filters,
                      .filters = l->filters,
                      .rows = size * size};
  p.x = array(DISTINCT * p.in);
  for (int i = 0; i < DISTINCT; i++)
    array_normal(p.x + i * p.in, p.in, dtype, image_mean[i], 1, (uint32_t)(HELD + i));
  p.old = drawn(DISTINCT * p.in, dtype, 0, 1);
  p.residual = drawn(DISTINCT * p.out, dtype, 0, 1);
  p.d_out = drawn(DISTINCT * p.out, dtype, 0, 1);
  p.param[0] = drawn(p.weights, dtype, 0, 1 / sqrt((double)window));
  p.param[1] = drawn(p.filters, DTYPE_F32, 1, 0.3);
  p.param[2] = drawn(p.filters, DTYPE_F32, 0, 0.3);
  for (int i = 0; i < PARAMS; i++)
    p.device_param[i] = hold_copy(p.param[i], i ? DTYPE_F32 : dtype, i ? p.filters : p.weights);
  p.d_x = array(DISTINCT * p.in);
  p.d_weight = array(DISTINCT * p.weights);
  double **results[] = {&p.y, &p.normal, &p.want, &p.found, &p.d_sum, &p.d_y};
  double **parts[] = {&p.factor, &p.sum, &p.square, &p.d_shift, &p.d_scale};
  for (size_t i = 0; i < sizeof results / sizeof *results; i++) *results[i] = array(DISTINCT * p.out);
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) *parts[i] = array(DISTINCT * p.filters);
  return p;
}

/* An op made for a batch size, and its arrays: results zero, workspace nothing. */
struct work {
  const struct op_table *op;
  void *state;
  struct op_io io;
};

static inline struct work work_create(const struct problem *p, enum op_kind kind, const double *d_out,
                                      bool residual, const struct batch *batch) {
  const struct layer *l = p->layer;
  const struct conv2d_attr conv = {l->filters, l->kernel, l->kernel, l->stride, l->kernel / 2, false};
  const int size = l->size / l->stride;
  const double scale = batch_scale(batch);
  struct work work = {.op = &table->ops[kind]};
  struct op_desc desc = {.kind = kind, .training = true, .in_count = residual ? 2 : 1};
  struct op_signature signature = {0};
  size_t bytes = 0;
  desc.in[0] = tensor_4d(dtype, batch->n, l->size, l->size, l->channels);
  desc.in[1] = tensor_4d(dtype, batch->n, size, size, l->filters);
  if (kind == OP_CONV2D)
    desc.attr.conv2d = conv;
  else
    desc.attr.conv_bn =
        (struct conv_bn_attr){conv, {epsilon, false}, p->relu ? ACTIVATION_RELU : ACTIVATION_NONE};
  ok(op_infer(&desc, &signature));
  ok(work.op->create(backend->context, &desc, &signature, &work.state, &bytes));
  struct op_io *io = &work.io;
  *io = (struct op_io){.in = {copies(p->x, p->in, batch)},
                       .out = room(p->out, batch),
                       .d_out = copies(d_out, p->out, batch),
                       .d_in = {room(p->in, batch)},
                       .scale = hold_copy(&scale, DTYPE_F32, 1),
                       .workspace = hold(bytes + 1)};
  fill_nothing(io->workspace, bytes);
  if (residual) io->in[1] = copies(p->residual, p->out, batch), io->d_in[1] = room(p->out, batch);
  for (int i = 0; i < signature.param_count; i++) {
    io->param[i] = p->device_param[i];
    io->d_param[i] = hold((size_t)tensor_count(&signature.param[i].tensor) * sizeof(float));
  }
  if (kind == OP_CONV2D) return work;
  io->saved[0] = room(p->out, batch);
  for (int i = 0; i < 2; i++) {
    io->saved[1 + i] = hold((size_t)p->filters * sizeof(float));
    io->batch_statistic[i] = hold((size_t)p->filters * sizeof(float));
  }
  return work;
}

static inline void forward(const struct work *work) {
  ok(work->op->forward(backend->context, work->state, &work->io));
}

static inline void backward(const struct work *work) {
  ok(work->op->backward(backend->context, work->state, &work->io));
}

static inline void work_destroy(struct work *work, int mark) {
  work->op->destroy(backend->context, work->state);
  release_to(mark);
}

/* y, d_x and d_weight, with d_out the gradient of y. */
static inline void each_alone(const struct problem *p, const double *d_out) {
  for (int i = 0; i < DISTINCT; i++) {
    int mark = held;
    struct batch one = {0};
    batch_add(&one, i);
    struct work work = work_create(p, OP_CONV2D, d_out, false, &one);
    forward(&work);
    backward(&work);
    read_into(p->y + i * p->out, work.io.out, dtype, p->out);
    read_into(p->d_x + i * p->in, work.io.d_in[0], dtype, p->in);
    read_into(p->d_weight + i * p->weights, work.io.d_param[0], DTYPE_F32, p->weights);
    work_destroy(&work, mark);
  }
}

#endif
