/* A first layer's own kernels in a row, called directly, against the reference in doubles: the convolution
 * with few taps and the moments that it leaves, batch normalisation from these (or, where bands are not
 * equal, from its own sums) and relu, and the gradients of filters, scale and shift, for which the
 * convolution's own gradient is never made. An argument names the tests to run (* and ?). Exit 77 without a
 * device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cuda_conv_fixture.h"

/* 30 rows are two unequal bands; the largest batches give a block several bands. */
static struct layer layers[] = {{32, 32, 3, 64, 3, 1, 1, {1, 3, 7}, true},
                                {30, 30, 3, 64, 3, 1, 1, {2, 5}, false},
                                {8, 8, 3, 64, 3, 1, 1, {267}, true},
                                {9, 7, 1, 128, 5, 2, 2, {1, 139}, true}};
enum { LAYERS = sizeof layers / sizeof *layers };

/* ---- kernels ---- */

struct chain {
  struct conv_args conv;
  struct norm_args norm;
  const void *in, *weight;
  void *y;
  float *part, *d_weight;
};

static int convolve(const void *job) {
  const struct chain *c = job;
  return kernel_thin_forward(stream, &c->conv, c->in, c->weight, c->y, c->part);
}
static int normalise(const void *job) {
  const struct chain *c = job;
  return kernel_norm_forward(stream, &c->norm);
}
static int differentiate(const void *job) {
  const struct chain *c = job;
  return kernel_thin_norm_filter(stream, &c->conv, &c->norm, c->in, c->d_weight);
}

/* ---- what they are held to ---- */

static const float epsilon = 1e-5f;

/* Of a layer and batch, in doubles: what is given, what the kernels left and the next one read, and what is
 * expected. Rows are places, the convolution's results (rows, filters). */
struct expected {
  const struct layer *layer;
  int n;
  bool relu;
  int64_t in, weights, rows, filters, count;
  double *x, *weight, *scale, *shift, *d_out, share;
  double *y, *out; /* as found */
  double *mean, *factor, *batch[2], *want;
};

static struct expected expected_create(const struct layer *l, int n, bool relu) {
  struct expected e = {.layer = l,
                       .n = n,
                       .relu = relu,
                       .in = (int64_t)n * l->h * l->w * l->c,
                       .weights = (int64_t)l->filters * l->kernel * l->kernel * l->c,
                       .rows = n * out_h(l) * out_w(l),
                       .filters = l->filters,
                       .share = (double)(1.0f / (float)(2 * n + 1))}; /* as if other ranks had some too */
  e.count = e.rows * e.filters;
  e.x = reference_array(e.in);
  e.scale = reference_array(e.filters);
  e.shift = reference_array(e.filters);
  array_normal(e.x, e.in, DTYPE_BF16, 0.5, 1, 1);
  array_normal(e.scale, e.filters, DTYPE_F32, 1, 0.3, 2);
  array_normal(e.shift, e.filters, DTYPE_F32, 0, 0.3, 3);
  e.weight = drawn(e.weights, 0.2, 4);
  e.d_out = drawn(e.count, 1, 5);
  double **channel[] = {&e.mean, &e.factor, &e.batch[0], &e.batch[1]};
  for (size_t i = 0; i < sizeof channel / sizeof *channel; i++) *channel[i] = reference_array(e.filters);
  e.want = reference_array(e.count);
  return e;
}

static void expected_destroy(struct expected *e) {
  double *all[] = {e->x,   e->weight, e->scale,  e->shift,    e->d_out,    e->y,
                   e->out, e->mean,   e->factor, e->batch[0], e->batch[1], e->want};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static struct op_desc norm_desc(const struct expected *e) {
  struct op_desc desc = {.kind = OP_BATCHNORM, .training = true, .in_count = 1};
  desc.in[0] = tensor_4d(DTYPE_F32, e->n, out_h(e->layer), out_w(e->layer), e->filters);
  desc.attr.batchnorm = (struct batchnorm_attr){epsilon, false};
  return desc;
}

static void check_convolution(struct expected *e, const struct array *y) {
  const struct op_desc desc = desc_of(e->layer, e->n);
  double *x = absolute(e->x, e->in), *weight = absolute(e->weight, e->weights);
  double *limit = reference_array(e->count);
  const struct reference_io io = {.in = {e->x}, .param = {e->weight}, .out = e->want},
                            absolutes = {.in = {x}, .param = {weight}, .out = limit};
  reference_conv2d_forward(&desc, &io);
  reference_conv2d_forward(&desc, &absolutes);
  for (int64_t i = 0; i < e->count; i++) limit[i] = limit_bf16(e->want[i], limit[i], 0);
  e->y = found(y, DTYPE_BF16, e->count);
  assert_within("convolution", 0, e->y, e->want, limit, e->count);
  free(x);
  free(weight);
  free(limit);
}

static void check_channels(const struct array *array, const double *want, const double *limit,
                           int64_t count) {
  double *value = found(array, DTYPE_F32, count);
  assert_within(array->name, 0, value, want, limit, count);
  free(value);
}

/* How far a value may lie from its channel's mean, in deviations, and one more: what an error of 2^-16 of
 * either counts by. */
static double reach(const struct expected *e, int64_t i) {
  const int64_t k = i % e->filters;
  return (fabs(e->y[i]) + fabs(e->mean[k])) * e->factor[k] + 1;
}

/* From y as it was found. The mean may be off by 2^-16 of sqrt(mean^2 + variance), the variance by 2^-14 of
 * that square; a place of the smallest batch's twenty, or of a thousand, counts more. */
static void check_normalised(struct expected *e, struct array *const statistic[4], const struct array *out) {
  const struct op_desc desc = norm_desc(e);
  double *limit = reference_array(e->count), *channel = reference_array(4 * e->filters);
  const struct reference_io io = {.in = {e->y},
                                  .param = {e->scale, e->shift},
                                  .scale = e->share,
                                  .out = e->want,
                                  .batch_statistic = {e->batch[0], e->batch[1]},
                                  .saved = {e->mean, e->factor}};
  reference_batchnorm_forward(&desc, &io);
  for (int64_t k = 0; k < e->filters; k++) {
    const double f = e->factor[k], size = sqrt(e->mean[k] * e->mean[k] + 1 / (f * f));
    const double unbiased = (double)e->rows / (double)(e->rows > 1 ? e->rows - 1 : 1);
    channel[k] = 0x1p-16 * size;
    channel[e->filters + k] = 0x1p-14 * f * f * f * size * size;
    channel[2 * e->filters + k] = 0x1p-15 * size * e->n * e->share;
    channel[3 * e->filters + k] = 0x1p-14 * size * size * unbiased * e->n * e->share;
  }
  const double *want[] = {e->mean, e->factor, e->batch[0], e->batch[1]};
  for (int i = 0; i < 4; i++) check_channels(statistic[i], want[i], channel + i * e->filters, e->filters);
  for (int64_t i = 0; i < e->count; i++) {
    const int64_t k = i % e->filters;
    if (e->relu && e->want[i] < 0) e->want[i] = 0;
    limit[i] = rounding * fabs(e->want[i]) + 0x1p-13 * (fabs(e->scale[k]) * reach(e, i) + fabs(e->shift[k]));
  }
  e->out = found(out, DTYPE_BF16, e->count);
  assert_within("out", 0, e->out, e->want, limit, e->count);
  free(limit);
  free(channel);
}

/* From y and out as they were found: where out is not above zero relu passes nothing. What sums may be off by
 * is counted with each product's absolute value, y and its mean apart, as the kernel adds them. */
static void check_gradients(struct expected *e, struct array *const gradient[3]) {
  const struct op_desc desc = norm_desc(e), conv = desc_of(e->layer, e->n);
  double *d_sum = reference_array(e->count), *d_y = reference_array(e->count);
  double *size = reference_array(e->count), *x = absolute(e->x, e->in);
  double *d_scale = reference_array(e->filters), *d_shift = reference_array(e->filters);
  double *d_weight = reference_array(e->weights), *limit = reference_array(e->weights);
  double *scale_limit = reference_array(e->filters), *shift_limit = reference_array(e->filters);
  for (int64_t i = 0; i < e->count; i++) {
    d_sum[i] = e->relu && !(e->out[i] > 0) ? 0 : e->d_out[i];
    shift_limit[i % e->filters] += 2 * sum_error * fabs(d_sum[i]);
    scale_limit[i % e->filters] += 2 * sum_error * fabs(d_sum[i]) * reach(e, i);
  }
  const struct reference_io norm_io = {.in = {e->y},
                                       .param = {e->scale, e->shift},
                                       .d_out = d_sum,
                                       .d_in = {d_y},
                                       .d_param = {d_scale, d_shift}};
  reference_batchnorm_backward(&desc, &norm_io);
  for (int64_t i = 0; i < e->count; i++) {
    const int64_t k = i % e->filters;
    const double mean_shift = shift_limit[k] / (double)e->rows, mean_scale = scale_limit[k] / (double)e->rows;
    size[i] = fabs(e->scale[k]) * e->factor[k] *
              (2 * sum_error * fabs(d_sum[i]) + mean_shift + reach(e, i) * mean_scale);
  }
  const struct reference_io conv_io = {.in = {e->x}, .d_out = d_y, .d_param = {d_weight}},
                            sizes = {.in = {x}, .d_out = size, .d_param = {limit}};
  reference_conv2d_backward(&conv, &conv_io);
  reference_conv2d_backward(&conv, &sizes);
  check_channels(gradient[0], d_scale, scale_limit, e->filters);
  check_channels(gradient[1], d_shift, shift_limit, e->filters);
  check_channels(gradient[2], d_weight, limit, e->weights);
  double *all[] = {d_sum, d_y, size, x, d_scale, d_shift, d_weight, limit, scale_limit, shift_limit};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* ---- the calls in their order ---- */

static void check_chain(struct expected *e) {
  const struct conv_args conv = args_of(e->layer, e->n);
  const struct conv_moments moments = kernel_thin_moments(&conv);
  struct chain c = {.conv = conv,
                    .norm = {.dtype = DTYPE_BF16,
                             .activation = e->relu ? ACTIVATION_RELU : ACTIVATION_NONE,
                             .rows = e->rows,
                             .channels = e->filters,
                             .epsilon = epsilon,
                             .batch = (float)e->n,
                             .parts = moments.parts,
                             .pieces = moments.pieces}};
  struct norm_args *norm = &c.norm;
  if ((moments.parts > 0) != e->layer->moments) fail_msg("%s: moments in %d parts", what, moments.parts);
  release_arrays();
  c.in = given("in", DTYPE_BF16, e->x, e->in);
  c.weight = given("weight", DTYPE_BF16, e->weight, e->weights);
  norm->weight = given("scale", DTYPE_F32, e->scale, e->filters);
  norm->bias = given("shift", DTYPE_F32, e->shift, e->filters);
  norm->scale = given("share", DTYPE_F32, &e->share, 1);
  struct array *y = result("convolution", DTYPE_BF16, e->count), *part = NULL;
  c.y = y->data;
  if (moments.parts) part = result("moments", DTYPE_F32, (int64_t)moments.parts * e->filters * 2);
  if (part) c.part = part->data;
  call_twice(convolve, &c);
  check_convolution(e, y);
  if (part) assert_moments(part, y, moments, e->rows, e->filters);
  if (part) norm->part = now_given(part);
  norm->in = now_given(y);

  static const char *const names[] = {"mean", "1/sqrt(variance)", "batch mean", "batch variance"};
  float **const place[] = {&norm->mean, &norm->invstd, &norm->batch_mean, &norm->batch_var};
  struct array *statistic[4], *out = result("out", DTYPE_BF16, e->count);
  for (int i = 0; i < 4; i++) *place[i] = (statistic[i] = result(names[i], DTYPE_F32, e->filters))->data;
  norm->out = out->data;
  norm->workspace = scratch(kernel_channel_workspace(DTYPE_BF16, e->rows, e->filters));
  norm->tickets = counters();
  call_twice(normalise, &c);
  check_normalised(e, statistic, out);
  for (int i = 0; i < 4; i++) now_given(statistic[i]);
  now_given(out);

  need_fit(kernel_thin_norm_fits(&conv, norm), false);
  struct array *gradient[] = {result("d_scale", DTYPE_F32, e->filters),
                              result("d_shift", DTYPE_F32, e->filters),
                              result("d_weight", DTYPE_F32, e->weights)};
  norm->d_out = given("d_out", DTYPE_BF16, e->d_out, e->count);
  norm->d_weight = gradient[0]->data;
  norm->d_bias = gradient[1]->data;
  c.d_weight = gradient[2]->data;
  norm->workspace = scratch(kernel_thin_norm_workspace(&conv));
  call_twice(differentiate, &c);
  check_gradients(e, gradient);
}

static void chain_is_the_reference(void **state) {
  const struct layer *l = *state;
  for (int i = 0; i < COUNTS && l->n[i]; i++)
    for (int relu = 0; relu < 2; relu++) {
      snprintf(what, sizeof what, "thin norm, %dx%d, %d to %d%s, %d images", l->h, l->w, l->c, l->filters,
               relu ? ", relu" : "", l->n[i]);
      const struct conv_args conv = args_of(l, l->n[i]);
      need_fit(kernel_thin_fits(&conv), false);
      struct expected e = expected_create(l, l->n[i], relu == 1);
      check_chain(&e);
      expected_destroy(&e);
    }
}

int main(int argc, char **argv) {
  struct CMUnitTest tests[LAYERS] = {0};
  char name[LAYERS][64];
  for (size_t i = 0; i < LAYERS; i++) {
    snprintf(name[i], sizeof name[i], "thin norm, %dx%d, %d to %d", layers[i].h, layers[i].w, layers[i].c,
             layers[i].filters);
    tests[i] = (struct CMUnitTest){
        .name = name[i], .test_func = chain_is_the_reference, .initial_state = &layers[i]};
  }
  return suite_run(argc, argv, tests, LAYERS);
}
