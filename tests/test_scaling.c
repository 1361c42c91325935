/* The fit of communication costs and the prediction of steps, against lines that are known, sums done by hand
 * and the limits of overlap. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "app/gnuplot.h"
#include "app/scaling_fit.h"
#include "model/base/clock.h"

enum { POINTS = 16 };

#define NEAR(found, expected, tolerance)                                                                     \
  do {                                                                                                       \
    double near_found = (found), near_expected = (expected);                                                 \
    if (!(fabs(near_found - near_expected) <= (tolerance)*fabs(near_expected)))                              \
      fail_msg("%s: %.12g, expected %.12g", #found, near_found, near_expected);                              \
  } while (0)

/* Points of a + m b at 1 KiB, 2 KiB, … */
static void on_line(struct scaling_point *point, int first, int count, double a, double b) {
  for (int i = first; i < first + count; i++) {
    point[i].bytes = 1024.0 * pow(2, i);
    point[i].seconds = a + b * point[i].bytes;
  }
}

static void test_exact_line(void **state) {
  (void)state;
  struct scaling_point point[POINTS];
  struct scaling_link link;
  double latency[] = {1e-7, 5e-6, 3e-3}, bandwidth[] = {1e8, 1.25e10, 4.5e11};
  for (int a = 0; a < 3; a++)
    for (int b = 0; b < 3; b++) {
      on_line(point, 0, POINTS, latency[a], 1 / bandwidth[b]);
      assert_int_equal(scaling_fit(point, POINTS, &link), STATUS_OK);
      NEAR(link.small.latency, latency[a], 1e-6);
      NEAR(1 / link.small.per_byte, bandwidth[b], 1e-6);
      NEAR(link.large.latency, latency[a], 1e-6);
      NEAR(scaling_message(&link, 12345), latency[a] + 12345 / bandwidth[b], 1e-6);
    }
}

/* Least squares alone would be off by far. */
static void test_wrong_points(void **state) {
  (void)state;
  struct scaling_point point[POINTS];
  struct scaling_link link;
  on_line(point, 0, POINTS, 2e-5, 1e-10);
  point[3].seconds *= 8;
  point[11].seconds *= 3;
  assert_int_equal(scaling_fit(point, POINTS, &link), STATUS_OK);
  NEAR(link.small.latency, 2e-5, 1e-3);
  NEAR(link.large.per_byte, 1e-10, 1e-3);
  for (int i = 0; i < POINTS; i++) { /* and noise of 3 % */
    on_line(point, i, 1, 2e-5, 1e-10);
    point[i].seconds *= i % 2 ? 1.03 : 0.97;
  }
  point[5].seconds *= 10;
  assert_int_equal(scaling_fit(point, POINTS, &link), STATUS_OK);
  NEAR(scaling_message(&link, 1024), 2e-5, 0.06);
  NEAR(scaling_message(&link, 1 << 25), 2e-5 + (1 << 25) * 1e-10, 0.06);
}

static void test_two_lines(void **state) {
  (void)state;
  struct scaling_point point[POINTS];
  struct scaling_link link;
  on_line(point, 0, 7, 4e-6, 1e-10);
  on_line(point, 7, POINTS - 7, 3e-5, 2e-12);
  assert_int_equal(scaling_fit(point, POINTS, &link), STATUS_OK);
  NEAR(link.small.latency, 4e-6, 1e-6);
  NEAR(link.small.per_byte, 1e-10, 1e-6);
  NEAR(link.large.latency, 3e-5, 1e-6);
  NEAR(link.large.per_byte, 2e-12, 1e-6);
  assert_true(link.turn > point[6].bytes && link.turn < point[7].bytes);
  NEAR(scaling_message(&link, point[6].bytes), point[6].seconds, 1e-6);
  NEAR(scaling_message(&link, point[7].bytes), point[7].seconds, 1e-6);
}

/* Times that fall with the size give no negative bandwidth or latency. */
static void test_bounds(void **state) {
  (void)state;
  struct scaling_point falling[] = {{1e3, 3e-5}, {2e3, 2.8e-5}, {4e3, 2.5e-5}, {8e3, 2.4e-5}};
  struct scaling_point steep[] = {{1e3, 1e-6}, {2e3, 3e-6}, {4e3, 7e-6}, {8e3, 15e-6}};
  struct scaling_link link;
  assert_int_equal(scaling_fit(falling, 4, &link), STATUS_OK);
  assert_true(link.small.per_byte == 0 && link.small.latency > 2e-5);
  assert_int_equal(scaling_fit(steep, 4, &link), STATUS_OK);
  assert_true(link.small.latency == 0 && link.small.per_byte > 1e-9);
  assert_int_equal(scaling_fit(steep, 2, &link), STATUS_INPUT);
  steep[1].seconds = 0;
  assert_int_equal(scaling_fit(steep, 4, &link), STATUS_INPUT);
  steep[1].seconds = NAN;
  assert_int_equal(scaling_fit(steep, 4, &link), STATUS_INPUT);
  error_clear();
}

/* 8 ranks a host; inside 1 us and 100 GB/s, between 10 us and 25 GB/s a rank. */
static struct scaling_network network_of_eight(void) {
  return (struct scaling_network){
      .inside = scaling_link_of(1e-6, 1e11), .between = scaling_link_of(1e-5, 2.5e10), .host_ranks = 8};
}

static void test_ring(void **state) {
  (void)state;
  struct scaling_network n = network_of_eight();
  assert_true(scaling_allreduce(&n, SCALING_RING, 1, 1e8) == 0);
  /* 2 steps of 50 MB at 100 GB/s: 2 (1 us + 500 us) */
  NEAR(scaling_allreduce(&n, SCALING_RING, 2, 1e8), 1.002e-3, 1e-12);
  /* 6 steps of 25 MB: 6 (1 us + 250 us) */
  NEAR(scaling_allreduce(&n, SCALING_RING, 4, 1e8), 1.506e-3, 1e-12);
  /* 8190 steps of 24,414.0625 bytes: inside 1.244 us, between 10 us + 3,051.76 B / 25 GB/s = 10.12207 us */
  NEAR(scaling_allreduce(&n, SCALING_RING, 4096, 1e8), 8190 * 10.1220703125e-6, 1e-12);
  n.host_ranks = 1; /* one rank a host: 2 steps of 50 MB at 25 GB/s */
  NEAR(scaling_allreduce(&n, SCALING_RING, 2, 1e8), 2 * 2.01e-3, 1e-12);
  struct scaling_point message = scaling_ring_message(4, 1e8, 1.506e-3);
  NEAR(message.bytes, 2.5e7, 1e-12);
  NEAR(message.seconds, 2.51e-4, 1e-12);
}

static void test_tree(void **state) {
  (void)state;
  struct scaling_network n = network_of_eight();
  assert_true(scaling_allreduce(&n, SCALING_TREE, 1, 1e8) == 0);
  NEAR(scaling_allreduce(&n, SCALING_TREE, 2, 1e8), 2 * (1e-6 + 1e-3), 1e-12);
  NEAR(scaling_allreduce(&n, SCALING_TREE, 4, 1e8), 2 * (2e-6 + 1e-3), 1e-12);
  NEAR(scaling_allreduce(&n, SCALING_TREE, 5, 1e8), 2 * (3e-6 + 1e-3), 1e-12);
  /* 512 hosts: 9 and 3 levels; 12.5 MB a link between them take 0.5 ms, all inside 1 ms */
  NEAR(scaling_allreduce(&n, SCALING_TREE, 4096, 1e8), 2 * (90e-6 + 3e-6 + 1e-3), 1e-12);
}

static void test_hierarchical(void **state) {
  (void)state;
  struct scaling_network n = network_of_eight();
  for (int ranks = 1; ranks <= 8; ranks++)
    NEAR(scaling_allreduce(&n, SCALING_HIERARCHICAL, ranks, 3e7),
         scaling_allreduce(&n, SCALING_RING, ranks, 3e7), 1e-12);
  /* inside 14 (1 us + 12.5 MB / 100 GB/s), between 1022 (10 us + 24,414.0625 B / 25 GB/s) */
  NEAR(scaling_allreduce(&n, SCALING_HIERARCHICAL, 4096, 1e8), 14 * 126e-6 + 1022 * 10.9765625e-6, 1e-12);
  n.host_ranks = 1;
  NEAR(scaling_allreduce(&n, SCALING_HIERARCHICAL, 64, 3e7), scaling_allreduce(&n, SCALING_RING, 64, 3e7),
       1e-12);
}

static void test_overlap(void **state) {
  (void)state;
  struct scaling_network n = network_of_eight();
  double ready[] = {1e-3, 2e-3, 10e-3}, bytes[] = {1e8, 1e8, 1e8}; /* 1.002 ms each on two ranks */
  struct scaling_step step = {
      .seconds = 20e-3, .backward = 10e-3, .buckets = 3, .ready = ready, .bytes = bytes, .overlap = true};
  struct scaling_prediction p = scaling_predict(&n, SCALING_RING, 1, &step);
  assert_true(p.seconds == step.seconds && p.exposed == 0 && p.allreduce == 0 && p.efficiency == 1);
  /* only the last bucket, ready at the end, is exposed */
  p = scaling_predict(&n, SCALING_RING, 2, &step);
  NEAR(p.exposed, 1.002e-3, 1e-9);
  NEAR(p.allreduce, 3.006e-3, 1e-12);
  NEAR(p.seconds, 21.002e-3, 1e-12);
  NEAR(p.efficiency, 20 / 21.002, 1e-12);
  /* all hidden: the last one is done before the backward pass */
  step.buckets = 2;
  p = scaling_predict(&n, SCALING_RING, 2, &step);
  assert_true(p.exposed == 0 && p.seconds == step.seconds);
  /* nothing hidden: all are ready at the end, or none runs beside it */
  step.buckets = 3;
  ready[0] = ready[1] = 10e-3;
  p = scaling_predict(&n, SCALING_RING, 2, &step);
  NEAR(p.exposed, 3.006e-3, 1e-9);
  ready[0] = ready[1] = 0;
  step.overlap = false;
  p = scaling_predict(&n, SCALING_RING, 2, &step);
  NEAR(p.exposed, 3.006e-3, 1e-12);
  /* a bucket waits for the one before it */
  step.overlap = true;
  n.host_ranks = 1;
  ready[0] = 2e-3, ready[1] = 3e-3, ready[2] = 10e-3;
  p = scaling_predict(&n, SCALING_RING, 2, &step); /* 4.02 ms each: ends at 6.02, 10.04, 14.06 */
  NEAR(p.exposed, 4.06e-3, 1e-9);
}

/* gnuplot_run with a script of that text in gnuplot's place; NULL: with nothing there. */
static enum status run_in_place(const char *text, double seconds) {
  char folder[] = "/tmp/convoy-gnuplot-XXXXXX", program[64], *path = strdup(getenv("PATH"));
  struct gnuplot_job job = {.input = -1, .output = -1, .quiet = true};
  assert_non_null(path);
  assert_non_null(mkdtemp(folder));
  snprintf(program, sizeof program, "%s/gnuplot", folder);
  if (text) {
    FILE *file = fopen(program, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(program, 0700), 0);
  }
  assert_int_equal(setenv("PATH", folder, 1), 0);
  enum status status = gnuplot_run(&job, seconds);
  assert_int_equal(setenv("PATH", path, 1), 0);
  if (text) assert_int_equal(unlink(program), 0);
  assert_int_equal(rmdir(folder), 0);
  free(path);
  return status;
}

/* A gnuplot that never ends, fails or is missing is named; the first is not waited for. */
static void test_gnuplot(void **state) {
  (void)state;
  double begin = clock_seconds();
  assert_int_equal(run_in_place("#!/bin/sh\nexec /bin/sleep 100\n", 0.2), STATUS_INTERNAL);
  assert_true(clock_seconds() - begin < 60);
  assert_non_null(strstr(error_message(), "gnuplot did not end within 0.2 s"));
  assert_int_equal(run_in_place("#!/bin/sh\nexit 3\n", 60), STATUS_INTERNAL);
  assert_non_null(strstr(error_message(), "gnuplot ended with 3"));
  assert_int_equal(run_in_place(NULL, 60), STATUS_INPUT);
  assert_non_null(strstr(error_message(), "gnuplot, which is not in PATH"));
  assert_int_equal(run_in_place("#!/bin/sh\nexit 0\n", 60), STATUS_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_exact_line),   cmocka_unit_test(test_wrong_points),
      cmocka_unit_test(test_two_lines),    cmocka_unit_test(test_bounds),
      cmocka_unit_test(test_ring),         cmocka_unit_test(test_tree),
      cmocka_unit_test(test_hierarchical), cmocka_unit_test(test_overlap),
      cmocka_unit_test(test_gnuplot),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
