/* Own kernels of convolution + bias + relu + maxpool, called directly, against the reference in doubles:
 * forward with and without places, gradients of filters, bias and image, in fp32 and bf16. An argument names
 * the tests to run (* and ?). Exit 77 without a device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cuda_fixture.h"

enum { COUNTS = 7 };
struct shape {
  enum dtype dtype;
  int h, w, c, filters, kernel, pad, pool, pool_stride;
  bool relu, bias;
  int n[COUNTS]; /* images; 0 ends the list */
};

/* Filters that fill a block of 32 and that do not; windows apart, and overlapping ones that begin at odd
 * places. The largest batch gives a block of backward several bands. */
static struct shape shapes[] = {
    {DTYPE_BF16, 32, 32, 3, 32, 3, 1, 2, 2, true, true, {1, 2, 3, 5, 7, 133}},
    {DTYPE_F32, 32, 32, 3, 32, 3, 1, 2, 2, true, true, {1, 2, 5}},
    {DTYPE_BF16, 28, 28, 1, 40, 5, 2, 3, 2, true, false, {1, 3, 7}},
    {DTYPE_F32, 28, 28, 1, 40, 5, 2, 3, 2, false, true, {1, 3}},
    {DTYPE_BF16, 13, 11, 1, 33, 3, 0, 3, 1, false, true, {1, 2, 7}},
    {DTYPE_F32, 13, 11, 1, 33, 3, 0, 3, 1, true, false, {1, 2, 7}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* ---- kernels: the job is their arguments ---- */

static int forward(const void *job) {
  return kernel_conv_pool(stream, job);
}
static int backward_filter(const void *job) {
  return kernel_conv_pool_backward_filter(stream, job);
}
static int backward_data(const void *job) {
  return kernel_conv_pool_backward_data(stream, job);
}

/* ---- what they are held to ---- */

/* Of a shape and batch, in doubles. */
struct expected {
  const struct shape *shape;
  int n;
  int64_t conv_h, conv_w, out_h, out_w, in, weights, count; /* in, out: elements of all images */
  double *x, *weight, *bias, *d_out, *old;                  /* given */
  double *out, *place;                                      /* as found */
};

static struct expected expected_create(const struct shape *s, int n) {
  struct expected e = {.shape = s,
                       .n = n,
                       .conv_h = op_window(s->h, s->kernel, 1, s->pad),
                       .conv_w = op_window(s->w, s->kernel, 1, s->pad),
                       .in = (int64_t)n * s->h * s->w * s->c,
                       .weights = (int64_t)s->filters * s->kernel * s->kernel * s->c};
  e.out_h = op_window(e.conv_h, s->pool, s->pool_stride, 0);
  e.out_w = op_window(e.conv_w, s->pool, s->pool_stride, 0);
  e.count = n * e.out_h * e.out_w * s->filters;
  struct {
    double **to;
    int64_t count;
    enum dtype dtype;
    double mean, deviation;
  } drawn[] = {{&e.x, e.in, s->dtype, 0.25, 1},
               {&e.weight, e.weights, s->dtype, 0, 0.2},
               {&e.bias, s->filters, DTYPE_F32, 0, 0.3},
               {&e.d_out, e.count, s->dtype, 0, 1},
               {&e.old, e.in, s->dtype, 0, 1}};
  for (size_t i = 0; i < sizeof drawn / sizeof *drawn; i++) {
    *drawn[i].to = reference_array(drawn[i].count);
    array_normal(*drawn[i].to, drawn[i].count, drawn[i].dtype, drawn[i].mean, drawn[i].deviation,
                 (uint32_t)i);
  }
  return e;
}

static void expected_destroy(struct expected *e) {
  double *all[] = {e->x, e->weight, e->bias, e->d_out, e->old, e->out, e->place};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static struct op_desc desc_of(const struct expected *e) {
  const struct shape *s = e->shape;
  struct op_desc desc = {.kind = OP_CONV_POOL, .training = true, .in_count = 1};
  desc.in[0] = tensor_4d(DTYPE_F32, e->n, s->h, s->w, s->c);
  desc.attr.conv_pool = (struct conv_pool_attr){{s->filters, s->kernel, s->kernel, 1, s->pad, s->bias},
                                                s->relu ? ACTIVATION_RELU : ACTIVATION_NONE,
                                                {s->pool, s->pool_stride}};
  return desc;
}

/* The largest, before the activation, and what it may be off by as a sum: as much as the worst of its window.
 */
static void pooled(const struct expected *e, double *largest, double *error) {
  struct op_desc desc = desc_of(e);
  double *x = absolute(e->x, e->in), *weight = absolute(e->weight, e->weights);
  double *bias = absolute(e->bias, e->shape->filters);
  const struct reference_io io = {.in = {e->x}, .param = {e->weight, e->bias}, .out = largest},
                            absolutes = {.in = {x}, .param = {weight, bias}, .out = error};
  desc.attr.conv_pool.activation = ACTIVATION_NONE;
  reference_conv_pool_forward(&desc, &io);
  reference_conv_pool_forward(&desc, &absolutes);
  for (int64_t i = 0; i < e->count; i++) error[i] *= sum_error;
  free(x);
  free(weight);
  free(bias);
}

/* Places are held to by the values found there: of nearly equal ones any may be the largest. */
static void check_forward(struct expected *e, const struct array *out, const struct array *place) {
  const struct shape *s = e->shape;
  const struct op_desc desc = desc_of(e);
  const struct reference_io io = {.in = {e->x}, .param = {e->weight, e->bias}};
  double *want = reference_array(e->count), *limit = reference_array(e->count);
  double *chosen = reference_array(e->count);
  e->out = found(out, s->dtype, e->count);
  e->place = found(place, DTYPE_U8, e->count);
  pooled(e, want, limit);
  for (int64_t i = 0; i < e->count; i++) limit[i] *= 2; /* of the chosen one, and of another */
  reference_conv_pool_chosen(&desc, &io, e->place, chosen);
  assert_within("place", 0, chosen, want, limit, e->count);
  for (int64_t i = 0; i < e->count; i++) {
    if (s->relu && want[i] < 0) want[i] = 0;
    if (s->dtype == DTYPE_BF16) limit[i] += rounding * fabs(want[i]);
  }
  assert_within("out", 0, e->out, want, limit, e->count);
  free(want);
  free(limit);
  free(chosen);
}

/* From out and places as they were found: the gradients and, of absolute values, what they may be off by. */
struct gradients {
  double *d_in, *d_weight, *d_bias;
};

static struct gradients gradients_create(const struct expected *e, bool absolutes) {
  const struct op_desc desc = desc_of(e);
  struct gradients made = {reference_array(e->in), reference_array(e->weights),
                           reference_array(e->shape->filters)};
  double *x = absolute(e->x, e->in), *weight = absolute(e->weight, e->weights);
  double *d_out = absolute(e->d_out, e->count);
  const struct reference_io io = {.in = {absolutes ? x : e->x},
                                  .param = {absolutes ? weight : e->weight, e->bias},
                                  .out = e->out,
                                  .saved = {e->place},
                                  .d_out = absolutes ? d_out : e->d_out,
                                  .d_in = {made.d_in},
                                  .d_param = {made.d_weight, made.d_bias}};
  reference_conv_pool_backward(&desc, &io);
  free(x);
  free(weight);
  free(d_out);
  return made;
}

static void gradients_destroy(struct gradients *g) {
  free(g->d_in);
  free(g->d_weight);
  free(g->d_bias);
}

static void check_sum(const struct array *array, const double *want, const double *size, int64_t count) {
  double *value = found(array, DTYPE_F32, count), *limit = reference_array(count);
  for (int64_t i = 0; i < count; i++) limit[i] = sum_error * size[i];
  assert_within(array->name, 0, value, want, limit, count);
  free(value);
  free(limit);
}

/* The kernel adds in fp32 and rounds once. */
static void check_d_in(const struct expected *e, const struct array *d_in, bool add,
                       const struct gradients *g, const struct gradients *size) {
  double *value = found(d_in, e->shape->dtype, e->in);
  double *want = reference_array(e->in), *limit = reference_array(e->in);
  for (int64_t i = 0; i < e->in; i++) {
    const double old = add ? e->old[i] : 0;
    want[i] = g->d_in[i] + old;
    limit[i] = sum_error * (size->d_in[i] + fabs(old));
    if (e->shape->dtype == DTYPE_BF16) limit[i] += rounding * fabs(want[i]);
  }
  assert_within(d_in->name, 0, value, want, limit, e->in);
  free(value);
  free(want);
  free(limit);
}

/* ---- the calls in their order ---- */

static struct conv_pool_args args_of(const struct expected *e) {
  const struct shape *s = e->shape;
  return (struct conv_pool_args){.dtype = s->dtype,
                                 .n = e->n,
                                 .h = s->h,
                                 .w = s->w,
                                 .c = s->c,
                                 .out_h = (int)e->out_h,
                                 .out_w = (int)e->out_w,
                                 .filters = s->filters,
                                 .kernel_h = s->kernel,
                                 .kernel_w = s->kernel,
                                 .stride = 1,
                                 .pad = s->pad,
                                 .pool = s->pool,
                                 .pool_stride = s->pool_stride,
                                 .relu = s->relu};
}

static void check_backward(const struct expected *e, struct conv_pool_args args) {
  const struct shape *s = e->shape;
  struct gradients want = gradients_create(e, false), size = gradients_create(e, true);
  struct array *d_weight = result("d_weight", DTYPE_F32, e->weights);
  struct array *d_bias = s->bias ? result("d_bias", DTYPE_F32, s->filters) : NULL;
  args.d_out = given("d_out", s->dtype, e->d_out, e->count);
  args.d_weight = d_weight->data;
  if (d_bias) args.d_bias = d_bias->data;
  args.workspace = scratch(kernel_conv_pool_workspace(&args));
  args.tickets = counters();
  call_twice(backward_filter, &args);
  check_sum(d_weight, want.d_weight, size.d_weight, e->weights);
  if (d_bias) check_sum(d_bias, want.d_bias, size.d_bias, s->filters);
  now_given(d_weight); /* no longer written */
  if (d_bias) now_given(d_bias);
  for (int add = 0; add < 2; add++) {
    struct array *d_in = result(add ? "d_in, added to" : "d_in", s->dtype, e->in);
    if (add) array_encode(d_in->before + d_in->guard, s->dtype, e->old, e->in);
    args.d_in = d_in->data;
    args.d_in_add = add == 1;
    call_twice(backward_data, &args);
    check_d_in(e, d_in, args.d_in_add, &want, &size);
    now_given(d_in);
  }
  gradients_destroy(&want);
  gradients_destroy(&size);
}

static void check_all(struct expected *e) {
  const struct shape *s = e->shape;
  struct conv_pool_args args = args_of(e);
  need_fit(kernel_conv_pool_fits(&args), false);
  release_arrays();
  struct array *out = result("out", s->dtype, e->count), *place = result("places", DTYPE_U8, e->count);
  args.in = given("in", s->dtype, e->x, e->in);
  args.weight = given("weight", s->dtype, e->weight, e->weights);
  if (s->bias) args.bias = given("bias", DTYPE_F32, e->bias, s->filters);
  args.out = out->data;
  args.place = place->data;
  call_twice(forward, &args);
  check_forward(e, out, place);
  now_given(out);
  now_given(place);
  check_backward(e, args);

  struct array *alone = result("out without places", s->dtype, e->count);
  args.out = alone->data;
  args.place = NULL;
  call_twice(forward, &args);
  assert_memory_equal(alone->after + GUARD, out->after + GUARD, out->bytes);
}

static void conv_pool_is_the_reference(void **state) {
  const struct shape *s = *state;
  for (int i = 0; i < COUNTS && s->n[i]; i++) {
    snprintf(what, sizeof what, "conv_pool %s, %dx%dx%d, %d filters, %d images", dtype_name(s->dtype), s->h,
             s->w, s->c, s->filters, s->n[i]);
    struct expected e = expected_create(s, s->n[i]);
    check_all(&e);
    expected_destroy(&e);
  }
}

int main(int argc, char **argv) {
  struct CMUnitTest tests[SHAPES] = {0};
  char name[SHAPES][64];
  for (size_t i = 0; i < SHAPES; i++) {
    const struct shape *s = &shapes[i];
    snprintf(name[i], sizeof name[i], "conv_pool %s, %dx%dx%d, %d filters", dtype_name(s->dtype), s->h, s->w,
             s->c, s->filters);
    tests[i] = (struct CMUnitTest){
        .name = name[i], .test_func = conv_pool_is_the_reference, .initial_state = &shapes[i]};
  }
  return suite_run(argc, argv, tests, SHAPES);
}
