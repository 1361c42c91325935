/* The order of an epoch: every sample once, the same for any number of ranks, another order each epoch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/sampler.h"

enum { COUNT = 1003, BATCH = 64 };

static const struct sampler plain = {.seed = 7, .count = COUNT, .global_batch = BATCH};
static const struct sampler augmented = {
    .seed = 7, .count = COUNT, .global_batch = BATCH, .flip = true, .crop = 4};

static void every_sample_once(void **state) {
  (void)state;
  static struct sample list[COUNT];
  for (int64_t epoch = 0; epoch < 5; epoch++) {
    int seen[COUNT] = {0};
    assert_int_equal(sampler_epoch(&plain, epoch, list), STATUS_OK);
    for (int i = 0; i < COUNT; i++) {
      assert_true(list[i].index < COUNT);
      seen[list[i].index]++;
      assert_int_equal(list[i].flip, 0);
      assert_int_equal(list[i].shift_y, 0);
    }
    for (int i = 0; i < COUNT; i++) assert_int_equal(seen[i], 1);
  }
}

static void epochs_and_seeds_differ(void **state) {
  (void)state;
  static struct sample a[COUNT], b[COUNT];
  struct sampler other = plain;
  other.seed = 8;
  assert_int_equal(sampler_epoch(&plain, 0, a), STATUS_OK);
  assert_int_equal(sampler_epoch(&plain, 1, b), STATUS_OK);
  int same_epoch = 0, same_seed = 0, fixed = 0;
  for (int i = 0; i < COUNT; i++) same_epoch += a[i].index == b[i].index;
  assert_int_equal(sampler_epoch(&other, 0, b), STATUS_OK);
  for (int i = 0; i < COUNT; i++) same_seed += a[i].index == b[i].index;
  for (int i = 0; i < COUNT; i++) fixed += a[i].index == (uint32_t)i;
  assert_true(same_epoch < 12 && same_seed < 12 && fixed < 12); /* 1 is expected by chance */
  assert_int_equal(sampler_epoch(&plain, 0, b), STATUS_OK);
  assert_memory_equal(a, b, sizeof a);
}

static void parts_differ_by_at_most_one(void **state) {
  (void)state;
  for (int64_t total = 0; total < 40; total++)
    for (int size = 1; size <= 9; size++) {
      int64_t end = 0, low = INT64_MAX, high = 0;
      for (int rank = 0; rank < size; rank++) {
        int64_t first, count;
        sampler_part(total, rank, size, &first, &count);
        assert_int_equal(first, end);
        end = first + count;
        if (count < low) low = count;
        if (count > high) high = count;
      }
      assert_int_equal(end, total);
      assert_true(high - low <= 1);
    }
}

/* Each step's parts, joined in rank order, are the step's part of the global list. */
static void any_rank_count_same_order(void **state) {
  (void)state;
  static struct sample list[COUNT], joined[COUNT];
  assert_int_equal(sampler_epoch(&augmented, 3, list), STATUS_OK);
  int64_t steps = sampler_steps(&augmented);
  assert_int_equal(steps, (COUNT + BATCH - 1) / BATCH);
  assert_int_equal(sampler_step_count(&augmented, steps - 1), COUNT % BATCH);
  for (int size = 1; size <= 7; size++)
    for (int64_t first_step = 0; first_step < steps; first_step += 5) {
      memset(joined, 0xff, sizeof joined);
      int64_t total = 0;
      for (int rank = 0; rank < size; rank++) {
        int64_t capacity = sampler_rank_count(&augmented, first_step, rank, size), used = 0;
        struct sample *mine = malloc((size_t)capacity * sizeof *mine);
        uint32_t *begin = malloc((size_t)steps * sizeof *begin);
        assert_true(mine && begin);
        sampler_rank_list(&augmented, list, first_step, rank, size, mine, begin);
        for (int64_t step = first_step; step < steps; step++) {
          int64_t first, count;
          sampler_part(sampler_step_count(&augmented, step), rank, size, &first, &count);
          assert_int_equal(begin[step - first_step], used);
          memcpy(joined + step * BATCH + first, mine + used, (size_t)count * sizeof *mine);
          used += count;
        }
        assert_int_equal(used, capacity);
        total += used;
        free(mine);
        free(begin);
      }
      int64_t skipped = first_step * BATCH;
      assert_int_equal(total, COUNT - skipped);
      assert_memory_equal(joined + skipped, list + skipped, (size_t)(COUNT - skipped) * sizeof *list);
    }
}

/* The lanes of a step are the same samples whichever rank holds them, and ranks hold neighbouring ones. */
static void lanes_do_not_depend_on_ranks(void **state) {
  (void)state;
  enum { LANES = 8 };
  const int64_t batches[] = {16, 37, 5, 7};
  for (int b = 0; b < 4; b++) {
    struct sampler sampler = {.seed = 1, .count = 301, .global_batch = batches[b], .lanes = LANES};
    for (int64_t step = 0; step < sampler_steps(&sampler); step++) {
      int64_t total = sampler_step_count(&sampler, step);
      for (int size = 1; size <= LANES; size *= 2) {
        int64_t end = 0;
        for (int rank = 0; rank < size; rank++) {
          int64_t first, count, lane_first, lane_count, held = LANES / size, sum = 0;
          sampler_rank_part(&sampler, step, rank, size, &first, &count);
          assert_int_equal(first, end);
          end = first + count;
          for (int64_t lane = 0; lane < held; lane++) {
            sampler_part(total, (int)(rank * held + lane), LANES, &lane_first, &lane_count);
            assert_int_equal(lane_first, first + sum);
            assert_int_equal(lane_count, count / held + (lane < count % held)); /* as the net cuts it again */
            sum += lane_count;
          }
          assert_int_equal(sum, count);
        }
        assert_int_equal(end, total);
      }
    }
  }
}

static void augmentation_is_uniform_and_a_function_of_the_sample(void **state) {
  (void)state;
  enum { MANY = 45000 };
  struct sampler large = augmented, other_batch;
  large.count = MANY;
  struct sample *list = malloc(MANY * sizeof *list), *again = malloc(MANY * sizeof *again);
  assert_true(list && again);
  assert_int_equal(sampler_epoch(&large, 2, list), STATUS_OK);
  int flips = 0, y[9] = {0}, x[9] = {0};
  for (int i = 0; i < MANY; i++) {
    assert_true(abs(list[i].shift_y) <= 4 && abs(list[i].shift_x) <= 4);
    flips += list[i].flip;
    y[list[i].shift_y + 4]++;
    x[list[i].shift_x + 4]++;
  }
  assert_in_range(flips, MANY / 2 - 600, MANY / 2 + 600); /* 5.6 standard deviations */
  for (int i = 0; i < 9; i++) {
    assert_in_range(y[i], 5000 - 400, 5000 + 400);
    assert_in_range(x[i], 5000 - 400, 5000 + 400);
  }
  other_batch = large;
  other_batch.global_batch = 100;
  assert_int_equal(sampler_epoch(&other_batch, 2, again), STATUS_OK);
  assert_memory_equal(list, again, MANY * sizeof *list);
  /* Without augmentation the order is the same one. */
  other_batch.flip = false;
  other_batch.crop = 0;
  assert_int_equal(sampler_epoch(&other_batch, 2, again), STATUS_OK);
  for (int i = 0; i < MANY; i++) assert_int_equal(list[i].index, again[i].index);
  free(list);
  free(again);
}

/* The square's centre is uniform over the pixels, and no other draw changes with it. */
static void cutout_is_uniform(void **state) {
  (void)state;
  enum { MANY = 45000, SIDE = 6, CUT = 4, PLACES = 2 * SIDE * SIDE };
  struct sampler with =
                     {.seed = 3, .count = MANY, .global_batch = 10, .flip = true, .crop = 2, .reflect = true},
                 without = with;
  with.cut = CUT;
  with.height = SIDE;
  with.width = 2 * SIDE;
  struct sample *a = malloc(MANY * sizeof *a), *b = malloc(MANY * sizeof *b);
  assert_true(a && b);
  assert_int_equal(sampler_epoch(&with, 1, a), STATUS_OK);
  assert_int_equal(sampler_epoch(&without, 1, b), STATUS_OK);
  int seen[PLACES] = {0};
  for (int i = 0; i < MANY; i++) {
    int y = a[i].cut_y + CUT / 2, x = a[i].cut_x + CUT / 2;
    assert_true(y >= 0 && y < SIDE && x >= 0 && x < 2 * SIDE && a[i].cut == CUT && a[i].reflect);
    seen[y * 2 * SIDE + x]++;
    a[i].cut = 0;
    a[i].cut_y = a[i].cut_x = 0;
  }
  assert_memory_equal(a, b, MANY * sizeof *a);
  for (int i = 0; i < PLACES; i++) assert_in_range(seen[i], 625 - 125, 625 + 125); /* 5 standard deviations */
  free(a);
  free(b);
  with.cut = 20000;
  struct sample one[1];
  with.count = 1;
  assert_int_equal(sampler_epoch(&with, 0, one), STATUS_INPUT);
  error_clear();
}

/* Every sample once; a window holds whole blocks only and mixes them; epochs and seeds differ. */
static void blocks_are_shuffled_in_windows(void **state) {
  (void)state;
  enum { MANY = 1003, BLOCK = 10, WINDOW = 8, ROWS = BLOCK * WINDOW };
  struct sampler sampler = {
      .seed = 5, .count = MANY, .global_batch = 10, .flip = true, .block = BLOCK, .window = WINDOW};
  static struct sample list[MANY], other[MANY];
  assert_int_equal(sampler_epoch(&sampler, 2, list), STATUS_OK);
  int seen[MANY] = {0}, neighbours = 0, first_block = (int)list[0].index / BLOCK, in_first = 0;
  for (int i = 0; i < MANY; i++) seen[list[i].index]++;
  for (int i = 0; i < MANY; i++) assert_int_equal(seen[i], 1);
  for (int i = 1; i < MANY; i++) neighbours += list[i].index == list[i - 1].index + 1;
  assert_true(neighbours < 50);
  for (int i = 0; i < BLOCK; i++) in_first += (int)list[i].index / BLOCK == first_block;
  assert_true(in_first < BLOCK / 2 + 1);
  for (int begin = 0; begin + ROWS <= MANY - ROWS; begin += ROWS) { /* the short block may be in any window */
    bool held[MANY / BLOCK + 1] = {false};
    int blocks = 0;
    for (int i = 0; i < ROWS; i++) {
      blocks += !held[list[begin + i].index / BLOCK];
      held[list[begin + i].index / BLOCK] = true;
    }
    if (held[MANY / BLOCK]) break; /* windows are not aligned after it */
    assert_int_equal(blocks, WINDOW);
  }
  for (int i = 0; i < 2; i++) {
    sampler.seed += (uint64_t)i;
    assert_int_equal(sampler_epoch(&sampler, i ? 2 : 3, other), STATUS_OK);
    int same = 0;
    for (int n = 0; n < MANY; n++) same += list[n].index == other[n].index;
    assert_true(same < 30);
  }
  struct sampler by_bytes = {.count = 10};
  sampler_by_blocks(&by_bytes, 3072);
  assert_int_equal(by_bytes.block, 341);
  sampler_by_blocks(&by_bytes, 1 << 22);
  assert_int_equal(by_bytes.block, 1);
}

static void small_and_refused(void **state) {
  (void)state;
  struct sample one[1];
  struct sampler tiny = {.seed = 1, .count = 1, .global_batch = 128};
  assert_int_equal(sampler_steps(&tiny), 1);
  assert_int_equal(sampler_epoch(&tiny, 0, one), STATUS_OK);
  assert_int_equal(one[0].index, 0);
  assert_int_equal(sampler_rank_count(&tiny, 0, 3, 4), 0);
  tiny.crop = 200;
  assert_int_equal(sampler_epoch(&tiny, 0, one), STATUS_INPUT);
  error_clear();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_sample_once),
      cmocka_unit_test(epochs_and_seeds_differ),
      cmocka_unit_test(parts_differ_by_at_most_one),
      cmocka_unit_test(any_rank_count_same_order),
      cmocka_unit_test(lanes_do_not_depend_on_ranks),
      cmocka_unit_test(augmentation_is_uniform_and_a_function_of_the_sample),
      cmocka_unit_test(cutout_is_uniform),
      cmocka_unit_test(blocks_are_shuffled_in_windows),
      cmocka_unit_test(small_and_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
