/* What a backend does besides ops, held to the reference: memory, gather, the bf16 copy. The argument names
 * the backend; exit 77 where it has no device here. */
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

static void memory_round_trip(void **state) {
  (void)state;
  static const size_t sizes[] = {1, 3, 255, 256, 257, 4096, 1000003};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    size_t bytes = sizes[i];
    unsigned char *sent = malloc(bytes), *kept = malloc(bytes), *got = malloc(bytes);
    assert_true(sent && kept && got);
    unsigned char *device = device_array(bytes);
    assert_int_equal((uintptr_t)device % 256, 0);
    ok(table->download(backend, got, device, bytes));
    for (size_t k = 0; k < bytes; k++) assert_int_equal(got[k], 0);
    for (size_t k = 0; k < bytes; k++) sent[k] = kept[k] = (unsigned char)(k * 31 + k / 256 + 1);
    ok(table->upload(backend, device, sent, bytes));
    memset(sent, 0xee, bytes); /* the source may be reused at once */
    ok(table->download(backend, got, device, bytes));
    assert_memory_equal(got, kept, bytes);
    ok(table->zero(backend, device + bytes / 2, bytes - bytes / 2));
    ok(table->download(backend, got, device, bytes));
    assert_memory_equal(got, kept, bytes / 2);
    for (size_t k = bytes / 2; k < bytes; k++) assert_int_equal(got[k], 0);
    table->release(backend, device);
    free(sent);
    free(kept);
    free(got);
  }
  table->release(backend, NULL);
  table->release_host(backend, NULL);
  ok(table->sync(backend));
}

static void too_much_memory_is_refused(void **state) {
  (void)state;
  static const size_t sizes[] = {(size_t)1 << 50, (size_t)1 << 60, SIZE_MAX, SIZE_MAX - 100};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    void *memory = &memory;
    error_clear();
    assert_int_equal(table->alloc(backend, sizes[i], &memory), STATUS_INPUT);
    assert_true(strlen(error_message()) > 0);
    assert_int_equal(table->alloc_host(backend, sizes[i], &memory), STATUS_INPUT);
    error_clear();
  }
  memory_round_trip(NULL); /* and the backend still works */
}

static void host_memory_and_resident_data(void **state) {
  (void)state;
  uint8_t data[1001], got[1001];
  const void *view;
  unsigned char *host;
  for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 7 + 3);
  ok(table->resident(backend, data, sizeof data, &view));
  ok(table->download(backend, got, view, sizeof got));
  assert_memory_equal(got, data, sizeof data);
  table->release_resident(backend, view);
  void *memory;
  ok(table->alloc_host(backend, sizeof data, &memory));
  host = memory;
  for (size_t i = 0; i < sizeof data; i++) {
    assert_int_equal(host[i], 0);
    host[i] = data[i];
  }
  assert_memory_equal(host, data, sizeof data);
  table->release_host(backend, memory);
}

/* Images of 7 x 5 pixels, all shifts, flips and squares, taken from the middle of the list; one draw per
 * channel count. */
static void gather_is_the_reference(void **state) {
  enum dtype compute = *(const enum dtype *)*state;
  enum { IMAGES = 11, H = 7, W = 5, LIST = 60, FIRST = 3, COUNT = 53 };
  for (int channels = 1; channels <= 4; channels++) {
    int64_t pixels = H * W * channels, total = COUNT * pixels;
    uint8_t images[IMAGES * H * W * 4];
    int32_t labels[IMAGES], expected_labels[COUNT], found_labels[COUNT];
    struct sample list[LIST];
    double drawn[IMAGES * H * W * 4];
    array_below(drawn, IMAGES * pixels, 256, (uint32_t)channels);
    array_encode(images, DTYPE_U8, drawn, IMAGES * pixels);
    for (int i = 0; i < IMAGES; i++) labels[i] = 100 - 7 * i;
    for (int i = 0; i < LIST; i++)
      list[i] = (struct sample){.index = (uint32_t)(i * 5 % IMAGES),
                                .shift_y = (int8_t)(i % 9 - 4),
                                .shift_x = (int8_t)(i / 2 % 9 - 4),
                                .flip = (uint8_t)(i / 3 % 2)};
    list[FIRST + 1].shift_y = H; /* wholly outside */
    for (int i = FIRST + 2; i < LIST; i++) {
      if (i % 4 == 1) list[i].reflect = 1;
      if (i % 3 == 1) list[i].cut = (uint16_t)(i % 7);
      list[i].cut_y = (int16_t)(i % 10 - 2); /* at and over all borders */
      list[i].cut_x = (int16_t)(i / 3 % 9 - 3);
    }
    const void *device_images, *device_labels;
    ok(table->resident(backend, images, (size_t)(IMAGES * pixels), &device_images));
    ok(table->resident(backend, labels, sizeof labels, &device_labels));
    struct gather_desc desc = {.images = device_images,
                               .labels = device_labels,
                               .count = COUNT,
                               .height = H,
                               .width = W,
                               .channels = channels,
                               .mean = {0.5f, 0.4f, 0.45f, 0.1f},
                               .std = {0.25f, 0.5f, 0.2f, 1}};
    struct step_control control = {.row.first = FIRST};
    struct step_control *device_control = device_copy(&control, sizeof control);
    struct sample *device_list = device_copy(list, sizeof list);
    double *poison = reference_array(total + 1), *expected = reference_array(total + 1);
    for (int64_t i = 0; i <= total; i++) poison[i] = NAN;
    unsigned char bytes[(COUNT * H * W * 4 + 1) * 4];
    array_encode(bytes, compute, poison, total + 1);
    void *batch = device_copy(bytes, (size_t)(total + 1) * dtype_bytes(compute));
    int32_t *device_found = device_array(sizeof found_labels);
    ok(table->gather(backend, &desc, device_control, device_list, batch, device_found));
    double *found = read_array(batch, compute, total + 1);
    ok(table->download(backend, found_labels, device_found, sizeof found_labels));
    desc.images = images;
    desc.labels = labels;
    reference_gather(&desc, FIRST, list, expected, expected_labels);
    assert_close("batch", found, expected, total, compute == DTYPE_BF16 ? 4e-3 : 1e-6);
    assert_memory_equal(found_labels, expected_labels, sizeof found_labels);
    assert_true(isnan(found[total])); /* nothing past the end */
    table->release_resident(backend, device_images);
    table->release_resident(backend, device_labels);
    table->release(backend, device_control);
    table->release(backend, device_list);
    table->release(backend, batch);
    table->release(backend, device_found);
    free(poison);
    free(expected);
    free(found);
  }
}

static void convert_rounds(void **state) {
  (void)state;
  static const int64_t counts[] = {1, 7, 1003, 70001};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    int64_t count = counts[i];
    double *value = reference_array(count + 1);
    array_normal(value, count + 1, DTYPE_F32, 0, 3, 4);
    float *params = device_floats(value, count + 1);
    uint16_t *low = device_array((size_t)(count + 1) * sizeof *low);
    ok(table->convert(backend, params, low, count));
    double *found = read_array(low, DTYPE_BF16, count + 1);
    for (int64_t k = 0; k < count; k++) assert_true(found[k] == array_round(DTYPE_BF16, value[k]));
    assert_true(found[count] == 0);
    table->release(backend, params);
    table->release(backend, low);
    free(found);
    free(value);
  }
}

static void add_is_a_float_sum(void **state) {
  (void)state;
  static const int64_t counts[] = {1, 7, 1003, 70001};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    int64_t count = counts[i];
    double *left = reference_array(count + 1), *right = reference_array(count + 1);
    array_normal(left, count + 1, DTYPE_F32, 0, 1, 5);
    array_normal(right, count + 1, DTYPE_F32, 0, 1, 6);
    float *data = device_floats(left, count + 1), *other = device_floats(right, count + 1);
    ok(table->add(backend, data, other, count));
    double *sum = read_array(data, DTYPE_F32, count + 1), *kept = read_array(other, DTYPE_F32, count + 1);
    for (int64_t k = 0; k < count; k++) assert_true(sum[k] == (double)(float)(left[k] + right[k]));
    assert_true(sum[count] == left[count]); /* nothing past the end */
    for (int64_t k = 0; k <= count; k++) assert_true(kept[k] == right[k]);
    table->release(backend, data);
    table->release(backend, other);
    free(left);
    free(right);
    free(sum);
    free(kept);
  }
}

static int run_group(const struct world *world, enum precision precision) {
  static const enum dtype fp32 = DTYPE_F32, bf16 = DTYPE_BF16;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_round_trip),
      cmocka_unit_test(too_much_memory_is_refused),
      cmocka_unit_test(host_memory_and_resident_data),
      cmocka_unit_test(convert_rounds),
      cmocka_unit_test(add_is_a_float_sum),
      {.name = "gather_is_the_reference",
       .test_func = gather_is_the_reference,
       .initial_state = (void *)(uintptr_t)(precision == PRECISION_BF16 ? &bf16 : &fp32)},
  };
  return suite_run(world, precision, tests, sizeof tests / sizeof *tests);
}

int main(int argc, char **argv) {
  struct world world;
  int code = suite_open(argc, argv, &table, &world);
  if (code) return code;
  int failed = run_group(&world, PRECISION_FP32) + run_group(&world, PRECISION_BF16);
  world_close(&world);
  return failed ? 1 : 0;
}
