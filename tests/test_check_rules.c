/* What `convoy check` decides from what it found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "app/check.h"

static void test_interface(void **state) {
  (void)state;
  static const struct {
    const char *wanted, *name;
    bool use;
  } cases[] = {
      {"eth", "eth0", true},       {"eth0", "eth", false},       {"eth1", "eth0", false},
      {"=eth", "eth0", false},     {"=eth0", "eth0", true},      {"ib,eth", "eth3", true},
      {"ib,eth", "enp4s0", false}, {"^lo,docker", "eth0", true}, {"^lo,docker", "docker0", false},
      {"^=lo", "lo1", true},       {"^=lo", "lo", false},        {"=a,b", "b", true},
      {",", "eth0", false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (check_interface(cases[i].wanted, cases[i].name) != cases[i].use)
      fail_msg("%s and %s", cases[i].wanted, cases[i].name);
}

static void test_slow(void **state) {
  (void)state;
  assert_int_equal(check_slow((double[]){5, 6, 5.5}, 3), -1);
  assert_int_equal(check_slow((double[]){5, 6, 2.9}, 3), 2);
  assert_int_equal(check_slow((double[]){2, 6, 1}, 3), 2);
  assert_int_equal(check_slow((double[]){1}, 1), -1);
}

static void test_weak(void **state) {
  (void)state;
  assert_true(check_weak(300e12, 989e12));
  assert_false(check_weak(799e12, 989e12));
  assert_false(check_weak(1, 0)); /* nothing is known of the device */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_interface), cmocka_unit_test(test_slow),
                                     cmocka_unit_test(test_weak)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
