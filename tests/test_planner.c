/* Plans of epochs: the one made ahead is the one that is made when it is asked for, for every rank; and it is
 * what the sampler and the schedule say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "app/planner.h"

enum { COUNT = 1003, BATCH = 96, EPOCHS = 4 };

static const struct sampler sampler = {
    .seed = 7, .count = COUNT, .global_batch = BATCH, .flip = true, .crop = 4, .height = 32, .width = 32};
static const struct schedule schedule = {
    .kind = SCHEDULE_COSINE, .lr = 0.1, .warmup_steps = 5, .total_steps = EPOCHS * 11};

static void open_planner(struct planner *planner, const struct world *world) {
  *planner = (struct planner){
      .sampler = &sampler, .schedule = &schedule, .beta1 = 0.9, .beta2 = 0.999, .world = world};
  assert_int_equal(planner_create(planner), STATUS_OK);
}

static void compare(const struct epoch_plan *a, const struct epoch_plan *b) {
  assert_int_equal(a->epoch, b->epoch);
  assert_int_equal(a->first, b->first);
  assert_int_equal(a->count, b->count);
  assert_int_equal(a->steps, b->steps);
  assert_memory_equal(a->list, b->list, (size_t)a->count * sizeof *a->list);
  assert_memory_equal(a->begin, b->begin, (size_t)a->steps * sizeof *a->begin);
  assert_memory_equal(a->rows, b->rows, (size_t)a->steps * sizeof *a->rows);
}

static void a_plan_made_ahead_is_the_same(void **state) {
  (void)state;
  for (int rank = 0; rank < 3; rank++) {
    struct world world = {.rank = rank, .size = 3};
    struct planner ahead, now;
    struct epoch_plan *a, *b;
    open_planner(&ahead, &world);
    open_planner(&now, &world);
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
      int64_t first = epoch == 0 ? 4 : 0; /* a run that resumes within an epoch */
      assert_int_equal(planner_get(&ahead, epoch, first, &a), STATUS_OK);
      struct sample middle = a->list[a->count / 2];
      planner_ahead(&ahead, epoch + 1);
      assert_int_equal(planner_get(&now, epoch, first, &b), STATUS_OK);
      compare(a, b); /* also while the next one is made */
      assert_memory_equal(&middle, &a->list[a->count / 2], sizeof middle);
    }
    planner_destroy(&ahead); /* with a plan that nobody takes */
    planner_destroy(&now);
  }
}

static void another_epoch_than_was_made_ahead(void **state) {
  (void)state;
  struct world world = {.rank = 0, .size = 1};
  struct planner planner;
  struct epoch_plan *plan;
  open_planner(&planner, &world);
  assert_int_equal(planner_get(&planner, 0, 0, &plan), STATUS_OK);
  planner_ahead(&planner, 1);
  assert_int_equal(planner_get(&planner, 2, 3, &plan), STATUS_OK);
  assert_int_equal(plan->epoch, 2);
  assert_int_equal(plan->first, 3);
  planner_ahead(&planner, 3);
  planner_ahead(&planner, 1);
  assert_int_equal(planner_get(&planner, 1, 2, &plan), STATUS_OK); /* made ahead, but from its begin */
  assert_int_equal(plan->epoch, 1);
  assert_int_equal(plan->first, 2);
  planner_destroy(&planner);
}

static void a_plan_is_what_sampler_and_schedule_say(void **state) {
  (void)state;
  struct world world = {.rank = 1, .size = 2};
  struct planner planner;
  struct epoch_plan *plan;
  struct sample *order = calloc(COUNT, sizeof *order);
  assert_non_null(order);
  open_planner(&planner, &world);
  assert_int_equal(planner_get(&planner, 0, 0, &plan), STATUS_OK);
  planner_ahead(&planner, 1);
  assert_int_equal(planner_get(&planner, 1, 0, &plan), STATUS_OK);
  assert_int_equal(sampler_epoch(&sampler, 1, order), STATUS_OK);
  assert_int_equal(plan->steps, 11);
  int64_t at = 0;
  for (int64_t s = 0; s < plan->steps; s++) {
    int64_t first, count, step = 11 + s;
    sampler_rank_part(&sampler, s, 1, 2, &first, &count);
    assert_int_equal(plan->begin[s], at);
    assert_int_equal(plan->rows[s].first, at);
    for (int64_t i = 0; i < count; i++)
      assert_memory_equal(&plan->list[at + i], &order[s * BATCH + first + i], sizeof *order);
    at += count;
    assert_true(plan->rows[s].learning_rate == schedule_lr(&schedule, step));
    double samples = s < 10 ? BATCH : COUNT - 10 * BATCH;
    assert_true(fabs((double)plan->rows[s].scale * samples - 1) < 1e-6);
    assert_true(fabs((double)plan->rows[s].correction1 - (1 - pow(0.9, (double)(step + 1)))) < 1e-6);
    assert_true(fabs((double)plan->rows[s].correction2 - (1 - pow(0.999, (double)(step + 1)))) < 1e-6);
  }
  assert_int_equal(plan->count, at);
  free(order);
  planner_destroy(&planner);
}

static void nothing_was_created(void **state) {
  (void)state;
  struct planner planner = {0};
  planner_destroy(&planner);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_plan_made_ahead_is_the_same),
      cmocka_unit_test(another_epoch_than_was_made_ahead),
      cmocka_unit_test(a_plan_is_what_sampler_and_schedule_say),
      cmocka_unit_test(nothing_was_created),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
