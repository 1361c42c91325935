/* Checkpoints: every bit comes back, every damage is found, nothing half-written stays, the newest good one
 * is taken. */
#include <fcntl.h>
#include <hdf5.h>

#include "app/record.h"
#include "tests/checkpoint_fixture.h"

/* A file's bytes; the caller frees them. */
static unsigned char *slurp(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  fseek(file, 0, SEEK_END);
  *bytes = (size_t)ftell(file);
  rewind(file);
  unsigned char *data = malloc(*bytes + 1);
  assert_int_equal(fread(data, 1, *bytes, file), *bytes);
  fclose(file);
  return data;
}

static void spill(const char *path, const void *data, size_t bytes) {
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
}

static void flip(const char *path, long offset) {
  FILE *file = fopen(path, "r+b");
  assert_non_null(file);
  fseek(file, offset, SEEK_SET);
  int byte = fgetc(file);
  fseek(file, offset, SEEK_SET);
  fputc(byte ^ 0x10, file);
  assert_int_equal(fclose(file), 0);
}

static void test_round_trip(void **state) {
  struct fixture *f = *state;
  struct checkpoint *c;
  write_step(f, 42, 0, false);
  assert_int_equal(checkpoint_open(path_of(f, "step-00000042.h5"), &c), STATUS_OK);
  const struct checkpoint_progress *p = checkpoint_progress(c), *q = &f->content.progress;
  assert_true(p->epoch == q->epoch && p->position == q->position && p->step == q->step && p->seed == q->seed);
  assert_true(p->complete && p->best_accuracy == q->best_accuracy && p->seconds == q->seconds);
  assert_true(p->epoch_loss_sum == q->epoch_loss_sum && p->epoch_samples == q->epoch_samples &&
              p->row_samples == 1);
  assert_string_equal(checkpoint_option(c, "classes"), f->options[1].value);
  assert_null(checkpoint_option(c, "nothing"));
  assert_true(checkpoint_has(c, CHECKPOINT_MOMENTUM, "layer1.0.conv1.weight"));
  assert_false(checkpoint_has(c, CHECKPOINT_ADAM_M, "layer1.0.conv1.weight"));
  float filter[FILTER], bias[BIAS], momentum[FILTER], mean[BIAS];
  struct checkpoint_item items[4];
  float *targets[4] = {filter, bias, momentum, mean};
  for (int i = 0; i < 4; i++) items[i] = f->items[i], items[i].data = targets[i];
  assert_int_equal(checkpoint_read(c, items, 4), STATUS_OK);
  assert_memory_equal(filter, f->filter, sizeof filter);
  assert_memory_equal(bias, f->bias, sizeof bias);
  assert_memory_equal(momentum, f->momentum, sizeof momentum);
  assert_memory_equal(mean, f->mean, sizeof mean);
  items[0].tensor = tensor_4d(DTYPE_F32, 8, 3, 3, 4);
  assert_int_equal(checkpoint_read(c, items, 1), STATUS_INPUT);
  assert_non_null(strstr(error_message(), "8x3x3x3"));
  assert_non_null(strstr(error_message(), "8x3x3x4"));
  items[1].name = "fc.weight";
  assert_int_equal(checkpoint_read(c, items + 1, 1), STATUS_INPUT);
  checkpoint_close(c);
}

/* The same content gives the same bytes, and they fit the estimate. */
static void test_bytes(void **state) {
  struct fixture *f = *state;
  size_t first_bytes, second_bytes;
  write_step(f, 42, 0, false);
  unsigned char *first = slurp(path_of(f, "step-00000042.h5"), &first_bytes);
  sleep(1); /* HDF5 would store a time in seconds */
  write_step(f, 42, 0, false);
  unsigned char *second = slurp(path_of(f, "step-00000042.h5"), &second_bytes);
  assert_int_equal(first_bytes, second_bytes);
  assert_memory_equal(first, second, first_bytes);
  assert_true((int64_t)first_bytes <= checkpoint_estimate(f->items, 4));
  free(first);
  free(second);
}

/* Any HDF5 reader opens it: the user block does not disturb, shapes are the true ones. */
static void test_plain_hdf5(void **state) {
  struct fixture *f = *state;
  write_step(f, 42, 0, false);
  hid_t file = H5Fopen(path_of(f, "step-00000042.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
  assert_true(file >= 0);
  hid_t set = H5Dopen2(file, "/optimizer/momentum/layer1.0.conv1.weight", H5P_DEFAULT);
  assert_true(set >= 0);
  hid_t space = H5Dget_space(set);
  hsize_t dims[4];
  assert_int_equal(H5Sget_simple_extent_dims(space, dims, NULL), 4);
  assert_true(dims[0] == 8 && dims[1] == 3 && dims[2] == 3 && dims[3] == 3);
  float data[FILTER];
  assert_true(H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
  assert_memory_equal(data, f->momentum, sizeof data);
  hid_t step = H5Aopen_by_name(file, "/progress", "step", H5P_DEFAULT, H5P_DEFAULT);
  int64_t value = 0;
  assert_true(H5Aread(step, H5T_NATIVE_INT64, &value) >= 0);
  assert_int_equal(value, 42);
  H5Aclose(step);
  H5Sclose(space);
  H5Dclose(set);
  H5Fclose(file);
}

static void test_every_flip_is_found(void **state) {
  struct fixture *f = *state;
  struct checkpoint *c = NULL;
  char path[256];
  size_t bytes;
  write_step(f, 42, 0, false);
  snprintf(path, sizeof path, "%s", path_of(f, "step-00000042.h5"));
  unsigned char *data = slurp(path, &bytes);
  for (size_t at = 0; at < bytes; at += at < 600 ? 1 : 7) {
    flip(path, (long)at);
    if (checkpoint_open(path, &c) != STATUS_STORAGE)
      fail_msg("a flip at byte %zu of %zu was not found", at, bytes);
    assert_non_null(strstr(error_message(), "step-00000042.h5"));
    flip(path, (long)at);
  }
  assert_int_equal(checkpoint_open(path, &c), STATUS_OK); /* all flips were taken back */
  checkpoint_close(c);
  for (size_t length = 0; length < bytes; length += length < bytes - 10 && length > 600 ? 97 : 1) {
    spill(path, data, length);
    assert_int_equal(checkpoint_open(path, &c), STATUS_STORAGE);
  }
  assert_non_null(strstr(error_message(), "truncated"));
  data[bytes] = 0;
  spill(path, data, bytes + 1);
  assert_int_equal(checkpoint_open(path, &c), STATUS_STORAGE);
  memset(data + bytes / 2, 0, 1024);
  spill(path, data, bytes);
  assert_int_equal(checkpoint_open(path, &c), STATUS_STORAGE);
  free(data);
  assert_int_equal(checkpoint_open(path_of(f, "none.h5"), &c), STATUS_INPUT);
}

/* The newest step, and what looking for it writes to stderr, into text[capacity]. */
static int64_t newest_step_heard(struct fixture *f, char *text, size_t capacity) {
  char path[256];
  snprintf(path, sizeof path, "%s", path_of(f, ".stderr"));
  fflush(stderr);
  int saved = dup(2), to = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  dup2(to, 2);
  int64_t step = newest_step(f);
  dup2(saved, 2);
  close(saved);
  ssize_t got = pread(to, text, capacity - 1, 0);
  text[got > 0 ? got : 0] = '\0';
  close(to);
  return step;
}

static void test_fall_back(void **state) {
  struct fixture *f = *state;
  struct checkpoint *c;
  char heard[2048];
  assert_int_equal(newest_step(f), 0);
  spill(path_of(f, "step-00000099.h5.tmp"), "x", 1); /* a stray temporary never counts */
  spill(path_of(f, "notes.h5"), "x", 1);
  assert_int_equal(newest_step(f), 0);
  write_step(f, 9, 0, false);
  assert_false(exists(f, "step-00000099.h5.tmp"));
  write_step(f, 10, 0, false);
  write_step(f, 123456789, 0, false); /* by number, not by name */
  assert_int_equal(newest_step_heard(f, heard, sizeof heard), 123456789);
  assert_string_equal(heard, "");
  flip(path_of(f, "step-123456789.h5"), 3000);
  assert_int_equal(newest_step_heard(f, heard, sizeof heard), 10);
  assert_non_null(strstr(heard, "warning: "));
  assert_non_null(strstr(heard, "step-123456789.h5 is damaged"));
  spill(path_of(f, "step-00000010.h5"), "", 0);
  assert_int_equal(newest_step_heard(f, heard, sizeof heard), 9);
  assert_non_null(strstr(heard, "step-00000010.h5 is truncated: 0 bytes"));
  assert_int_equal(symlink("nowhere", path_of(f, "step-00000020.h5")), 0);
  assert_int_equal(newest_step_heard(f, heard, sizeof heard), 9);
  assert_non_null(strstr(heard, "step-00000020.h5: No such file"));
  assert_int_equal(unlink(path_of(f, "step-00000020.h5")), 0);
  flip(path_of(f, "step-00000009.h5"), 700);
  int before = entries(f);
  assert_int_equal(checkpoint_newest(f->folder, &c), STATUS_STORAGE);
  assert_non_null(strstr(error_message(), "none of the 3 checkpoints"));
  assert_int_equal(entries(f), before);
  assert_int_equal(checkpoint_find(f->folder, &c), STATUS_STORAGE);
  assert_int_equal(checkpoint_newest("/tmp/no/such/folder", &c), STATUS_OK);
  assert_null(c);
}

static void test_keep_and_best(void **state) {
  struct fixture *f = *state;
  struct checkpoint *c;
  write_step(f, 1, 2, false);
  write_step(f, 2, 2, true);
  write_step(f, 2, 2, true); /* again: best.h5 is already this step's former file */
  write_step(f, 3, 2, false);
  write_step(f, 4, 2, false);
  assert_false(exists(f, "step-00000001.h5") || exists(f, "step-00000002.h5"));
  assert_true(exists(f, "step-00000003.h5") && exists(f, "step-00000004.h5"));
  assert_int_equal(entries(f), 3);
  assert_int_equal(checkpoint_open(path_of(f, "best.h5"), &c), STATUS_OK);
  assert_int_equal(checkpoint_progress(c)->step, 2);
  checkpoint_close(c);
  /* A run that fell back writes a lower step: its new checkpoint is not the one to delete. */
  flip(path_of(f, "step-00000004.h5"), 900);
  flip(path_of(f, "step-00000003.h5"), 900);
  write_step(f, 2, 1, false);
  assert_true(exists(f, "step-00000002.h5") && exists(f, "step-00000004.h5"));
  assert_int_equal(newest_step(f), 2);
  assert_int_equal(unlink(path_of(f, "step-00000002.h5")), 0);
  assert_int_equal(newest_step(f), 2); /* best.h5, after all others */
  spill(path_of(f, "notes.txt"), "mine", 4);
  assert_int_equal(checkpoint_remove_all(f->folder), STATUS_OK);
  assert_int_equal(entries(f), 1);
}

static void test_compare(void **state) {
  struct fixture *f = *state;
  struct checkpoint *c;
  write_step(f, 42, 0, false);
  assert_int_equal(checkpoint_find(f->folder, &c), STATUS_OK);
  assert_int_equal(checkpoint_compare(c, f->options, 3), STATUS_OK);
  const struct checkpoint_option other[] = {{"model", "resnet20"}, {"batch", "256"}};
  assert_int_equal(checkpoint_compare(c, other, 2), STATUS_INPUT);
  assert_non_null(strstr(error_message(), "batch is 256"));
  assert_non_null(strstr(error_message(), "128"));
  const struct checkpoint_option unknown[] = {{"precision", "bf16"}};
  assert_int_equal(checkpoint_compare(c, unknown, 1), STATUS_INPUT);
  checkpoint_close(c);
}

static enum status compare(const char *option, const char *value, const struct checkpoint *c) {
  struct record record = {.option = {{option, value}, {"lr", "0.1"}}, .count = 2, .strict = 1};
  error_clear();
  return record_compare(&record, c);
}

/* Former checkpoints write numbers with 17 digits. */
static void test_compare_numbers(void **state) {
  struct fixture *f = *state;
  struct checkpoint *c;
  f->options[0] = (struct checkpoint_option){"freeze", ""};
  f->options[1] = (struct checkpoint_option){"lora-alpha", "0.10000000000000001"};
  f->options[2] = (struct checkpoint_option){"lr", "0.10000000000000001"};
  write_step(f, 42, 0, false);
  assert_int_equal(checkpoint_find(f->folder, &c), STATUS_OK);
  assert_int_equal(compare("lora-alpha", "0.1", c), STATUS_OK);
  assert_int_equal(compare("lora-alpha", "0.2", c), STATUS_INPUT);
  assert_int_equal(compare("freeze", "conv1.*", c), STATUS_INPUT);
  assert_non_null(strstr(error_message(), "freeze is conv1.*, but checkpoint"));
  assert_non_null(strstr(error_message(), "has none:"));
  checkpoint_close(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
      cmocka_unit_test_setup_teardown(test_bytes, setup, teardown),
      cmocka_unit_test_setup_teardown(test_plain_hdf5, setup, teardown),
      cmocka_unit_test_setup_teardown(test_every_flip_is_found, setup, teardown),
      cmocka_unit_test_setup_teardown(test_fall_back, setup, teardown),
      cmocka_unit_test_setup_teardown(test_keep_and_best, setup, teardown),
      cmocka_unit_test_setup_teardown(test_compare, setup, teardown),
      cmocka_unit_test_setup_teardown(test_compare_numbers, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
