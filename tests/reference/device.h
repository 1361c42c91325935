/* Arrays on the device for the suites that run once a backend; a failed call fails the cmocka test that is
 * running. Include after cmocka.h. */
#ifndef CONVOY_TESTS_REFERENCE_DEVICE_H
#define CONVOY_TESTS_REFERENCE_DEVICE_H

#include <stdlib.h>

#include "model/backend/backend.h"
#include "tests/reference/arrays.h"
#include "tests/reference/reference.h"

static const struct backend_table *table;
static struct backend *backend; /* of the group that runs */

static inline void ok(enum status status) {
  if (status != STATUS_OK) fail_msg("status %d: %s", (int)status, error_message());
}

static inline void *device_array(size_t bytes) {
  void *device = NULL;
  ok(table->alloc(backend, bytes, &device));
  return device;
}

static inline void *device_copy(const void *host, size_t bytes) {
  void *device = device_array(bytes);
  ok(table->upload(backend, device, host, bytes));
  return device;
}

static inline float *device_floats(const double *value, int64_t count) {
  float *host = calloc((size_t)count, sizeof *host);
  assert_non_null(host);
  array_encode(host, DTYPE_F32, value, count);
  float *device = device_copy(host, (size_t)count * sizeof *host);
  free(host);
  return device;
}

static inline double *read_array(const void *device, enum dtype dtype, int64_t count) {
  unsigned char *bytes = malloc((size_t)count * dtype_bytes(dtype));
  double *value = reference_array(count);
  assert_non_null(bytes);
  ok(table->download(backend, bytes, device, (size_t)count * dtype_bytes(dtype)));
  array_decode(value, dtype, bytes, count);
  free(bytes);
  return value;
}

static inline void assert_close(const char *what, const double *found, const double *expected, int64_t count,
                                double limit) {
  struct deviation deviation = array_deviation(found, expected, count);
  if (!(deviation.norm <= limit && deviation.largest <= 5 * limit))
    fail_msg("%s is off by %.2g (largest %.2g), allowed %.2g", what, deviation.norm, deviation.largest,
             limit);
}

/* Opens the backend and runs the tests on it; returns how many failed. A backend may refuse bf16. */
static inline int suite_run_with(const struct world *world, const struct backend_options *options,
                                 const struct CMUnitTest *tests, size_t count) {
  const char *precision = precision_name(options->precision);
  enum status status = table->open(world, options, &backend);
  if (status == STATUS_INPUT && options->precision == PRECISION_BF16) {
    printf("%s: %s refused: %s\n", table->name, precision, error_message());
    return 0;
  }
  if (status != STATUS_OK) {
    error_print(stderr);
    return 1;
  }
  printf("%s, %s\n", backend->description, precision);
  int failed = _cmocka_run_group_tests(precision, tests, count, NULL, NULL);
  table->close(backend);
  return failed;
}

static inline int suite_run(const struct world *world, enum precision precision,
                            const struct CMUnitTest *tests, size_t count) {
  const struct backend_options options = {.precision = precision, .init_timeout_seconds = 60};
  return suite_run_with(world, &options, tests, count);
}

#endif
