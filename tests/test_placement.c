/* What the banner and `convoy check` say about where the ranks run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "app/placement.h"

/* Four ranks, two on each of two hosts of 64 cores. */
static void four(struct placement all[4]) {
  for (int r = 0; r < 4; r++) {
    all[r] = (struct placement){.node = r / 2, .cores = 16, .cores_there = 64};
    strcpy(all[r].host, r < 2 ? "north" : "south");
    strcpy(all[r].visible, "0,1");
  }
}

static void expect(bool found, bool wanted, const char *text, const char *part) {
  assert_int_equal(found, wanted);
  if (wanted && !strstr(text, part)) fail_msg("'%s' does not say '%s'", text, part);
}

static void test_even(void **state) {
  (void)state;
  struct placement all[4];
  char text[512] = "";
  four(all);
  expect(placement_uneven(all, 4, text, sizeof text), false, text, "");
  expect(placement_tight(all, 4, text, sizeof text), false, text, "");
  expect(placement_hidden(all, 4, text, sizeof text), false, text, "");
  expect(placement_uneven(all, 1, text, sizeof text), false, text, "");
}

static void test_uneven(void **state) {
  (void)state;
  struct placement all[4];
  char text[512] = "";
  four(all);
  all[1].node = 1;
  strcpy(all[1].host, "south");
  expect(placement_uneven(all, 4, text, sizeof text), true, text, "host north has 1 rank, south has 3");
  four(all);
  expect(placement_uneven(all, 3, text, sizeof text), true, text, "host north has 2 ranks, south has 1");
}

static void test_tight(void **state) {
  (void)state;
  struct placement all[4];
  char text[512] = "";
  four(all);
  all[2].cores = 1;
  expect(placement_tight(all, 4, text, sizeof text), true, text,
         "rank 2 may use one core of host south's 64");
  for (int r = 0; r < 4; r++) all[r].cores = 1, all[r].cores_there = 2; /* there are no more */
  expect(placement_tight(all, 4, text, sizeof text), false, text, "");
}

static void test_hidden(void **state) {
  (void)state;
  struct placement all[4];
  char text[512] = "";
  four(all);
  strcpy(all[2].visible, "0"), strcpy(all[3].visible, "1");
  expect(placement_hidden(all, 4, text, sizeof text), true, text, "ranks 2 and 3 on host south");
  strcpy(all[3].visible, "0"); /* another host may number otherwise */
  expect(placement_hidden(all, 4, text, sizeof text), false, text, "");
}

static void test_unfenced(void **state) {
  (void)state;
  char text[512] = "";
  unsetenv("PMIX_NAMESPACE");
  unsetenv("SLURM_PMIX_FENCE");
  expect(placement_unfenced(2, text, sizeof text), false, text, "");
  setenv("PMIX_NAMESPACE", "3221225473", 1); /* mpirun's */
  expect(placement_unfenced(2, text, sizeof text), false, text, "");
  setenv("PMIX_NAMESPACE", "slurm.pmix.12.0", 1);
  expect(placement_unfenced(2, text, sizeof text), true, text, "SLURM_PMIX_FENCE is not set");
  expect(placement_unfenced(1, text, sizeof text), false, text, "");
  setenv("SLURM_PMIX_FENCE", "mixed", 1);
  expect(placement_unfenced(2, text, sizeof text), true, text, "SLURM_PMIX_FENCE is mixed");
  setenv("SLURM_PMIX_FENCE", "ring", 1);
  expect(placement_unfenced(2, text, sizeof text), false, text, "");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_even), cmocka_unit_test(test_uneven),
                                     cmocka_unit_test(test_tight), cmocka_unit_test(test_hidden),
                                     cmocka_unit_test(test_unfenced)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
