/* Own CUDA kernels called directly: no op, no backend, no library in the process, so that checkers that
 * cannot bear libraries' kernels see them. Arrays on the device with guards around what is written, calls
 * whose results must not depend on what was there before, and comparisons. A failed call or comparison fails
 * the cmocka test that is running. Include after cmocka.h. */
#ifndef CONVOY_TESTS_CUDA_FIXTURE_H
#define CONVOY_TESTS_CUDA_FIXTURE_H

#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ops/kernels.h"
#include "tests/left_out.h"
#include "tests/reference/batch.h"
#include "tests/reference/reference.h"

static cudaStream_t stream;
static bool hopper;    /* the device; kernels for its tensor cores must take their shapes there */
static char what[128]; /* is tested; for messages */

static inline void cuda_ok(cudaError_t error, const char *call) {
  if (error != cudaSuccess) fail_msg("%s: %s: %s", what, call, cudaGetErrorString(error));
}

/* Leaves the test out where another device has no such kernel: those of sm_90's tensor cores. */
static inline void need_fit(bool fits, bool sm_90) {
  if (fits) return;
  if (hopper || !sm_90) fail_msg("%s: does not fit", what);
  leave_out("sm_90");
}

/* ---- arrays ---- */

/* GIVEN: read. RESULT: written whole, or added to. SCRATCH: a workspace, of no meaning before and after.
 * COUNTERS: zero before and after. */
enum use { GIVEN, RESULT, SCRATCH, COUNTERS };
enum { ARRAYS = 24, GUARD = 256, GUARD_BYTE = 0xa5, NOTHING = 0xff /* NaN */, ANYTHING = 0x3f };

struct array {
  const char *name;
  enum use use;
  void *data;           /* on the device */
  unsigned char *whole; /* likewise, with guards */
  /* On the host: what lies there with guards before a call, after the first and after the last one. */
  unsigned char *before, *first, *after;
  size_t bytes, guard, all; /* all: bytes and both guards */
};

static struct array arrays[ARRAYS];
static int array_count;

static inline void release_arrays(void) {
  while (array_count > 0) {
    struct array *array = &arrays[--array_count];
    cudaFree(array->whole);
    free(array->before);
    free(array->first);
    free(array->after);
  }
}

static inline unsigned char *host_bytes(size_t bytes) {
  unsigned char *made = malloc(bytes + 1);
  assert_non_null(made);
  return made;
}

/* What is only read has no guards: memcheck then knows where it ends. */
static inline struct array *hold(enum use use, const char *name, size_t bytes) {
  assert_true(array_count < ARRAYS);
  struct array *array = &arrays[array_count++];
  *array = (struct array){.name = name, .use = use, .bytes = bytes, .guard = use == GIVEN ? 0 : GUARD};
  array->all = bytes + 2 * array->guard;
  array->before = host_bytes(array->all);
  array->first = host_bytes(array->all);
  array->after = host_bytes(array->all);
  memset(array->before, GUARD_BYTE, array->all);
  memset(array->before + array->guard, use == COUNTERS ? 0 : NOTHING, bytes);
  cuda_ok(cudaMalloc((void **)&array->whole, array->all), "cudaMalloc");
  array->data = array->whole + array->guard;
  return array;
}

static inline void upload(const struct array *array) {
  cuda_ok(cudaMemcpy(array->whole, array->before, array->all, cudaMemcpyHostToDevice), "upload");
}

static inline const void *given(const char *name, enum dtype dtype, const double *value, int64_t count) {
  struct array *array = hold(GIVEN, name, (size_t)count * dtype_bytes(dtype));
  array_encode(array->before, dtype, value, count);
  upload(array);
  return array->data;
}

/* Lays the batch's images, of `count` elements each, into what a call finds. */
static inline void lay_images(struct array *array, const double *image, int64_t count,
                              const struct batch *batch) {
  const size_t bytes = (size_t)count * dtype_bytes(DTYPE_BF16);
  unsigned char *to = array->before + array->guard;
  for (int i = 0; i < batch->n; i++)
    if (i < DISTINCT)
      array_encode(to + (size_t)i * bytes, DTYPE_BF16, image + batch->image[i] * count, count);
    else
      memcpy(to + (size_t)i * bytes, to + (size_t)batch->image[i] * bytes, bytes);
}

static inline const void *given_images(const char *name, const double *image, int64_t count,
                                       const struct batch *batch) {
  struct array *array = hold(GIVEN, name, (size_t)(batch->n * count) * dtype_bytes(DTYPE_BF16));
  lay_images(array, image, count, batch);
  upload(array);
  return array->data;
}

static inline struct array *result(const char *name, enum dtype dtype, int64_t count) {
  return hold(RESULT, name, (size_t)count * dtype_bytes(dtype));
}

static inline float *scratch(size_t floats) {
  return hold(SCRATCH, "workspace", floats * sizeof(float))->data;
}

static inline uint32_t *counters(void) {
  enum { TICKETS = 4096 }; /* that the kernels may ask for */
  return hold(COUNTERS, "tickets", TICKETS * sizeof(uint32_t))->data;
}

/* A result that the next kernel reads. */
static inline void *now_given(struct array *array) {
  memcpy(array->before, array->after, array->all);
  array->use = GIVEN;
  return array->data;
}

/* ---- calls ---- */

/* Enqueues a kernel on the stream. */
typedef int launch(const void *job);

static inline void before_call(const struct array *array, int call) {
  if (array->use == GIVEN) return;
  if (array->use == COUNTERS && call > 0) return; /* as the call before has left them */
  if (array->use == SCRATCH) memset(array->before + array->guard, call ? ANYTHING : NOTHING, array->bytes);
  upload(array);
}

static inline void after_call(struct array *array, int call) {
  cuda_ok(cudaMemcpy(array->after, array->whole, array->all, cudaMemcpyDeviceToHost), "download");
  const size_t end = array->guard + array->bytes;
  if (memcmp(array->after, array->before, array->guard) != 0)
    fail_msg("%s: %s is written in front of its begin", what, array->name);
  if (memcmp(array->after + end, array->before + end, array->guard) != 0)
    fail_msg("%s: %s is written past its end", what, array->name);
  if (array->use == COUNTERS && memcmp(array->after, array->before, array->all) != 0)
    fail_msg("%s: %s are not zero after the call", what, array->name);
  if (array->use == GIVEN && memcmp(array->after, array->before, array->all) != 0)
    fail_msg("%s: %s is only read, but has changed", what, array->name);
  if (array->use != RESULT) return;
  if (call > 0 && memcmp(array->after, array->first, array->all) != 0)
    fail_msg("%s: %s differs from one call to the next", what, array->name);
  memcpy(array->first, array->after, array->all);
}

/* Results are NaN before, or what is added to; the workspace holds NaN before the first call and numbers
 * before the second, which must give the same bits. */
static inline void call_twice(launch *kernel, const void *job) {
  for (int call = 0; call < 2; call++) {
    for (int i = 0; i < array_count; i++) before_call(&arrays[i], call);
    cuda_ok(cudaDeviceSynchronize(), "upload"); /* the stream does not wait for the default one */
    cuda_ok((cudaError_t)kernel(job), "kernel");
    cuda_ok(cudaGetLastError(), "launch");
    cuda_ok(cudaStreamSynchronize(stream), "kernel");
    for (int i = 0; i < array_count; i++) after_call(&arrays[i], call);
  }
}

/* ---- comparisons ---- */

/* Factors of the products are exact in doubles, too, so what a result may be off by is its sum's error and
 * its rounding. Each addition in fp32 loses at most 2^-24 of a partial sum (on tensor cores, which cut off,
 * 2^-23), no partial sum is larger than the sum of the products' absolute values, and kernels add at most
 * some hundred times in a row what is, on average, far below it. bf16 keeps 8 bits. A product too many or too
 * few counts 1 / sqrt(products) of a result's size; of the largest sums, a filter's gradient's, an image
 * does.
 */
static const double sum_error = 0x1p-16 /* of the sum of absolute values */, rounding = 0x1.01p-8;

/* What a result of bf16 may be off by: a sum and its products' absolute values. old: what it is added to,
 * after it has been rounded itself; 0: nothing. */
static inline double limit_bf16(double sum, double absolute, double old) {
  return rounding * (fabs(sum + old) + (old != 0 ? fabs(sum) : 0)) + sum_error * absolute;
}

static inline double *absolute(const double *value, int64_t count) {
  double *made = reference_array(count);
  for (int64_t i = 0; i < count; i++) made[i] = fabs(value[i]);
  return made;
}

/* A result's elements from the one number `first` on; freed by the caller. */
static inline double *found_from(const struct array *array, enum dtype dtype, int64_t first, int64_t count) {
  double *made = reference_array(count);
  array_decode(made, dtype, array->after + array->guard + (size_t)first * dtype_bytes(dtype), count);
  return made;
}

static inline double *found(const struct array *array, enum dtype dtype, int64_t count) {
  assert_int_equal(array->bytes, (size_t)count * dtype_bytes(dtype));
  return found_from(array, dtype, 0, count);
}

/* Each is as far off as its limit says, at most. place: for the message. */
static inline void assert_within(const char *name, int place, const double *value, const double *expected,
                                 const double *limit, int64_t count) {
  int64_t off = 0, worst = 0;
  double most = 0;
  for (int64_t i = 0; i < count; i++) {
    const double distance = fabs(value[i] - expected[i]);
    if (distance <= limit[i]) continue;
    const double ratio = isnan(distance) ? INFINITY : distance / limit[i];
    if (!(ratio <= most)) most = ratio, worst = i;
    off++;
  }
  if (off > 0)
    fail_msg("%s: %s, image %d: %lld of %lld elements are off; number %lld is %g, expected %g within %.2g",
             what, name, place, (long long)off, (long long)count, (long long)worst, value[worst],
             expected[worst], limit[worst]);
}

/* Each place of the batch has its own of the expected images (DISTINCT, count). */
static inline void assert_images(const struct array *array, const double *expected, const double *limit,
                                 int64_t count, const struct batch *batch) {
  const size_t bytes = (size_t)count * dtype_bytes(DTYPE_BF16);
  const unsigned char *image = array->after + array->guard;
  assert_int_equal(array->bytes, (size_t)batch->n * bytes);
  for (int i = 0; i < batch->n; i++) {
    const int from = batch->image[i]; /* that place has it, too, and comes first */
    if (i > from && memcmp(image + (size_t)i * bytes, image + (size_t)from * bytes, bytes) == 0) continue;
    double *value = found_from(array, DTYPE_BF16, i * count, count);
    assert_within(array->name, i, value, expected + from * count, limit + from * count, count);
    free(value);
  }
}

/* ---- suites ---- */

/* Runs the tests, or those that the argument names (* and ?), on the first device; the process's status. */
static inline int suite_run(int argc, char **argv, const struct CMUnitTest *tests, size_t count) {
  enum { SKIPPED = 77 };
  struct cudaDeviceProp device;
  int devices = 0;
  if (argc > 2) {
    fprintf(stderr, "usage: %s [PATTERN]\n", argv[0]);
    return 2;
  }
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    printf("skipped: no CUDA device is visible\n");
    return SKIPPED;
  }
  cudaError_t error = cudaSetDevice(0);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&device, 0);
  if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) {
    fprintf(stderr, "error: the device does not open: %s\n", cudaGetErrorString(error));
    return 1;
  }
  hopper = device.major == 9 && device.minor == 0;
  printf("%s, sm_%d%d\n", device.name, device.major, device.minor);
  const int failed = _cmocka_run_group_tests("kernels", tests, count, NULL, NULL);
  release_arrays();
  cudaStreamDestroy(stream);
  return failed ? 1 : suite_status(failed);
}

#endif
