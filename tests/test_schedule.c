/* Learning rates at the edges of warm-up and run, and the scaling by batch size. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "app/schedule.h"

static void expect(const struct schedule *schedule, int64_t step, double lr) {
  float found = schedule_lr(schedule, step);
  if (fabs((double)found - lr) > 1e-7 * fabs(lr))
    fail_msg("step %ld: %.9g, expected %.9g", (long)step, (double)found, lr);
}

static void test_constant(void **state) {
  (void)state;
  struct schedule s = {.kind = SCHEDULE_CONSTANT, .lr = 0.1, .total_steps = 100};
  assert_true(schedule_lr(&s, 0) == 0.1f); /* rounded once */
  expect(&s, 99, 0.1);
  expect(&s, 1000, 0.1);
  s.warmup_steps = 5;
  expect(&s, 0, 0.02);
  expect(&s, 3, 0.08);
  expect(&s, 4, 0.1);
  expect(&s, 5, 0.1);
}

static void test_linear(void **state) {
  (void)state;
  struct schedule s = {.kind = SCHEDULE_LINEAR, .lr = 0.2, .warmup_steps = 15, .total_steps = 100};
  expect(&s, 0, 0.2 / 15);
  expect(&s, 14, 0.2);
  expect(&s, 15, 0.2);
  expect(&s, 16, 0.2 * 84 / 85);
  expect(&s, 99, 0.2 / 85);
  assert_true(schedule_lr(&s, 99) > 0);
  assert_true(schedule_lr(&s, 100) == 0);
  /* After the warm-up it is the usual (1 - f) / (1 - w) of the run's fraction f. */
  for (int k = 15; k < 100; k++) expect(&s, k, 0.2 * (1 - k / 100.0) / 0.85);
}

static void test_cosine(void **state) {
  (void)state;
  struct schedule s = {.kind = SCHEDULE_COSINE, .lr = 3, .warmup_steps = 10, .total_steps = 110};
  expect(&s, 9, 3);
  expect(&s, 10, 3);
  expect(&s, 35, 3 * (1 + sqrt(0.5)) / 2);
  expect(&s, 60, 1.5);
  expect(&s, 85, 3 * (1 - sqrt(0.5)) / 2);
  assert_true(schedule_lr(&s, 109) > 0 && schedule_lr(&s, 109) < 0.001f);
  assert_true(schedule_lr(&s, 110) == 0);
  for (int k = 10; k < 109; k++) assert_true(schedule_lr(&s, k) > schedule_lr(&s, k + 1));
}

/* A warm-up longer than the run only rises. */
static void test_long_warmup(void **state) {
  (void)state;
  struct schedule s = {.kind = SCHEDULE_LINEAR, .lr = 1, .warmup_steps = 50, .total_steps = 20};
  expect(&s, 19, 0.4);
  s.warmup_steps = 20;
  expect(&s, 19, 1);
  assert_true(schedule_lr(&s, 20) == 0);
}

static void test_scale(void **state) {
  (void)state;
  assert_true(schedule_factor(SCHEDULE_SCALE_NONE, 1024, 128) == 1);
  assert_true(schedule_factor(SCHEDULE_SCALE_LINEAR, 1024, 128) == 8);
  assert_true(schedule_factor(SCHEDULE_SCALE_LINEAR, 64, 128) == 0.5);
  assert_true(schedule_factor(SCHEDULE_SCALE_SQRT, 1152, 128) == 3);
}

static void test_names(void **state) {
  (void)state;
  enum schedule_kind kind = SCHEDULE_CONSTANT;
  enum schedule_scale scale = SCHEDULE_SCALE_NONE;
  assert_true(schedule_kind_parse("cosine", &kind) && kind == SCHEDULE_COSINE);
  assert_true(schedule_kind_parse("linear", &kind) && kind == SCHEDULE_LINEAR);
  assert_false(schedule_kind_parse("cosin", &kind));
  assert_int_equal(kind, SCHEDULE_LINEAR);
  assert_true(schedule_scale_parse("sqrt", &scale) && scale == SCHEDULE_SCALE_SQRT);
  assert_false(schedule_scale_parse("", &scale));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_constant), cmocka_unit_test(test_linear),
                                     cmocka_unit_test(test_cosine),   cmocka_unit_test(test_long_warmup),
                                     cmocka_unit_test(test_scale),    cmocka_unit_test(test_names)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
