/* Own kernels of bf16 convolutions, called directly, against the reference in doubles: forward with and
 * without moments, data gradients written and added, filter gradients, on a CIFAR ResNet-18's shapes and some
 * that end within a tile. An argument names the tests to run (* and ?). Exit 77 without a device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cuda_conv_fixture.h"

/* Few images leave tiles and blocks unfilled; the largest batches give a block several images, or are the
 * most that the kernel takes, or one less where it takes images in pairs or eights. */
static const struct layer stages[] = {{32, 32, 64, 64, 3, 1, 1, {1, 2, 3, 5, 7, 133, 267}, true},
                                      {16, 16, 128, 128, 3, 1, 1, {1, 2, 3, 5, 7, 132}, true},
                                      {4, 4, 512, 512, 3, 1, 1, {1, 2, 3, 5, 7, 23, 128}, false}};
static const struct layer strided[] = {{32, 32, 64, 128, 3, 2, 1, {1, 2, 3, 5, 7, 133}, false},
                                       {16, 16, 128, 256, 3, 2, 1, {1, 2, 3, 5, 7, 131}, false},
                                       {8, 8, 256, 512, 3, 2, 1, {1, 2, 3, 5, 7, 11, 131}, false}};
static const struct layer filters[] = {{32, 32, 64, 64, 3, 1, 1, {1, 2, 3, 5, 7, 133}, false},
                                       {16, 16, 128, 128, 3, 1, 1, {1, 2, 3, 5, 7, 131}, false},
                                       {16, 16, 64, 128, 3, 1, 1, {1, 3, 61}, false},
                                       {8, 8, 64, 64, 3, 1, 1, {2, 4, 14, 254}, false}};
static const struct layer points[] = {{32, 32, 64, 128, 1, 2, 0, {1, 2, 3, 5, 7, 133}, false},
                                      {16, 16, 128, 256, 1, 2, 0, {1, 2, 3, 5, 7, 133}, false},
                                      {8, 8, 256, 512, 1, 2, 0, {1, 2, 3, 5, 7, 133}, false}};
static const struct layer thins[] = {{32, 32, 3, 64, 3, 1, 1, {1, 2, 3, 5, 7, 133, 267}, true},
                                     {30, 30, 3, 64, 3, 1, 1, {1, 3, 7}, false},
                                     {9, 7, 1, 128, 5, 2, 2, {1, 5, 139}, true}};

/* ---- kernels ---- */

static int stage_forward(const void *job) {
  const struct job *j = job;
  return kernel_stage_forward(stream, &j->args, j->in, j->weight, j->out, j->part);
}
static int stage_data(const void *job) {
  const struct job *j = job;
  return kernel_stage_data(stream, &j->args, j->d_out, j->weight, j->d_in, j->add);
}
static int strided_data(const void *job) {
  const struct job *j = job;
  return kernel_strided_data(stream, &j->args, j->d_out, j->weight, j->d_in, j->add);
}
static int filter(const void *job) {
  const struct job *j = job;
  return kernel_filter(stream, &j->args, j->in, j->d_out, j->d_weight, j->workspace);
}
static int point_forward(const void *job) {
  const struct job *j = job;
  return kernel_point_forward(stream, &j->args, j->in, j->weight, j->out);
}
static int point_data(const void *job) {
  const struct job *j = job;
  return kernel_point_data(stream, &j->args, j->d_out, j->weight, j->d_in, j->add);
}
static int point_filter(const void *job) {
  const struct job *j = job;
  return kernel_point_filter(stream, &j->args, j->in, j->d_out, j->d_weight, j->workspace);
}
static int thin_forward(const void *job) {
  const struct job *j = job;
  return kernel_thin_forward(stream, &j->args, j->in, j->weight, j->out, j->part);
}
static int thin_filter(const void *job) {
  const struct job *j = job;
  return kernel_thin_filter(stream, &j->args, j->in, j->d_out, j->d_weight, j->workspace, j->tickets);
}

static const struct family stage_family = {.name = "stage",
                                           .fits = kernel_stage_fits,
                                           .forward = stage_forward,
                                           .data = stage_data,
                                           .moments = kernel_stage_moments,
                                           .sm_90 = true},
                           strided_family = {.name = "strided",
                                             .fits = kernel_strided_fits,
                                             .data = strided_data,
                                             .sm_90 = true},
                           filter_family = {.name = "filter",
                                            .fits = kernel_filter_fits,
                                            .filter = filter,
                                            .workspace = kernel_filter_workspace,
                                            .sm_90 = true},
                           point_family = {.name = "point",
                                           .fits = kernel_point_fits,
                                           .forward = point_forward,
                                           .data = point_data,
                                           .filter = point_filter,
                                           .workspace = kernel_point_workspace},
                           thin_family = {.name = "thin",
                                          .fits = kernel_thin_fits,
                                          .forward = thin_forward,
                                          .filter = thin_filter,
                                          .moments = kernel_thin_moments,
                                          .workspace = kernel_thin_workspace,
                                          .tickets = true};

/* ---- checks ---- */

static void forward_is_the_reference(const struct family *f, const struct layer *l) {
  struct problem p = problem_create(l);
  const struct op_desc desc = desc_of(l, DISTINCT);
  double *y = reference_array(DISTINCT * p.out), *limit = reference_array(DISTINCT * p.out);
  double *x = absolute(p.x, DISTINCT * p.in), *weight = absolute(p.weight, p.weights);
  const struct reference_io io = {.in = {p.x}, .param = {p.weight}, .out = y},
                            absolutes = {.in = {x}, .param = {weight}, .out = limit};
  reference_conv2d_forward(&desc, &io);
  reference_conv2d_forward(&desc, &absolutes);
  for (int64_t i = 0; i < DISTINCT * p.out; i++) limit[i] = limit_bf16(y[i], limit[i], 0);
  for (int i = 0; i < COUNTS && l->n[i]; i++) {
    const struct batch batch = next_batch(f, l, i);
    check_forward(f, &p, &batch, false, y, limit);
    check_forward(f, &p, &batch, true, y, limit);
  }
  double *all[] = {y, limit, x, weight};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  problem_destroy(&p);
}

static void data_is_the_reference(const struct family *f, const struct layer *l) {
  struct problem p = problem_create(l);
  const struct op_desc desc = desc_of(l, DISTINCT);
  double *d_x = reference_array(DISTINCT * p.in), *absolute_d_x = reference_array(DISTINCT * p.in);
  double *d_out = absolute(p.d_out, DISTINCT * p.out), *weight = absolute(p.weight, p.weights);
  const struct reference_io io = {.param = {p.weight}, .d_out = p.d_out, .d_in = {d_x}},
                            absolutes = {.param = {weight}, .d_out = d_out, .d_in = {absolute_d_x}};
  reference_conv2d_backward(&desc, &io);
  reference_conv2d_backward(&desc, &absolutes);
  for (int i = 0; i < COUNTS && l->n[i]; i++) {
    const struct batch batch = next_batch(f, l, i);
    check_data(f, &p, &batch, false, d_x, absolute_d_x);
    check_data(f, &p, &batch, true, d_x, absolute_d_x);
  }
  double *all[] = {d_x, absolute_d_x, d_out, weight};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  problem_destroy(&p);
}

static void filter_is_the_reference(const struct family *f, const struct layer *l) {
  struct problem p = problem_create(l);
  const struct op_desc desc = desc_of(l, 1);
  double *part = reference_array(DISTINCT * p.weights),
         *absolute_part = reference_array(DISTINCT * p.weights);
  double *x = absolute(p.x, DISTINCT * p.in), *d_out = absolute(p.d_out, DISTINCT * p.out);
  for (int i = 0; i < DISTINCT; i++) {
    const struct reference_io io = {.in = {p.x + i * p.in},
                                    .d_out = p.d_out + i * p.out,
                                    .d_param = {part + i * p.weights}},
                              absolutes = {.in = {x + i * p.in},
                                           .d_out = d_out + i * p.out,
                                           .d_param = {absolute_part + i * p.weights}};
    reference_conv2d_backward(&desc, &io);
    reference_conv2d_backward(&desc, &absolutes);
  }
  for (int i = 0; i < COUNTS && l->n[i]; i++) {
    const struct batch batch = next_batch(f, l, i);
    check_filter(f, &p, &batch, part, absolute_part);
  }
  double *all[] = {part, absolute_part, x, d_out};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  problem_destroy(&p);
}

/* ---- the tests ---- */

struct trial {
  const struct family *family;
  const struct layer *layer;
  void (*check)(const struct family *family, const struct layer *layer);
  char name[64];
};

static void kernel_is_the_reference(void **state) {
  const struct trial *trial = *state;
  trial->check(trial->family, trial->layer);
}

enum { TRIALS = 32 };
static struct trial trials[TRIALS];
static struct CMUnitTest tests[TRIALS];
static size_t count;

/* A test for each layer. */
static void add_tests(const struct family *family, const struct layer *layer, size_t layers) {
  static void (*const check[])(const struct family *, const struct layer *) = {
      forward_is_the_reference, data_is_the_reference, filter_is_the_reference};
  static const char *const kind[] = {"forward", "data", "gradient"};
  launch *const kernel[] = {family->forward, family->data, family->filter};
  for (size_t i = 0; i < layers * 3; i++) {
    const struct layer *l = &layer[i / 3];
    if (!kernel[i % 3]) continue;
    struct trial *trial = &trials[count];
    *trial = (struct trial){.family = family, .layer = l, .check = check[i % 3]};
    snprintf(trial->name, sizeof trial->name, "%s %s, %dx%d, %d to %d", family->name, kind[i % 3], l->h, l->w,
             l->c, l->filters);
    tests[count++] = (struct CMUnitTest){
        .name = trial->name, .test_func = kernel_is_the_reference, .initial_state = trial};
  }
}

int main(int argc, char **argv) {
#define ADD(family, layers) add_tests(&(family), layers, sizeof(layers) / sizeof *(layers))
  ADD(stage_family, stages);
  ADD(strided_family, strided);
  ADD(filter_family, filters);
  ADD(point_family, points);
  ADD(thin_family, thins);
#undef ADD
  return suite_run(argc, argv, tests, count);
}
