/* Shards: written and read back, in any sharding and layout. */
#include "tests/fixtures/shard_files.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/dataset_plan.h"
#include "data/shard_set.h"
#include "data/shard_tally.h"

static void written_is_read(void **state) {
  (void)state;
  fixture_clear();
  assert_int_equal(fixture_set(fixture_folder, 5, false), STATUS_OK);
  struct dataset *dataset = fixture_open(DATASET_TRAIN | DATASET_TEST);
  assert_int_equal(dataset->height, HEIGHT);
  assert_int_equal(dataset->width, WIDTH);
  assert_int_equal(dataset->channels, CHANNELS);
  assert_int_equal(dataset->classes, CLASSES);
  assert_true(dataset->classes_given);
  assert_string_equal(dataset->class_name[9], "j\xc3\xa4");
  assert_int_equal(dataset->train.shard_count, 5);
  assert_string_equal(dataset->note, "");
  fixture_rows(&dataset->train, SPLIT_TRAIN, TRAIN);
  fixture_rows(&dataset->test, SPLIT_TEST, TEST);
  for (int c = 0; c < CHANNELS; c++) {
    double sum = 0, square = 0, count = (double)TRAIN * HEIGHT * WIDTH;
    for (int i = c; i < TRAIN * ROW; i += CHANNELS) sum += dataset->train.images[i] / 255.0;
    for (int i = c; i < TRAIN * ROW; i += CHANNELS)
      square += pow(dataset->train.images[i] / 255.0 - sum / count, 2);
    assert_true(fabs(dataset->mean[c] - sum / count) < 1e-12);
    assert_true(fabs(dataset->std[c] - sqrt(square / count)) < 1e-12);
  }
  /* The shards tell the same numbers. */
  assert_int_equal(dataset->moments_stored, 6);
  struct shard *shard = NULL;
  assert_int_equal(shard_open(fixture_path("test-00000-of-00001.h5"), &shard), STATUS_OK);
  for (int c = 0; c < CHANNELS; c++) {
    assert_true(shard_describe(shard)->mean[c] == dataset->mean[c]);
    assert_true(shard_describe(shard)->std[c] == dataset->std[c] && dataset->std[c] > 0.2);
  }
  shard_close(shard);
  dataset_close(dataset);
  double zero[4] = {0};
  assert_int_equal(unlink(fixture_path("train-00003-of-00005.h5")), 0);
  fixture_plain("train-00003-of-00005.h5", SPLIT_TRAIN, &fixture_good);
  assert_int_equal(shard_write_moments(fixture_path("train-00003-of-00005.h5"), CHANNELS, zero, zero),
                   STATUS_OK);
  dataset = fixture_open(DATASET_TRAIN);
  assert_non_null(strstr(dataset->note, "6 of 6 shards store another mean or std"));
  dataset_close(dataset);
}

static void any_sharding_and_layout_is_the_same_set(void **state) {
  (void)state;
  fixture_clear();
  assert_int_equal(fixture_set(fixture_folder, 1, false), STATUS_OK);
  struct dataset *dataset = fixture_open(DATASET_TRAIN);
  uint64_t digest = dataset->digest;
  dataset_close(dataset);
  for (int shards = 2; shards <= 60; shards += 29) { /* more shards than images: fewer are written */
    assert_int_equal(fixture_set(fixture_folder, shards, false), STATUS_INPUT);
    error_clear();
    assert_int_equal(fixture_set(fixture_folder, shards, true), STATUS_OK);
    dataset = fixture_open(DATASET_TRAIN);
    assert_int_equal(dataset->train.shard_count, shards < TRAIN ? shards : TRAIN);
    assert_true(dataset->digest == digest);
    dataset_close(dataset);
  }
  for (int variant = 0; variant < 8; variant++) {
    fixture_clear();
    struct fixture_plain train = fixture_good, test = fixture_good;
    train.planar = test.planar = variant & 1;
    train.chunked = variant & 2;
    if (variant & 4) train.label_type = H5T_STD_I64BE;
    test.count = test.label_count = TEST;
    fixture_plain("train-0.h5", SPLIT_TRAIN, &train);
    fixture_plain("test-0.h5", SPLIT_TEST, &test);
    dataset = fixture_open(DATASET_TRAIN);
    assert_false(dataset->classes_given);
    assert_int_equal(dataset->classes, 10);
    assert_true((strstr(dataset->note, "transposed") != NULL) == ((variant & 1) != 0));
    assert_true(dataset->digest == digest);
    fixture_rows(&dataset->train, SPLIT_TRAIN, TRAIN);
    dataset_close(dataset);
  }
}

static void one_byte_or_order_changes_the_digest(void **state) {
  (void)state;
  uint8_t image[2][ROW] = {{1, 2, 3}, {4, 5, 6}};
  uint64_t a = shard_row_digest(image[0], ROW, 3), b = shard_row_digest(image[1], ROW, 3);
  assert_true(shard_digest_term(a, 0) + shard_digest_term(b, 1) !=
              shard_digest_term(b, 0) + shard_digest_term(a, 1));
  assert_true(a != shard_row_digest(image[0], ROW, 4));
  image[0][ROW - 1] = 1;
  assert_true(a != shard_row_digest(image[0], ROW, 3));
}

static void failed_write_leaves_nothing(void **state) {
  (void)state;
  fixture_clear();
  assert_int_equal(mkdir(fixture_path("train-00001-of-00003.h5.tmp"), 0777),
                   0); /* the second file cannot be created */
  assert_int_equal(fixture_set(fixture_folder, 3, false), STATUS_STORAGE);
  assert_non_null(strstr(error_message(), "train-00001-of-00003.h5.tmp"));
  error_clear();
  assert_int_equal(access(fixture_path("train-00000-of-00003.h5"), F_OK), -1);
  assert_int_equal(access(fixture_path("train-00000-of-00003.h5.tmp"), F_OK), -1);
}

/* Over all ranks each row is in one part, and no part cuts a shard that HDF5 must read. */
static void parts_cut_no_packed_shard(void **state) {
  (void)state;
  static const int64_t rows[] = {100, 0, 37, 1, 400, 12};
  enum { SHARDS = sizeof rows / sizeof *rows };
  struct plan_shard shard[SHARDS] = {{.first = 0}};
  struct dataset_plan plan = {.shard = shard, .shard_count = {SHARDS, 0}};
  for (int i = 0; i < SHARDS; i++) {
    shard[i].first = plan.count[SPLIT_TRAIN];
    shard[i].info.count = rows[i];
    shard[i].info.contiguous = i % 2;
    plan.count[SPLIT_TRAIN] += rows[i];
  }
  for (int size = 1; size <= 64; size++) {
    int64_t next = 0;
    for (int rank = 0; rank < size; rank++) {
      int64_t first, count;
      dataset_plan_part(&plan, SPLIT_TRAIN, rank, size, &first, &count);
      assert_true(first == next && count >= 0);
      next = first + count;
      for (int i = 0; i < SHARDS; i += 2)
        assert_true(next <= shard[i].first || next >= shard[i].first + rows[i]);
    }
    assert_int_equal(next, plan.count[SPLIT_TRAIN]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(written_is_read),
      cmocka_unit_test(any_sharding_and_layout_is_the_same_set),
      cmocka_unit_test(one_byte_or_order_changes_the_digest),
      cmocka_unit_test(failed_write_leaves_nothing),
      cmocka_unit_test(parts_cut_no_packed_shard),
  };
  return cmocka_run_group_tests(tests, fixture_start, fixture_stop);
}
