/* The base layer: Philox against its published vectors, bfloat16, permutations, moments, shapes, the error
 * record. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <math.h>
#include <sched.h>

#include "model/base/cores.h"
#include "model/base/error.h"
#include "model/base/random.h"
#include "model/base/symbol.h"
#include "model/base/tensor.h"

/* Known answers of philox4x32-10 from Random123's kat_vectors. Its counter is (position, stream, purpose),
 * its key the seed. */
static void philox_known_answers(void **state) {
  (void)state;
  static const struct {
    uint32_t counter[4], key[2], answer[4];
  } known[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    uint32_t words[4];
    struct random_key key = {.seed = ((uint64_t)known[i].key[1] << 32) | known[i].key[0],
                             .stream = known[i].counter[2],
                             .purpose = known[i].counter[3]};
    random_words(key, ((uint64_t)known[i].counter[1] << 32) | known[i].counter[0], words);
    assert_memory_equal(words, known[i].answer, sizeof words);
  }
}

static void sequences_differ(void **state) {
  (void)state;
  struct random_key key[] = {random_key(1, RANDOM_TEST, 0), random_key(2, RANDOM_TEST, 0),
                             random_key(1, RANDOM_INIT, 0), random_key(1, RANDOM_TEST, 1),
                             random_key((uint64_t)1 << 32 | 1, RANDOM_TEST, 0)};
  for (size_t a = 0; a < sizeof key / sizeof *key; a++)
    for (size_t b = 0; b < a; b++) assert_true(random_normal(key[a], 5) != random_normal(key[b], 5));
  assert_true(random_normal(key[0], 5) == random_normal(key[0], 5));
  assert_int_equal(random_stream(""), 2166136261u);
  assert_int_equal(random_stream("a"), 0xe40c292cu);
  assert_int_equal(random_stream("foobar"), 0xbf9cf968u);
}

static void moments(double (*draw)(struct random_key, uint64_t), double power[4]) {
  enum { COUNT = 200000 };
  struct random_key key = random_key(7, RANDOM_TEST, 0);
  memset(power, 0, 4 * sizeof *power);
  for (uint64_t i = 0; i < COUNT; i++) {
    double x = draw(key, i), product = 1;
    for (int p = 0; p < 4; p++) power[p] += (product *= x) / COUNT;
  }
}

/* Four standard errors of 200,000 draws are 0.009 for the normal's mean and 0.0026 for the uniform's. */
static void uniform_and_normal_moments(void **state) {
  (void)state;
  double power[4];
  moments(random_uniform, power);
  for (int p = 0; p < 4; p++) assert_true(fabs(power[p] - 1.0 / (p + 2)) < 0.0027);
  moments(random_normal, power);
  assert_true(fabs(power[0]) < 0.009);
  assert_true(fabs(power[1] - 1) < 0.013);
  assert_true(fabs(power[2]) < 0.035);
  assert_true(fabs(power[3] - 3) < 0.09);
}

static void below_is_even_and_bounded(void **state) {
  (void)state;
  enum { BOUND = 7, COUNT = 70000 };
  int seen[BOUND] = {0};
  struct random_key key = random_key(3, RANDOM_TEST, 0);
  for (uint64_t i = 0; i < COUNT; i++) {
    uint32_t value = random_below(key, i, BOUND);
    assert_true(value < BOUND);
    seen[value]++;
  }
  double chi = 0;
  for (int i = 0; i < BOUND; i++) chi += pow(seen[i] - (double)COUNT / BOUND, 2) / ((double)COUNT / BOUND);
  assert_true(chi < 22.5); /* 6 degrees of freedom: 0.999 quantile */
  assert_int_equal(random_below(key, 0, 1), 0);
}

static void permutation_is_one(void **state) {
  (void)state;
  static const uint32_t counts[] = {0, 1, 2, 3, 1000, 50000};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    uint32_t count = counts[i], fixed = 0, *order = calloc(count + 1, sizeof *order);
    unsigned char *seen = calloc(count + 1, 1);
    assert_non_null(order);
    assert_non_null(seen);
    random_permutation(random_key(1, RANDOM_ORDER, 2), count, order);
    for (uint32_t k = 0; k < count; k++) {
      assert_true(order[k] < count);
      assert_int_equal(seen[order[k]]++, 0);
      fixed += order[k] == k;
    }
    if (count >= 1000) assert_true(fixed <= 8);
    free(order);
    free(seen);
  }
}

/* Each of the 6 orders of 3 appears about as often as the others. */
static void permutations_are_even(void **state) {
  (void)state;
  enum { COUNT = 6000 };
  int seen[27] = {0};
  double chi = 0;
  for (uint32_t epoch = 0; epoch < COUNT; epoch++) {
    uint32_t order[3];
    random_permutation(random_key(1, RANDOM_ORDER, epoch), 3, order);
    seen[order[0] * 9 + order[1] * 3 + order[2]]++;
  }
  for (int i = 0; i < 27; i++)
    if (seen[i]) chi += pow(seen[i] - COUNT / 6.0, 2) / (COUNT / 6.0);
  assert_true(chi < 20.5); /* 5 degrees of freedom */
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void bf16_rounds_to_nearest_even(void **state) {
  (void)state;
  static const struct {
    uint32_t from;
    uint16_t to;
  } known[] = {
      {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81},
      {0x3f818000, 0x3f82}, /* ties to even */
      {0x3f817fff, 0x3f81}, {0xbf818000, 0xbf82}, {0x00000000, 0x0000},
      {0x80000000, 0x8000}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80},
      {0x7f7fffff, 0x7f80}, /* the largest float rounds to infinity */
      {0x7f7f0000, 0x7f7f}, {0x00000001, 0x0000}, {0x00018000, 0x0002}, /* subnormal */
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    assert_int_equal(bf16_from_float(float_of(known[i].from)), known[i].to);
  static const uint32_t nans[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0x7fffffff, 0xff800001};
  for (size_t i = 0; i < sizeof nans / sizeof *nans; i++)
    assert_true(isnan(bf16_to_float(bf16_from_float(float_of(nans[i])))));
  for (uint32_t bits = 0; bits < 0x10000; bits++) { /* every bf16 value survives */
    float value = bf16_to_float((uint16_t)bits);
    if (!isnan(value)) assert_int_equal(bf16_from_float(value), bits);
  }
}

/* Not those of the host, and a rank's share follows. */
static void cores_are_those_it_may_run_on(void **state) {
  (void)state;
  cpu_set_t before, one;
  int share = 0;
  size_t first = 0;
  assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
  assert_int_equal(cores_usable(), CPU_COUNT(&before));
  while (!CPU_ISSET(first, &before)) first++;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  assert_int_equal(cores_usable(), 1);
  assert_int_equal(cores_share(&(struct world){.size = 1}, &share), STATUS_OK);
  assert_int_equal(share, 1);
  assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static void tensors(void **state) {
  (void)state;
  char text[64], small[8];
  struct tensor a = tensor_4d(DTYPE_BF16, 128, 32, 32, 64), b = a, none = {0}, large;
  assert_string_equal(tensor_text(&a, text, sizeof text), "128x32x32x64 bf16");
  assert_true(strlen(tensor_text(&a, small, sizeof small)) < sizeof small);
  assert_int_equal(tensor_count(&a), 128 * 32 * 32 * 64);
  assert_int_equal(tensor_bytes(&a), 2 * 128 * 32 * 32 * 64);
  assert_int_equal(tensor_count(&none), 0);
  large = tensor_2d(DTYPE_F32, 1 << 20, 1 << 20);
  assert_true(tensor_bytes(&large) == (size_t)4 << 40);
  assert_true(tensor_equal(&a, &b));
  b.dtype = DTYPE_F32;
  assert_false(tensor_equal(&a, &b));
  b = tensor_2d(DTYPE_BF16, 128, 32);
  assert_false(tensor_equal(&a, &b));
}

static enum status fails(void) {
  return RAISE(STATUS_STORAGE, "disk %s: %d bytes", "full", 7);
}
static enum status passes_up(void) {
  TRY(fails());
  return STATUS_OK;
}
static enum status cleans_up(int *freed) {
  enum status status;
  TRY_OUT(passes_up());
out:
  (*freed)++;
  return status;
}

static void error_record(void **state) {
  (void)state;
  int freed = 0;
  char printed[512] = "";
  error_clear();
  assert_string_equal(error_message(), "");
  assert_int_equal(cleans_up(&freed), STATUS_STORAGE);
  assert_int_equal(freed, 1);
  assert_string_equal(error_message(), "disk full: 7 bytes");
  error_detail("first %d", 1);
  error_detail("second");
  FILE *stream = fmemopen(printed, sizeof printed, "w");
  assert_non_null(stream);
  unsetenv("CONVOY_TRACE");
  error_print(stream);
  fclose(stream);
  assert_string_equal(printed, "error: disk full: 7 bytes\n  first 1\n  second\n");

  setenv("CONVOY_TRACE", "1", 1);
  stream = fmemopen(printed, sizeof printed, "w");
  assert_non_null(stream);
  error_print(stream);
  fclose(stream);
  unsetenv("CONVOY_TRACE");
  assert_non_null(strstr(printed, "fails < passes_up < cleans_up"));
  RAISE(STATUS_INPUT, "again: %s", error_message()); /* an argument may be the record itself */
  assert_string_equal(error_message(), "again: disk full: 7 bytes");
  error_clear();
}

/* However much is recorded, it ends within the record. */
static void error_record_is_bounded(void **state) {
  (void)state;
  char long_text[5000];
  memset(long_text, 'x', sizeof long_text - 1);
  long_text[sizeof long_text - 1] = '\0';
  RAISE(STATUS_INPUT, "%s", long_text);
  assert_true(strlen(error_message()) > 500 && strlen(error_message()) < sizeof long_text);
  for (int i = 0; i < 200; i++) {
    error_detail("%.500s", long_text);
    error_trace(STATUS_INPUT, "a_function_with_a_rather_long_name");
  }
  FILE *nowhere = fopen("/dev/null", "w");
  assert_non_null(nowhere);
  error_print(nowhere);
  fclose(nowhere);
  error_clear();
}

static void symbols(void **state) {
  (void)state;
  int (*absolute)(int) = NULL;
  void *program = dlopen(NULL, RTLD_NOW);
  assert_non_null(program);
  assert_true(symbol_find(program, "abs", &absolute));
  assert_int_equal(absolute(-7), 7);
  assert_false(symbol_find(program, "no_such_function", &absolute));
  assert_true(absolute == NULL);
  dlclose(program);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(philox_known_answers),
      cmocka_unit_test(sequences_differ),
      cmocka_unit_test(uniform_and_normal_moments),
      cmocka_unit_test(below_is_even_and_bounded),
      cmocka_unit_test(permutation_is_one),
      cmocka_unit_test(permutations_are_even),
      cmocka_unit_test(bf16_rounds_to_nearest_even),
      cmocka_unit_test(cores_are_those_it_may_run_on),
      cmocka_unit_test(tensors),
      cmocka_unit_test(error_record),
      cmocka_unit_test(error_record_is_bounded),
      cmocka_unit_test(symbols),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
