/* Which GPU a rank takes; wrong launches are refused with words that name the ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/backend/gpu_map.h"

static struct world rank_of(int local_rank, int local_size) {
  struct world world = {.seat = local_rank, .seats = local_size, .host = "north"};
  return world;
}

static void refused(enum status status, const char *part) {
  assert_int_equal(status, STATUS_INPUT);
  if (!strstr(error_message(), part)) fail_msg("'%s' does not say '%s'", error_message(), part);
  error_clear();
}

static void test_choice(void **state) {
  (void)state;
  static const struct {
    int local_rank, local_size, visible, device;
  } cases[] = {
      {0, 1, 1, 0}, {0, 1, 8, 0}, {3, 8, 8, 3}, {1, 2, 4, 1}, /* all visible: that of the local rank */
      {3, 4, 1, 0},                                           /* --gpus-per-task: each sees one, its own */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct world world = rank_of(cases[i].local_rank, cases[i].local_size);
    int device = -1;
    assert_int_equal(gpu_choose(&world, cases[i].visible, &device), STATUS_OK);
    assert_int_equal(device, cases[i].device);
  }
}

static void test_more_ranks_than_gpus(void **state) {
  (void)state;
  int device = -1;
  for (int rank = 0; rank < 3; rank++) {
    struct world world = rank_of(rank, 3);
    refused(gpu_choose(&world, 2, &device), "host north: 3 ranks but 2 visible GPUs");
  }
  assert_int_equal(device, -1);
}

static void claim(struct gpu_claim *claim, const char *host, const char *pci) {
  memset(claim, 0, sizeof *claim);
  strcpy(claim->host, host);
  strcpy(claim->pci, pci);
}

static void test_same_gpu(void **state) {
  (void)state;
  struct gpu_claim all[4];
  claim(&all[0], "north", "0000:19:00.0");
  claim(&all[1], "north", "0000:3B:00.0");
  claim(&all[2], "south", "0000:19:00.0"); /* another host counts its own */
  claim(&all[3], "south", "0000:3B:00.0");
  assert_int_equal(gpu_check_claims(all, 4), STATUS_OK);
  claim(&all[3], "south", "0000:19:00.0");
  refused(gpu_check_claims(all, 4), "host south: ranks 2 and 3 have the same GPU (0000:19:00.0)");
  assert_int_equal(gpu_check_claims(all, 3), STATUS_OK);
  claim(&all[2], "south", "");
  claim(&all[3], "south", ""); /* ranks that could not open one have an error of their own */
  assert_int_equal(gpu_check_claims(all, 4), STATUS_OK);
}

static void near(double found, double expected) {
  if (found < 0.99 * expected || found > 1.01 * expected) fail_msg("%g, expected %g", found, expected);
}

/* What the data sheets give, at the boost clock. */
static void test_peak(void **state) {
  (void)state;
  near(gpu_peak(8, 0, PRECISION_BF16, 108, 1.41e9), 312e12); /* A100 */
  near(gpu_peak(8, 0, PRECISION_TF32, 108, 1.41e9), 156e12);
  near(gpu_peak(8, 0, PRECISION_FP32, 108, 1.41e9), 19.5e12);
  near(gpu_peak(8, 6, PRECISION_BF16, 84, 1.74e9), 149.7e12); /* A40 */
  near(gpu_peak(8, 9, PRECISION_TF32, 142, 2.52e9), 183e12);  /* L40S */
  near(gpu_peak(9, 0, PRECISION_BF16, 132, 1.83e9), 989e12);  /* H100 SXM */
  near(gpu_peak(9, 0, PRECISION_TF32, 132, 1.83e9), 494e12);
  assert_true(gpu_peak(7, 0, PRECISION_FP32, 80, 1.53e9) == 0); /* not known */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_choice),
                                     cmocka_unit_test(test_more_ranks_than_gpus),
                                     cmocka_unit_test(test_same_gpu), cmocka_unit_test(test_peak)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
