/* Faulty shards: every fault is named, before anything is read. */
#include "tests/fixtures/shard_files.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/check.h"

/* Copies the shard, changes it, and expects the refusal. */
static void file_faults_are_named(void **state) {
  (void)state;
  fixture_clear();
  assert_int_equal(fixture_set(fixture_folder, 2, false), STATUS_OK);
  char shard[256];
  snprintf(shard, sizeof shard, "%s", fixture_path("train-00001-of-00002.h5"));
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
  fixture_clear();
  REFUSED(fixture_folder, "no train shard");
  assert_int_equal(rmdir(fixture_folder), 0);
  REFUSED(fixture_folder, "cannot be read");
}

static void flipped_byte_is_found(void **state) {
  (void)state;
  fixture_clear();
  assert_int_equal(fixture_set(fixture_folder, 2, false), STATUS_OK);
  FILE *file = fopen(fixture_path("train-00000-of-00002.h5"), "r+b");
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
  fixture_clear();
  struct fixture_plain plain = fixture_good;
  plain.images = "data";
  fixture_plain("train-0.h5", SPLIT_TRAIN, &plain);
  REFUSED("train-0.h5", "'images'", "'data', 'labels'");
  plain = fixture_good;
  plain.label_count = TRAIN - 1;
  fixture_plain("train-0.h5", SPLIT_TRAIN, &plain);
  REFUSED("train-0.h5", "53 images but 52 labels");
  plain = fixture_good;
  plain.image_type = H5T_IEEE_F32LE;
  fixture_plain("train-0.h5", SPLIT_TRAIN, &plain);
  REFUSED("train-0.h5", "'images' is float32, expected uint8");
  plain = fixture_good;
  plain.label_type = H5T_IEEE_F64LE;
  fixture_plain("train-0.h5", SPLIT_TRAIN, &plain);
  REFUSED("train-0.h5", "'labels' is float64");
  plain = fixture_good;
  plain.bad_row = 41;
  plain.bad_label = -1;
  plain.label_type = H5T_STD_I32LE;
  fixture_plain("train-0.h5", SPLIT_TRAIN, &plain);
  REFUSED("train-0.h5", "row 41", "label -1");
  hid_t file = H5Fcreate(fixture_path("train-0.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  H5Gclose(H5Gcreate2(file, "images", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Fclose(file);
  REFUSED("'images' is a group");
  file = H5Fcreate(fixture_path("train-0.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  hsize_t flat[2] = {4, ROW};
  uint8_t zeros[4 * ROW] = {0};
  fixture_put(file, "images", H5T_STD_U8LE, H5T_NATIVE_UINT8, 2, flat, NULL, zeros);
  fixture_put(file, "labels", H5T_STD_U8LE, H5T_NATIVE_UINT8, 1, flat, NULL, zeros);
  H5Fclose(file);
  REFUSED("shape (4,90)", "(N,H,W,C)");
}

/* Data sets that were created but not, or not wholly, filled. */
static void unwritten_rows_are_named(void **state) {
  (void)state;
  for (int chunked = 0; chunked < 2; chunked++) {
    fixture_clear();
    fixture_plain("train-0.h5", SPLIT_TRAIN, &fixture_good);
    hid_t file = H5Fopen(fixture_path("train-0.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
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
  fixture_clear();
  struct fixture_plain plain = fixture_good;
  plain.bad_row = TRAIN - 1;
  plain.bad_label = 10;
  fixture_plain("train-0.h5", SPLIT_TRAIN, &plain);
  struct dataset *dataset = fixture_open(DATASET_TRAIN); /* no classes given: there are 11 */
  assert_int_equal(dataset->classes, 11);
  dataset_close(dataset);
  hid_t file = H5Fopen(fixture_path("train-0.h5"), H5F_ACC_RDWR, H5P_DEFAULT), space = H5Screate(H5S_SCALAR);
  hid_t attribute = H5Acreate2(file, "classes", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT);
  int classes = 10;
  assert_true(H5Awrite(attribute, H5T_NATIVE_INT, &classes) >= 0);
  H5Aclose(attribute);
  H5Sclose(space);
  H5Fclose(file);
  REFUSED("train-0.h5", "row 52", "label 10, expected 0..9");
}

/* Names are kept and shown as lines. */
static void a_class_name_of_two_lines_is_refused(void **state) {
  (void)state;
  fixture_clear();
  fixture_plain("train-0.h5", SPLIT_TRAIN, &fixture_good);
  hid_t file = H5Fopen(fixture_path("train-0.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
  hid_t space = H5Screate_simple(1, (hsize_t[]){10}, NULL), type = H5Tcopy(H5T_C_S1);
  char names[10][4] = {"a", "b", "c", "d\ne", "f", "g", "h", "i", "j", "k"};
  assert_true(H5Tset_size(type, sizeof names[0]) >= 0);
  hid_t attribute = H5Acreate2(file, "classes", type, space, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(H5Awrite(attribute, type, names) >= 0);
  H5Aclose(attribute);
  H5Tclose(type);
  H5Sclose(space);
  H5Fclose(file);
  REFUSED("train-0.h5", "'classes'", "class 3");
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
  fixture_clear();
  assert_int_equal(fixture_set(fixture_folder, 5, false), STATUS_OK);
  int64_t count = -1;
  faults = 0;
  assert_int_equal(dataset_check(fixture_folder, collect, NULL, &count), STATUS_OK);
  assert_int_equal(count, 0);
  assert_int_equal(truncate(fixture_path("train-00000-of-00005.h5"), 3000), 0);
  assert_int_equal(unlink(fixture_path("train-00001-of-00005.h5")), 0);
  FILE *file = fopen(fixture_path("train-00002-of-00005.h5"), "r+b");
  assert_non_null(file);
  assert_int_equal(fseek(file, 2100, SEEK_SET), 0);
  fputs("xxxx", file);
  fclose(file);
  struct fixture_plain plain = fixture_good;
  plain.bad_row = 3;
  plain.bad_label = 77;
  fixture_plain("train-00003-of-00005.h5", SPLIT_TRAIN, &plain);
  assert_int_equal(dataset_check(fixture_folder, collect, NULL, &count), STATUS_OK);
  assert_int_equal(count, 4);
  assert_int_equal(faults, 4);
  assert_non_null(strstr(fault_text, "train-00000-of-00005.h5 is truncated"));
  assert_non_null(strstr(fault_text, "train-00001-of-00005.h5 is missing"));
  assert_non_null(strstr(fault_text, "train-00002-of-00005.h5: its images or labels are damaged"));
  assert_non_null(strstr(fault_text, "row 3: label 77"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(file_faults_are_named),
      cmocka_unit_test(flipped_byte_is_found),
      cmocka_unit_test(content_faults_are_named),
      cmocka_unit_test(unwritten_rows_are_named),
      cmocka_unit_test(label_above_the_classes_is_named),
      cmocka_unit_test(a_class_name_of_two_lines_is_refused),
      cmocka_unit_test(check_names_all_faults),
  };
  return cmocka_run_group_tests(tests, fixture_start, fixture_stop);
}
