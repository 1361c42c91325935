/* A batch that repeats a few images, on the device, and what its results are held to. A failed call or
 * comparison fails the cmocka test that is running. Include after cmocka.h. */
#ifndef CONVOY_TESTS_REFERENCE_COPIES_H
#define CONVOY_TESTS_REFERENCE_COPIES_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/reference/batch.h"
#include "tests/reference/device.h"

/* 1 / samples in the global batch, as if other ranks had some too. */
static inline double batch_scale(const struct batch *batch) {
  return (double)(1.0f / (float)(2 * batch->n + 1));
}

/* Each image's sums over its rows of a, or of a b: (DISTINCT, rows, channels) to (DISTINCT, channels). */
static inline void channel_parts(const double *a, const double *b, int64_t rows, int64_t channels,
                                 double *part) {
  for (int i = 0; i < DISTINCT; i++, part += channels) {
    memset(part, 0, (size_t)channels * sizeof *part);
    for (int64_t row = 0; row < rows; row++, a += channels, b += b ? channels : 0)
      for (int64_t c = 0; c < channels; c++) part[c] += b ? a[c] * b[c] : a[c];
  }
}

/* From these, channel c's sum over the batch. */
static inline double batch_sum(const struct batch *batch, const double *part, int64_t channels, int64_t c) {
  double sum = 0;
  for (int i = 0; i < DISTINCT; i++) sum += batch->times[i] * part[i * channels + c];
  return sum;
}

/* norm, largest: of an image's deviation. sum: of a sum's norm. count: by how much of one image's part a sum
 * may be off; rounded: by how much more for each time that the image is there, of a sum over rounded values.
 */
struct tolerance {
  double norm, largest, sum, count, rounded;
};
static enum dtype dtype; /* of images, in the group that runs */
static struct tolerance limit;

enum { HELD = 80, NOTHING = 0xff /* bytes that are NaN */ };

/* Zeroed memory on the device (hold) and doubles on the host (array). release_to gives back what was taken
 * since `held` was `mark`. */
static void *held_memory[HELD];
static bool held_on_host[HELD];
static int held;

static inline void *hold(size_t bytes) {
  assert_true(held < HELD);
  held_on_host[held] = false;
  held_memory[held] = device_array(bytes);
  return held_memory[held++];
}

static inline double *array(int64_t count) {
  assert_true(held < HELD);
  held_on_host[held] = true;
  held_memory[held] = reference_array(count);
  return held_memory[held++];
}

static inline void release_to(int mark) {
  while (held > mark)
    if (held_on_host[--held])
      free(held_memory[held]);
    else
      table->release(backend, held_memory[held]);
}

/* A batch's bytes on the host: one memory for all, since fresh memory costs more than a copy. */
static inline unsigned char *staging(size_t bytes) {
  static unsigned char *memory;
  static size_t capacity;
  if (bytes > capacity) {
    free(memory);
    memory = malloc(bytes);
    assert_non_null(memory);
    capacity = bytes;
  }
  return memory;
}

static inline void fill_nothing(void *device, size_t bytes) {
  if (bytes) ok(table->upload(backend, device, memset(staging(bytes), NOTHING, bytes), bytes));
}

/* The values in a type. */
static inline void *hold_copy(const double *value, enum dtype type, int64_t count) {
  size_t bytes = (size_t)count * dtype_bytes(type);
  void *made = hold(bytes);
  array_encode(staging(bytes), type, value, count);
  ok(table->upload(backend, made, staging(bytes), bytes));
  return made;
}

static inline void read_into(double *value, const void *device, enum dtype type, int64_t count) {
  size_t bytes = (size_t)count * dtype_bytes(type);
  ok(table->download(backend, staging(bytes), device, bytes));
  array_decode(value, type, staging(bytes), count);
}

/* Room for a batch of images of `count` elements; behind it stands an image of nothing. */
static inline void *room(int64_t count, const struct batch *batch) {
  size_t bytes = (size_t)count * dtype_bytes(dtype);
  unsigned char *made = hold((size_t)(batch->n + 1) * bytes);
  fill_nothing(made + (size_t)batch->n * bytes, bytes);
  return made;
}

/* The same with the images (DISTINCT, count) in it. */
static inline void *copies(const double *image, int64_t count, const struct batch *batch) {
  size_t bytes = (size_t)count * dtype_bytes(dtype);
  void *made = room(count, batch);
  unsigned char *all = staging((size_t)(batch->n + DISTINCT) * bytes), *one = all + (size_t)batch->n * bytes;
  for (int i = 0; i < DISTINCT; i++)
    if (batch->times[i]) array_encode(one + (size_t)i * bytes, dtype, image + i * count, count);
  for (int i = 0; i < batch->n; i++)
    memcpy(all + (size_t)i * bytes, one + (size_t)batch->image[i] * bytes, bytes);
  ok(table->upload(backend, made, all, (size_t)batch->n * bytes));
  return made;
}

/* Each place has its own of the expected images (DISTINCT, count), and nothing was written behind them.
 * found, if not NULL: the images as found. */
static inline void assert_images(const char *name, const void *result, const double *expected, int64_t count,
                                 const struct batch *batch, double *found) {
  size_t bytes = (size_t)count * dtype_bytes(dtype), end = (size_t)batch->n * bytes;
  unsigned char *all = staging(end + bytes);
  double *value = reference_array(count);
  ok(table->download(backend, all, result, end + bytes));
  for (int i = 0; i < batch->n; i++) {
    int image = batch->image[i];
    if (i >= DISTINCT && memcmp(all + (size_t)i * bytes, all + (size_t)image * bytes, bytes) == 0) continue;
    array_decode(value, dtype, all + (size_t)i * bytes, count);
    struct deviation off = array_deviation(value, expected + image * count, count);
    if (!(off.norm <= limit.norm && off.largest <= limit.largest))
      fail_msg("%s: %s at place %d, image %d, is off by %.2g (largest %.2g), allowed %.2g (%.2g)",
               batch->what, name, i, image, off.norm, off.largest, limit.norm, limit.largest);
    if (found && i < DISTINCT) memcpy(found + i * count, value, (size_t)count * sizeof *value);
  }
  for (size_t i = end; i < end + bytes; i++)
    if (all[i] != NOTHING) fail_msg("%s: %s is written past its end", batch->what, name);
  free(value);
}

/* found (rows, count) is the sum over the batch of the images' parts (DISTINCT, rows, count): as a whole, and
 * in no row is an image counted too often or too seldom, by what there is of it in the difference. slack: as
 * limit.rounded. */
static inline void assert_sum(const char *name, const double *found, const double *part, int64_t rows,
                              int64_t count, const struct batch *batch, double slack) {
  double error = 0, norm = 0;
  for (int64_t row = 0; row < rows; row++) {
    double product[DISTINCT] = {0}, square[DISTINCT] = {0};
    for (int64_t at = row * count; at < (row + 1) * count; at++) {
      double sum = batch_sum(batch, part, rows * count, at);
      for (int i = 0; i < DISTINCT; i++) {
        product[i] += part[i * rows * count + at] * (found[at] - sum);
        square[i] += part[i * rows * count + at] * part[i * rows * count + at];
      }
      error += (found[at] - sum) * (found[at] - sum);
      norm += sum * sum;
    }
    for (int i = 0; i < DISTINCT; i++)
      if (!(fabs(product[i]) <= (limit.count + slack * batch->times[i]) * square[i]))
        fail_msg("%s: %s, row %lld, counts image %d about %.2f times, expected %d", batch->what, name,
                 (long long)row, i, batch->times[i] + product[i] / square[i], batch->times[i]);
  }
  if (!(sqrt(error) <= limit.sum * sqrt(norm)))
    fail_msg("%s: %s is off by %.2g, allowed %.2g", batch->what, name, sqrt(error / norm), limit.sum);
}

/* The same of an fp32 array on the device. */
static inline void assert_device_sum(const char *name, const float *result, const double *part, int64_t rows,
                                     int64_t count, const struct batch *batch, double slack) {
  double *found = read_array(result, DTYPE_F32, rows * count);
  assert_sum(name, found, part, rows, count, batch, slack);
  free(found);
}

#endif
