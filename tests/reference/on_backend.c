/* The suites' choice of a backend; see on_backend.h. */
#include "tests/reference/on_backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

int suite_open(int argc, char **argv, const struct backend_table **table, struct world *world) {
  const struct backend_table *visible;
  if (argc < 2 || argc > 3 || (strcmp(argv[1], "cpu") != 0 && strcmp(argv[1], "cuda") != 0)) {
    fprintf(stderr, "usage: %s cpu|cuda [PATTERN]\n", argv[0]);
    return STATUS_INPUT;
  }
  if (argc > 2) cmocka_set_test_filter(argv[2]);
  if (backend_find(argv[1], table) != STATUS_OK) {
    printf("skipped: %s\n", error_message());
    return SUITE_SKIPPED;
  }
  if (strcmp(argv[1], "cuda") == 0 && (backend_find("auto", &visible) != STATUS_OK || visible != *table)) {
    printf("skipped: no CUDA device is visible\n");
    return SUITE_SKIPPED;
  }
  if (world_open(world) == STATUS_OK) return 0;
  error_print(stderr);
  return STATUS_INTERNAL;
}
