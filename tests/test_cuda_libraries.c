/* Libraries of CUDA that the program loads by itself. No GPU is needed: nothing is computed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/backend/backend.h"
#include "model/ops/blas_library_cuda.h"

static void test_blas(void **state) {
  struct blas_library blas = {.library = NULL};
  (void)state;
  if (blas_library_load(&blas) != STATUS_OK) fail_msg("%s", error_message());
  const void *library = blas.library;
#define FOUND(name, theirs) assert_non_null(blas.name);
  BLAS_FUNCTIONS(FOUND)
#undef FOUND
  assert_int_equal(blas.version() / 10000, CUBLAS_VER_MAJOR);
  assert_int_equal(blas_raise(&blas, "here", "call", CUBLAS_STATUS_NOT_SUPPORTED), STATUS_INTERNAL);
  assert_non_null(strstr(error_message(), "cuBLASLt: "));
  assert_non_null(strstr(error_message(), "not supported at call"));
  error_clear();
  assert_int_equal(blas_library_load(&blas), STATUS_OK); /* once more: nothing */
  assert_ptr_equal(blas.library, library);
  blas_library_close(&blas); /* it was never open */
}

/* Where there is no GPU the threads end at once; what they do is never an error. */
static void test_warming(void **state) {
  struct backend_warming warming;
  const struct world world = {.local_rank = 0, .size = 1};
  (void)state;
  for (int i = 0; i < 2; i++) {
    backend_warm_begin("cuda", &world, &warming);
    assert_true(warming.device.runs && warming.libraries.runs);
    backend_warm_end(&warming);
    assert_false(warming.device.runs || warming.libraries.runs);
    backend_warm_end(&warming); /* ended: nothing */
  }
  backend_warm_begin("cpu", &world, &warming);
  assert_false(warming.device.runs || warming.libraries.runs);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_blas), cmocka_unit_test(test_warming)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
