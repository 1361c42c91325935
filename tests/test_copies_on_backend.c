/* A batch that repeats a few images gives, image for image, what each of them gives alone, and its sums count
 * each as often as it is there: conv2d and conv_bn of a CIFAR ResNet-18's shapes, on the backend that the
 * argument names. test_ops_on_backend holds small batches to the reference, which would take minutes for
 * large ones, where kernels take other paths (several images a block, ends, limits). Those are held here to
 * the backend's own conv2d of one image, and to doubles from there on. Algorithms are deterministic, so none
 * is timed; own kernels are the same ones. CONVOY_TEST_MOST: batches of at most so many images, for checkers
 * that take their time. Exit 77 where the backend has no device here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/copies_fixture.h"
#include "tests/reference/on_backend.h"

static struct layer layers[] = {
    {32, 3, 64, 3, 1},    {32, 64, 64, 3, 1},   {32, 64, 128, 3, 2},  {32, 64, 128, 1, 2},
    {16, 128, 128, 3, 1}, {16, 128, 256, 3, 2}, {16, 128, 256, 1, 2}, {8, 256, 256, 3, 1},
    {8, 256, 512, 3, 2},  {8, 256, 512, 1, 2},  {4, 512, 512, 3, 1},
};
enum { LAYERS = sizeof layers / sizeof *layers };

/* Of cpu and cuda, in fp32 and bf16; 0 ends a list. Own convolutions on CUDA are of bf16; some take at most
 * 128, 132 or 160 images. */
static const int sizes[2][2][8] = {{{9}, {16}}, {{133, 267}, {117, 128, 132, 133, 160, 267, 512}}};

/* One image and many may take other algorithms, in the same precision. Images: each result is within rounding
 * of the exact one (test_ops_on_backend: fp32 1e-5, largest 5e-5), two are so of each other within twice
 * that. In bf16 they differ by one last digit (2^-7 of a value at most) where sums lie on either side of a
 * tie, by two where what is added to was rounded before. Sums: of up to half a million terms in fp32; in bf16
 * a filter's gradient, or what it is the gradient of, may be rounded once more. An image too many or too few
 * counts 1; rounding averages out over a row: of 100 times an image, bf16 and 27 taps leave about
 * 100 * 2^-9 / sqrt(27) = 0.04. Not so in conv_bn: where relu is closed the convolution's gradient has nearly
 * one value in all places of a filter; its rounding to bf16, which all copies have in common, moves the
 * counts of the filters' gradient by up to 1 %. */
static const struct tolerance limit_fp32 = {2e-5, 1e-4, 1e-4, 0.05, 0},
                              limit_bf16 = {4e-3, 2e-2, 4e-3, 0.25, 0.012};

static void add_to_old(const struct problem *p, struct work *work, const struct batch *batch) {
  work->io.d_in[0] = copies(p->old, p->in, batch);
  work->io.d_in_add[0] = true;
}

static void assert_filters(const struct problem *p, const struct work *work, const struct batch *batch,
                           double slack) {
  assert_device_sum("filters' gradient", work->io.d_param[0], p->d_weight, p->filters,
                    p->weights / p->filters, batch, slack);
}

/* d_in, which is added to `old` or overwritten. */
static void assert_d_in(const struct problem *p, const struct work *work, const struct batch *batch) {
  bool add = work->io.d_in_add[0];
  double *want = array(DISTINCT * p->in);
  for (int64_t i = 0; i < DISTINCT * p->in; i++) want[i] = p->d_x[i] + (add ? p->old[i] : 0);
  assert_images(add ? "d_in, added to" : "d_in", work->io.d_in[0], want, p->in, batch, NULL);
}

static void check_conv2d(const struct problem *p, struct batch *batch) {
  int mark = held;
  snprintf(batch->what, sizeof batch->what, "conv2d, %d images", batch->n);
  struct work work = work_create(p, OP_CONV2D, p->d_out, false, batch);
  forward(&work);
  assert_images("out", work.io.out, p->y, p->out, batch, NULL);
  backward(&work);
  assert_d_in(p, &work, batch);
  assert_filters(p, &work, batch, 0);
  add_to_old(p, &work, batch);
  backward(&work);
  assert_d_in(p, &work, batch);
  work_destroy(&work, mark);
}

/* ---- conv_bn ---- */

static double mean_of(const struct problem *p, const double *part, int64_t k, const struct batch *batch) {
  return batch_sum(batch, part, p->filters, k) / ((double)batch->n * (double)p->rows);
}

/* From y: sum, square, mean, factor, normal and want. */
static void expect_forward(const struct problem *p, bool residual, const struct batch *batch) {
  channel_parts(p->y, NULL, p->rows, p->filters, p->sum);
  channel_parts(p->y, p->y, p->rows, p->filters, p->square);
  for (int64_t k = 0; k < p->filters; k++) {
    double mean = mean_of(p, p->sum, k, batch);
    double invstd = 1 / sqrt(mean_of(p, p->square, k, batch) - mean * mean + (double)epsilon);
    p->factor[k] = p->param[1][k] * invstd;
    for (int64_t i = k; i < DISTINCT * p->out; i += p->filters) {
      p->normal[i] = (p->y[i] - mean) * invstd;
      p->want[i] = p->param[1][k] * p->normal[i] + p->param[2][k] + (residual ? p->residual[i] : 0);
      if (p->relu && p->want[i] < 0) p->want[i] = 0;
    }
  }
}

/* From found, whose zeros are relu's mask: d_sum, d_shift, d_scale and d_y. */
static void expect_backward(const struct problem *p, const struct batch *batch) {
  for (int64_t i = 0; i < DISTINCT * p->out; i++)
    p->d_sum[i] = p->relu && !(p->found[i] > 0) ? 0 : p->d_out[i];
  channel_parts(p->d_sum, NULL, p->rows, p->filters, p->d_shift);
  channel_parts(p->d_sum, p->normal, p->rows, p->filters, p->d_scale);
  for (int64_t k = 0; k < p->filters; k++) {
    double shift = mean_of(p, p->d_shift, k, batch), scale = mean_of(p, p->d_scale, k, batch);
    for (int64_t i = k; i < DISTINCT * p->out; i += p->filters)
      p->d_y[i] = p->factor[k] * (p->d_sum[i] - shift - p->normal[i] * scale);
  }
}

/* Mean and 1/sqrt(variance + epsilon) by the sums that they come from; batch statistics by these two. */
static void assert_moments(const struct problem *p, const struct op_io *io, const struct batch *batch) {
  const double rows = (double)batch->n * (double)p->rows, share = batch->n * batch_scale(batch);
  double *mean = array(p->filters), *square = array(p->filters), *found = array(p->filters);
  double *want[] = {array(p->filters), array(p->filters)};
  read_into(mean, io->saved[1], DTYPE_F32, p->filters);
  read_into(square, io->saved[2], DTYPE_F32, p->filters);
  for (int64_t k = 0; k < p->filters; k++) {
    double variance = 1 / (square[k] * square[k]) - (double)epsilon;
    want[0][k] = mean[k] * share;
    want[1][k] = variance * rows / (rows - 1) * share;
    square[k] = rows * (variance + mean[k] * mean[k]);
    mean[k] *= rows;
  }
  assert_sum("mean", mean, p->sum, 1, p->filters, batch, 0);
  assert_sum("1/sqrt(variance)", square, p->square, 1, p->filters, batch, 0);
  for (int i = 0; i < 2; i++) {
    read_into(found, io->batch_statistic[i], DTYPE_F32, p->filters);
    assert_close(i ? "batch variance" : "batch mean", found, want[i], p->filters, 1e-5);
  }
}

static void assert_backward(const struct problem *p, const struct work *work, const struct batch *batch) {
  const struct op_io *io = &work->io;
  if (io->d_in[0]) assert_d_in(p, work, batch);
  if (io->d_in[1]) assert_images("residual's gradient", io->d_in[1], p->d_sum, p->out, batch, NULL);
  assert_filters(p, work, batch, limit.rounded);
  assert_device_sum("scale's gradient", io->d_param[1], p->d_scale, 1, p->filters, batch, 0);
  assert_device_sum("shift's gradient", io->d_param[2], p->d_shift, 1, p->filters, batch, 0);
}

static void check_conv_bn(const struct problem *p, bool residual, struct batch *batch) {
  int mark = held;
  snprintf(batch->what, sizeof batch->what, "conv_bn%s, %d images", residual ? ", residual" : "", batch->n);
  struct work work = work_create(p, OP_CONV_BN, p->d_out, residual, batch);
  expect_forward(p, residual, batch);
  forward(&work);
  assert_images("convolution", work.io.saved[0], p->y, p->out, batch, NULL);
  assert_moments(p, &work.io, batch);
  assert_images("out", work.io.out, p->want, p->out, batch, p->found);
  expect_backward(p, batch);
  each_alone(p, p->d_y);
  if (residual) add_to_old(p, &work, batch);
  backward(&work);
  assert_backward(p, &work, batch);
  work.io.d_in[0] = work.io.d_in[1] = NULL; /* not wanted */
  for (int i = 0; i < PARAMS; i++)
    ok(table->zero(backend, work.io.d_param[i], (size_t)(i ? p->filters : p->weights) * sizeof(float)));
  backward(&work);
  assert_backward(p, &work, batch);
  work_destroy(&work, mark);
}

static void copies_give_what_one_gives(void **state) {
  const int *const first = sizes[table->device][dtype == DTYPE_BF16];
  const char *given = getenv("CONVOY_TEST_MOST");
  const int most = given ? atoi(given) : BATCH_MOST;
  release_to(0); /* of a test that failed */
  struct problem p = problem_create(*state);
  each_alone(&p, p.d_out);
  for (const int *n = first; *n && *n <= most; n++) {
    struct batch batch = batch_of(*n);
    check_conv2d(&p, &batch);
  }
  for (const int *n = first; *n && *n <= most; n++) {
    struct batch batch = batch_of(*n);
    check_conv_bn(&p, false, &batch);
    if (p.in == p.out) check_conv_bn(&p, true, &batch);
  }
  release_to(0);
}

/* Returns how many layers failed. */
static int run(const struct world *world, enum precision precision) {
  struct backend_options options = {
      .precision = precision, .deterministic = true, .init_timeout_seconds = 60};
  struct CMUnitTest tests[LAYERS] = {0};
  char name[LAYERS][64];
  dtype = precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32;
  limit = precision == PRECISION_BF16 ? limit_bf16 : limit_fp32;
  for (size_t i = 0; i < LAYERS; i++) {
    struct layer *l = &layers[i];
    snprintf(name[i], sizeof name[i], "%s, %dx%d, %d to %d, %dx%d, stride %d", precision_name(precision),
             l->size, l->size, l->channels, l->filters, l->kernel, l->kernel, l->stride);
    tests[i] =
        (struct CMUnitTest){.name = name[i], .test_func = copies_give_what_one_gives, .initial_state = l};
  }
  return suite_run_with(world, &options, tests, LAYERS);
}

int main(int argc, char **argv) {
  struct world world;
  int code = suite_open(argc, argv, &table, &world);
  if (code) return code;
  int failed = run(&world, PRECISION_FP32) + run(&world, PRECISION_BF16);
  world_close(&world);
  return failed ? 1 : 0;
}
