/* Shards: written, read back, and every fault named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <hdf5.h>

#include "data/check.h"
#include "data/dataset.h"
#include "data/shard_read.h"
#include "data/shard_set.h"
#include "data/shard_tally.h"
#include "model/base/log.h"
#include "model/base/random.h"
#include "model/base/world.h"

enum {
  HEIGHT = 6,
  WIDTH = 5,
  CHANNELS = 3,
  ROW = HEIGHT * WIDTH * CHANNELS,
  TRAIN = 53,
  TEST = 11,
  CLASSES = 10
};

static struct world world;
static char folder[] = "/tmp/convoy-test-data-XXXXXX";
static char path[256], text[512];
static const char *const names[CLASSES] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j\xc3\xa4"};

static uint8_t pixel(int split, int64_t row, int at) {
  return (uint8_t)random_below(random_key(5, RANDOM_TEST, (uint32_t)split), (uint64_t)(row * ROW + at), 256);
}

static int32_t label(int split, int64_t row) {
  return (int32_t)((row * 7 + split) % CLASSES);
}

static enum status get_row(void *context, int64_t row, uint8_t *image, int32_t *row_label) {
  int split = *(const int *)context;
  for (int i = 0; i < ROW; i++) image[i] = pixel(split, row, i);
  *row_label = label(split, row);
  return STATUS_OK;
}

static enum status write_set(const char *directory, int train_shards, bool overwrite) {
  static int split[2] = {SPLIT_TRAIN, SPLIT_TEST};
  struct shard_set set = {.shape = {HEIGHT, WIDTH, CHANNELS, CLASSES, names}};
  set.split[SPLIT_TRAIN] = (struct shard_rows){TRAIN, train_shards, get_row, &split[0]};
  set.split[SPLIT_TEST] = (struct shard_rows){TEST, 1, get_row, &split[1]};
  return shard_set_write(&set, directory, overwrite);
}

static const char *in(const char *name) {
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

/* A plain file with the given shapes and types, as an h5py script would write it. */
struct plain {
  const char *images, *labels; /* data set names */
  int64_t count, label_count, bad_row, bad_label;
  hid_t image_type, label_type;
  bool planar, chunked;
};

static const struct plain good = {
    .images = "images", .labels = "labels", .count = TRAIN, .label_count = TRAIN, .bad_row = -1};

static void put(hid_t file, const char *name, hid_t stored, hid_t type, int rank, const hsize_t *dim,
                const hsize_t *chunk, const void *data) {
  hid_t space = H5Screate_simple(rank, dim, NULL), properties = H5Pcreate(H5P_DATASET_CREATE);
  if (chunk) {
    assert_true(H5Pset_chunk(properties, rank, chunk) >= 0 && H5Pset_shuffle(properties) >= 0);
    assert_true(H5Pset_deflate(properties, 4) >= 0 && H5Pset_fletcher32(properties) >= 0);
  }
  hid_t set = H5Dcreate2(file, name, stored, space, H5P_DEFAULT, properties, H5P_DEFAULT);
  assert_true(set >= 0 && H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
  H5Dclose(set);
  H5Pclose(properties);
  H5Sclose(space);
}

static void write_plain(const char *name, int split, const struct plain *plain) {
  uint8_t *images = malloc((size_t)plain->count * ROW);
  int64_t *labels = malloc((size_t)plain->label_count * sizeof *labels);
  assert_true(images && labels);
  for (int64_t n = 0; n < plain->count; n++)
    for (int y = 0; y < HEIGHT; y++)
      for (int x = 0; x < WIDTH; x++)
        for (int c = 0; c < CHANNELS; c++) {
          int nhwc = (y * WIDTH + x) * CHANNELS + c, nchw = (c * HEIGHT + y) * WIDTH + x;
          images[n * ROW + (plain->planar ? nchw : nhwc)] = pixel(split, n, nhwc);
        }
  for (int64_t n = 0; n < plain->label_count; n++)
    labels[n] = n == plain->bad_row ? plain->bad_label : label(split, n);
  hid_t file = H5Fcreate(in(name), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(file >= 0);
  hsize_t nhwc[4] = {(hsize_t)plain->count, HEIGHT, WIDTH, CHANNELS};
  hsize_t nchw[4] = {(hsize_t)plain->count, CHANNELS, HEIGHT, WIDTH};
  hsize_t chunk[4] = {7, 2, 3, 3}, label_dim[1] = {(hsize_t)plain->label_count};
  put(file, plain->images, plain->image_type ? plain->image_type : H5T_STD_U8LE, H5T_NATIVE_UINT8, 4,
      plain->planar ? nchw : nhwc, plain->chunked ? chunk : NULL, images);
  put(file, plain->labels, plain->label_type ? plain->label_type : H5T_STD_U8LE, H5T_NATIVE_INT64, 1,
      label_dim, NULL, labels);
  assert_true(H5Fclose(file) >= 0);
  free(images);
  free(labels);
}

static void clear_folder(void) {
  snprintf(text, sizeof text, "rm -rf '%s'", folder);
  assert_int_equal(system(text), 0);
  assert_int_equal(mkdir(folder, 0777), 0);
}

/* Keeps every file as it was opened, for the fuzzer (tests/fuzz.sh). */
static void keep_seeds(void) {
  const char *seeds = getenv("CONVOY_SEEDS");
  static int number;
  if (!seeds) return;
  snprintf(text, sizeof text,
           "for f in '%s'/*.h5; do [ ! -f \"$f\" ] || cp \"$f\" '%s'/%d-$(basename \"$f\"); done", folder,
           seeds, number++);
  assert_int_equal(system(text), 0);
}

static struct dataset *open_good(unsigned need) {
  struct dataset *dataset = NULL;
  keep_seeds();
  enum status status = dataset_open(&world, folder, need, &dataset);
  if (status != STATUS_OK) error_print(stderr);
  assert_int_equal(status, STATUS_OK);
  return dataset;
}

/* dataset_open refuses with exit code 2, and the line holds each of the words. */
static void assert_refused(const char *const *words) {
  struct dataset *dataset = NULL;
  keep_seeds();
  error_clear();
  assert_int_equal(dataset_open(&world, folder, DATASET_TRAIN, &dataset), STATUS_INPUT);
  for (int i = 0; words[i]; i++)
    if (!strstr(error_message(), words[i])) fail_msg("'%s' is not in: %s", words[i], error_message());
  assert_null(strchr(error_message(), '\n'));
  error_clear();
}

#define REFUSED(...) assert_refused((const char *const[]){__VA_ARGS__, NULL})

static void assert_rows(const struct split *split, int which, int64_t count) {
  assert_int_equal(split->count, count);
  for (int64_t n = 0; n < count; n++) {
    assert_int_equal(split->labels[n], label(which, n));
    for (int i = 0; i < ROW; i++) assert_int_equal(split->images[n * ROW + i], pixel(which, n, i));
  }
}

static void written_is_read(void **state) {
  (void)state;
  clear_folder();
  assert_int_equal(write_set(folder, 5, false), STATUS_OK);
  struct dataset *dataset = open_good(DATASET_TRAIN | DATASET_TEST);
  assert_int_equal(dataset->height, HEIGHT);
  assert_int_equal(dataset->width, WIDTH);
  assert_int_equal(dataset->channels, CHANNELS);
  assert_int_equal(dataset->classes, CLASSES);
  assert_true(dataset->classes_given);
  assert_string_equal(dataset->class_name[9], "j\xc3\xa4");
  assert_int_equal(dataset->train.shard_count, 5);
  assert_string_equal(dataset->note, "");
  assert_rows(&dataset->train, SPLIT_TRAIN, TRAIN);
  assert_rows(&dataset->test, SPLIT_TEST, TEST);
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
  assert_int_equal(shard_open(in("test-00000-of-00001.h5"), &shard), STATUS_OK);
  for (int c = 0; c < CHANNELS; c++) {
    assert_true(shard_describe(shard)->mean[c] == dataset->mean[c]);
    assert_true(shard_describe(shard)->std[c] == dataset->std[c] && dataset->std[c] > 0.2);
  }
  shard_close(shard);
  dataset_close(dataset);
  double zero[4] = {0};
  assert_int_equal(unlink(in("train-00003-of-00005.h5")), 0);
  write_plain("train-00003-of-00005.h5", SPLIT_TRAIN, &good);
  assert_int_equal(shard_write_moments(in("train-00003-of-00005.h5"), CHANNELS, zero, zero), STATUS_OK);
  dataset = open_good(DATASET_TRAIN);
  assert_non_null(strstr(dataset->note, "6 of 6 shards store another mean or std"));
  dataset_close(dataset);
}

static void any_sharding_and_layout_is_the_same_set(void **state) {
  (void)state;
  clear_folder();
  assert_int_equal(write_set(folder, 1, false), STATUS_OK);
  struct dataset *dataset = open_good(DATASET_TRAIN);
  uint64_t digest = dataset->digest;
  dataset_close(dataset);
  for (int shards = 2; shards <= 60; shards += 29) { /* more shards than images: fewer are written */
    assert_int_equal(write_set(folder, shards, false), STATUS_INPUT);
    error_clear();
    assert_int_equal(write_set(folder, shards, true), STATUS_OK);
    dataset = open_good(DATASET_TRAIN);
    assert_int_equal(dataset->train.shard_count, shards < TRAIN ? shards : TRAIN);
    assert_true(dataset->digest == digest);
    dataset_close(dataset);
  }
  for (int variant = 0; variant < 8; variant++) {
    clear_folder();
    struct plain train = good, test = good;
    train.planar = test.planar = variant & 1;
    train.chunked = variant & 2;
    if (variant & 4) train.label_type = H5T_STD_I64BE;
    test.count = test.label_count = TEST;
    write_plain("train-0.h5", SPLIT_TRAIN, &train);
    write_plain("test-0.h5", SPLIT_TEST, &test);
    dataset = open_good(DATASET_TRAIN);
    assert_false(dataset->classes_given);
    assert_int_equal(dataset->classes, 10);
    assert_true((strstr(dataset->note, "transposed") != NULL) == ((variant & 1) != 0));
    assert_true(dataset->digest == digest);
    assert_rows(&dataset->train, SPLIT_TRAIN, TRAIN);
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

/* Copies the shard, changes it, and expects the refusal. */
static void file_faults_are_named(void **state) {
  (void)state;
  clear_folder();
  assert_int_equal(write_set(folder, 2, false), STATUS_OK);
  char shard[256];
  snprintf(shard, sizeof shard, "%s", in("train-00001-of-00002.h5"));
  struct stat before;
  assert_int_equal(stat(shard, &before), 0);
  char bytes[32];
  snprintf(bytes, sizeof bytes, "%lld of %lld bytes", (long long)before.st_size - 1,
           (long long)before.st_size);
  assert_int_equal(truncate(shard, before.st_size - 1), 0);
  REFUSED(shard, "truncated", bytes);
  assert_int_equal(truncate(shard, 0), 0);
  REFUSED(shard, "empty");
  FILE *file = fopen(shard, "w");
  assert_non_null(file);
  fputs("PNG or something else\n", file);
  fclose(file);
  REFUSED(shard, "not an HDF5 file");
  assert_int_equal(unlink(shard), 0);
  REFUSED("train-00001-of-00002.h5 is missing");
  assert_int_equal(mkdir(shard, 0777), 0);
  REFUSED(shard, "a folder");
  clear_folder();
  REFUSED(folder, "no train shard");
  assert_int_equal(rmdir(folder), 0);
  REFUSED(folder, "cannot be read");
}

static void flipped_byte_is_found(void **state) {
  (void)state;
  clear_folder();
  assert_int_equal(write_set(folder, 2, false), STATUS_OK);
  FILE *file = fopen(in("train-00000-of-00002.h5"), "r+b");
  assert_non_null(file);
  assert_int_equal(fseek(file, 2048 + 30, SEEK_SET), 0); /* the images begin at byte 2048 */
  int byte = fgetc(file);
  assert_int_equal(fseek(file, 2048 + 30, SEEK_SET), 0);
  fputc(byte ^ 4, file);
  fclose(file);
  REFUSED("train-00000-of-00002.h5", "damaged", "digest");
}

static void content_faults_are_named(void **state) {
  (void)state;
  clear_folder();
  struct plain plain = good;
  plain.images = "data";
  write_plain("train-0.h5", SPLIT_TRAIN, &plain);
  REFUSED("train-0.h5", "'images'", "'data', 'labels'");
  plain = good;
  plain.label_count = TRAIN - 1;
  write_plain("train-0.h5", SPLIT_TRAIN, &plain);
  REFUSED("train-0.h5", "53 images but 52 labels");
  plain = good;
  plain.image_type = H5T_IEEE_F32LE;
  write_plain("train-0.h5", SPLIT_TRAIN, &plain);
  REFUSED("train-0.h5", "'images' is float32, expected uint8");
  plain = good;
  plain.label_type = H5T_IEEE_F64LE;
  write_plain("train-0.h5", SPLIT_TRAIN, &plain);
  REFUSED("train-0.h5", "'labels' is float64");
  plain = good;
  plain.bad_row = 41;
  plain.bad_label = -1;
  plain.label_type = H5T_STD_I32LE;
  write_plain("train-0.h5", SPLIT_TRAIN, &plain);
  REFUSED("train-0.h5", "row 41", "label -1");
  hid_t file = H5Fcreate(in("train-0.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  H5Gclose(H5Gcreate2(file, "images", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Fclose(file);
  REFUSED("'images' is a group");
  file = H5Fcreate(in("train-0.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  hsize_t flat[2] = {4, ROW};
  uint8_t zeros[4 * ROW] = {0};
  put(file, "images", H5T_STD_U8LE, H5T_NATIVE_UINT8, 2, flat, NULL, zeros);
  put(file, "labels", H5T_STD_U8LE, H5T_NATIVE_UINT8, 1, flat, NULL, zeros);
  H5Fclose(file);
  REFUSED("shape (4,90)", "(N,H,W,C)");
}

/* Data sets that were created but not, or not wholly, filled. */
static void unwritten_rows_are_named(void **state) {
  (void)state;
  for (int chunked = 0; chunked < 2; chunked++) {
    clear_folder();
    write_plain("train-0.h5", SPLIT_TRAIN, &good);
    hid_t file = H5Fopen(in("train-0.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
    hsize_t dim[4] = {TRAIN, HEIGHT, WIDTH, CHANNELS}, chunk[4] = {10, HEIGHT, WIDTH, CHANNELS};
    hid_t space = H5Screate_simple(4, dim, NULL), properties = H5Pcreate(H5P_DATASET_CREATE);
    if (chunked) assert_true(H5Pset_chunk(properties, 4, chunk) >= 0);
    assert_true(H5Ldelete(file, "images", H5P_DEFAULT) >= 0);
    hid_t set = H5Dcreate2(file, "images", H5T_STD_U8LE, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    if (chunked) { /* rows 0..19 */
      static const uint8_t rows[20 * ROW] = {1};
      hid_t memory = H5Screate_simple(4, (hsize_t[]){20, HEIGHT, WIDTH, CHANNELS}, NULL);
      H5Sselect_hyperslab(space, H5S_SELECT_SET, (hsize_t[4]){0}, NULL,
                          (hsize_t[]){20, HEIGHT, WIDTH, CHANNELS}, NULL);
      assert_true(H5Dwrite(set, H5T_NATIVE_UINT8, memory, space, H5P_DEFAULT, rows) >= 0);
      H5Sclose(memory);
    }
    H5Dclose(set);
    H5Pclose(properties);
    H5Sclose(space);
    H5Fclose(file);
    REFUSED("train-0.h5", "'images'", chunked ? "2 of 6 chunks were written" : "never written");
  }
}

/* A label that the named classes do not have; shards that disagree. */
static void label_above_the_classes_is_named(void **state) {
  (void)state;
  clear_folder();
  struct plain plain = good;
  plain.bad_row = TRAIN - 1;
  plain.bad_label = 10;
  write_plain("train-0.h5", SPLIT_TRAIN, &plain);
  struct dataset *dataset = open_good(DATASET_TRAIN); /* no classes given: there are 11 */
  assert_int_equal(dataset->classes, 11);
  dataset_close(dataset);
  hid_t file = H5Fopen(in("train-0.h5"), H5F_ACC_RDWR, H5P_DEFAULT), space = H5Screate(H5S_SCALAR);
  hid_t attribute = H5Acreate2(file, "classes", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT);
  int classes = 10;
  assert_true(H5Awrite(attribute, H5T_NATIVE_INT, &classes) >= 0);
  H5Aclose(attribute);
  H5Sclose(space);
  H5Fclose(file);
  REFUSED("train-0.h5", "row 52", "label 10, expected 0..9");
}

static int faults;
static char fault_text[4096];

static void collect(void *context, const char *line) {
  (void)context;
  faults++;
  size_t used = strlen(fault_text);
  snprintf(fault_text + used, sizeof fault_text - used, "%s\n", line);
}

static void check_names_all_faults(void **state) {
  (void)state;
  clear_folder();
  assert_int_equal(write_set(folder, 5, false), STATUS_OK);
  int64_t count = -1;
  faults = 0;
  assert_int_equal(dataset_check(folder, collect, NULL, &count), STATUS_OK);
  assert_int_equal(count, 0);
  assert_int_equal(truncate(in("train-00000-of-00005.h5"), 3000), 0);
  assert_int_equal(unlink(in("train-00001-of-00005.h5")), 0);
  FILE *file = fopen(in("train-00002-of-00005.h5"), "r+b");
  assert_non_null(file);
  assert_int_equal(fseek(file, 2100, SEEK_SET), 0);
  fputs("xxxx", file);
  fclose(file);
  struct plain plain = good;
  plain.bad_row = 3;
  plain.bad_label = 77;
  write_plain("train-00003-of-00005.h5", SPLIT_TRAIN, &plain);
  assert_int_equal(dataset_check(folder, collect, NULL, &count), STATUS_OK);
  assert_int_equal(count, 4);
  assert_int_equal(faults, 4);
  assert_non_null(strstr(fault_text, "train-00000-of-00005.h5 is truncated"));
  assert_non_null(strstr(fault_text, "train-00001-of-00005.h5 is missing"));
  assert_non_null(strstr(fault_text, "train-00002-of-00005.h5: its images or labels are damaged"));
  assert_non_null(strstr(fault_text, "row 3: label 77"));
}

static void failed_write_leaves_nothing(void **state) {
  (void)state;
  clear_folder();
  assert_int_equal(mkdir(in("train-00001-of-00003.h5.tmp"), 0777), 0); /* the second file cannot be created */
  assert_int_equal(write_set(folder, 3, false), STATUS_STORAGE);
  assert_non_null(strstr(error_message(), "train-00001-of-00003.h5.tmp"));
  error_clear();
  assert_int_equal(access(in("train-00000-of-00003.h5"), F_OK), -1);
  assert_int_equal(access(in("train-00000-of-00003.h5.tmp"), F_OK), -1);
}

static int start(void **state) {
  (void)state;
  log_open(0, "", true);
  return world_open(&world) == STATUS_OK && mkdtemp(folder) ? 0 : -1;
}

static int stop(void **state) {
  (void)state;
  snprintf(text, sizeof text, "rm -rf '%s'", folder);
  if (system(text) != 0) return -1;
  world_close(&world);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(written_is_read),
      cmocka_unit_test(any_sharding_and_layout_is_the_same_set),
      cmocka_unit_test(one_byte_or_order_changes_the_digest),
      cmocka_unit_test(file_faults_are_named),
      cmocka_unit_test(flipped_byte_is_found),
      cmocka_unit_test(content_faults_are_named),
      cmocka_unit_test(unwritten_rows_are_named),
      cmocka_unit_test(label_above_the_classes_is_named),
      cmocka_unit_test(check_names_all_faults),
      cmocka_unit_test(failed_write_leaves_nothing),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
