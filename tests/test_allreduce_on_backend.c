/* Sums over the ranks in fp32 and, on their way, in bf16, held to sums in double. Run by mpirun it is the
 * same suite on several ranks (program/test_allreduce.sh). The argument names the backend; exit 77 where it
 * has no device here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "tests/reference/arrays.h"
#include "tests/reference/device.h"
#include "tests/reference/on_backend.h"
#include "tests/reference/reference.h"

static struct world world;

enum { MOST = 70001 };

/* Number i of a rank, of many sizes, also negative. */
static float number(int rank, int64_t i) {
  uint32_t bits = (uint32_t)(i + 1) * 2654435761u + (uint32_t)rank * 40503u;
  bits ^= bits >> 15;
  bits *= 2246822519u;
  bits ^= bits >> 13;
  return ((float)(bits & 0xffffff) / 8388608.0f - 1.0f) * (float)(1 << (bits >> 28));
}

/* To 8 significant bits, ties to even, by its definition; no number here is subnormal. */
static double bf16(double value) {
  int exponent;
  double fraction = frexp(value, &exponent);
  return ldexp(nearbyint(ldexp(fraction, 8)), exponent - 8);
}

static void check(bool low, int64_t count, int64_t offset) {
  float *host = calloc((size_t)(count + offset + 1), sizeof *host);
  assert_non_null(host);
  for (int64_t i = 0; i < count; i++) host[offset + i] = number(world.rank, i);
  host[offset + count] = 77;
  float *device = device_copy(host, (size_t)(count + offset + 1) * sizeof *host);
  uint16_t *room = device_array((size_t)(count + offset + 1) * sizeof *room);
  ok(low ? table->allreduce_low(backend, device + offset, room + offset, count)
         : table->allreduce(backend, device + offset, count));
  ok(table->comm_join(backend));
  ok(table->download(backend, host, device, (size_t)(count + offset + 1) * sizeof *host));
  for (int64_t i = 0; i < count; i++) {
    double sum = 0, size = 0, found = (double)host[offset + i];
    for (int r = 0; r < world.size; r++) {
      double part = (double)number(r, i);
      if (low && world.size > 1) part = bf16(part);
      sum += part;
      size += fabs(part);
    }
    /* A sum of two is exact but for its last rounding. With more, rounding may also come between. */
    double limit = low && world.size > 1 ? 0x1p-8 * size * (world.size > 2 ? world.size - 1 : 1)
                                         : 0x1p-23 * size * world.size;
    if (world.size == 1) limit = 0;
    if (fabs(found - sum) > limit)
      fail_msg("sum %lld of %lld is %.9g, expected %.9g", (long long)i, (long long)count, found, sum);
    if (low && world.size > 1) assert_true(found == bf16(found));
    if (low && world.size == 2) assert_true(found == bf16(sum));
  }
  assert_true(host[offset + count] == 77);
  for (int64_t i = 0; i < offset; i++) assert_true(host[i] == 0);
  table->release(backend, device);
  table->release(backend, room);
  free(host);
}

static void sums_are_the_ranks_sums(void **state) {
  (void)state;
  static const int64_t count[] = {0, 1, 7, 64, 1000, MOST};
  for (size_t i = 0; i < sizeof count / sizeof *count; i++)
    for (int64_t offset = 0; offset <= 64; offset += 64) check(false, count[i], offset);
}

static void sums_in_bf16_lose_what_bf16_loses(void **state) {
  (void)state;
  static const int64_t count[] = {0, 1, 7, 64, 1000, MOST};
  for (size_t i = 0; i < sizeof count / sizeof *count; i++)
    for (int64_t offset = 0; offset <= 64; offset += 64) check(true, count[i], offset);
}

/* What is not a number stays so, whichever rank has it, and all ranks hold the same bits. */
static void all_ranks_hold_the_same(void **state) {
  (void)state;
  enum { COUNT = 333 };
  float host[COUNT], *all = calloc((size_t)world.size, sizeof host);
  uint16_t *room = device_array(COUNT * sizeof *room);
  assert_non_null(all);
  for (int low = 0; low < 2; low++) {
    for (int i = 0; i < COUNT; i++) host[i] = number(world.rank, i);
    if (world.rank == world.size - 1) host[5] = NAN;
    if (world.rank == 0) host[6] = -INFINITY;
    float *device = device_copy(host, sizeof host);
    ok(low ? table->allreduce_low(backend, device, room, COUNT) : table->allreduce(backend, device, COUNT));
    ok(table->comm_join(backend));
    ok(table->download(backend, host, device, sizeof host));
    assert_true(isnan(host[5]));
    assert_true(isinf(host[6]) && host[6] < 0);
    ok(world_allgather(&world, host, sizeof host, all));
    for (int r = 0; r < world.size; r++) assert_memory_equal(all + (size_t)r * COUNT, host, sizeof host);
    table->release(backend, device);
  }
  table->release(backend, room);
  free(all);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sums_are_the_ranks_sums),
      cmocka_unit_test(sums_in_bf16_lose_what_bf16_loses),
      cmocka_unit_test(all_ranks_hold_the_same),
  };
  int code = suite_open(argc, argv, &table, &world);
  if (code != 0) return code;
  int failed = suite_run(&world, PRECISION_FP32, tests, sizeof tests / sizeof *tests);
  if (failed) world_abort(&world, 1); /* the others may wait for this rank */
  world_close(&world);
  return failed;
}
