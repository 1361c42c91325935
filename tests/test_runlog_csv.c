/* loss.csv and epochs.csv: their rows, what they hold after a resume, what a failed write says. */
#include "tests/runlog_fixture.h"

static const char loss_header[] = "step,epoch,loss,lr,images_per_s,seconds\n";
static const char epochs_header[] =
    "epoch,step,train_loss,train_accuracy,test_loss,test_accuracy,images_per_s,seconds\n";

static void test_rows(void **state) {
  struct fixture *f = *state;
  struct runlog *run = open_run(f, RUNLOG_NEW);
  assert_int_equal(runlog_start(run, 0, 0), STATUS_OK);
  struct runlog_loss row = {1, 1, 2.302585092994046, 1e-5, INFINITY, 0.5};
  assert_int_equal(runlog_loss(run, &row), STATUS_OK);
  row = (struct runlog_loss){2, 1, NAN, 1e-5f, 12345678912.0, 123456.75};
  assert_int_equal(runlog_loss(run, &row), STATUS_OK);
  struct runlog_epoch epoch = {1, 2, 2.25, 0.125, NAN, -NAN, 1e3, 7};
  assert_int_equal(runlog_epoch(run, &epoch), STATUS_OK);
  char expected[512]; /* read while the run is open: every row is in the file at once */
  snprintf(expected, sizeof expected, "%s%s", loss_header,
           "1,1,2.30258509,1e-05,,0.5\n2,1,,9.99999975e-06,1.23456789e+10,123456.75\n");
  assert_string_equal(content(f, "loss.csv"), expected);
  snprintf(expected, sizeof expected, "%s%s", epochs_header, "1,2,2.25,0.125,,,1000,7\n");
  assert_string_equal(content(f, "epochs.csv"), expected);
  assert_int_equal(runlog_sync(run), STATUS_OK);
  runlog_close(run);
  assert_false(exists(f, "lock"));
}

static void test_resume_cuts(void **state) {
  struct fixture *f = *state;
  struct runlog *run = open_run(f, RUNLOG_NEW);
  assert_int_equal(runlog_start(run, 0, 0), STATUS_OK);
  write_rows(run, 1, 10);
  runlog_close(run);
  char loss[8192], epochs[8192];
  snprintf(loss, sizeof loss, "%s", content(f, "loss.csv"));
  snprintf(epochs, sizeof epochs, "%s", content(f, "epochs.csv"));

  /* From step 8, whose epoch was not yet evaluated: its row is made again. */
  run = open_run(f, RUNLOG_RESUME);
  assert_string_equal(content(f, "loss.csv"), loss); /* opening changes nothing */
  assert_int_equal(runlog_start(run, 8, 1), STATUS_OK);
  assert_null(strstr(content(f, "loss.csv"), "\n9,"));
  assert_non_null(strstr(content(f, "loss.csv"), "\n8,"));
  assert_null(strstr(content(f, "epochs.csv"), "\n2,"));
  struct runlog_epoch again = {2, 8, 2, 0.25, NAN, NAN, 1000, 8};
  assert_int_equal(runlog_epoch(run, &again), STATUS_OK);
  write_rows(run, 9, 10);
  runlog_close(run);
  assert_string_equal(content(f, "loss.csv"), loss);
  assert_string_equal(content(f, "epochs.csv"), epochs);

  /* Nothing to cut: the very same file. */
  struct stat before, after;
  assert_int_equal(stat(path_of(f, "loss.csv"), &before), 0);
  run = open_run(f, RUNLOG_RESUME);
  assert_int_equal(runlog_start(run, 10, 2), STATUS_OK);
  runlog_close(run);
  assert_int_equal(stat(path_of(f, "loss.csv"), &after), 0);
  assert_true(before.st_ino == after.st_ino && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);

  /* To the start. */
  run = open_run(f, RUNLOG_RESUME);
  assert_int_equal(runlog_start(run, 0, 0), STATUS_OK);
  runlog_close(run);
  assert_string_equal(content(f, "loss.csv"), loss_header);
  assert_string_equal(content(f, "epochs.csv"), epochs_header);
}

static void test_torn_rows(void **state) {
  struct fixture *f = *state;
  char text[512];
  make_out(f);
  static const struct {
    const char *rows, *kept;
  } cases[] = {
      {"1,1,2,3,4,5\n2,1,2,3,4", "1,1,2,3,4,5\n"},                           /* no line end */
      {"1,1,2,3,4,5\n2,1,2,3,4,5", "1,1,2,3,4,5\n"},                         /* its last number may be cut */
      {"1,1,2,3,4,5\n2,1,2,3\n3,1,2,3,4,5\n", "1,1,2,3,4,5\n3,1,2,3,4,5\n"}, /* fields lost */
      {"1,1,2,3,4,5\n1,1,2,3,4,5\n2,1,,,,\n", "1,1,2,3,4,5\n2,1,,,,\n"}, /* twice; empty fields are right */
      {"1,1,2,3,4,5\n2x,1,2,3,4,5\n", "1,1,2,3,4,5\n"},
      {"7,1,2,3,4,5\n8", ""},
      {"", ""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    snprintf(text, sizeof text, "%s%s", loss_header, cases[i].rows);
    put(f, "loss.csv", text, strlen(text));
    struct runlog *run = open_run(f, RUNLOG_RESUME);
    assert_int_equal(runlog_start(run, 6, 2), STATUS_OK);
    runlog_close(run);
    snprintf(text, sizeof text, "%s%s", loss_header, cases[i].kept);
    assert_string_equal(content(f, "loss.csv"), text);
    assert_false(exists(f, "loss.csv.tmp"));
  }
  put(f, "loss.csv", loss_header, 11); /* a torn header */
  struct runlog *run = open_run(f, RUNLOG_RESUME);
  assert_int_equal(runlog_start(run, 6, 2), STATUS_OK);
  runlog_close(run);
  assert_string_equal(content(f, "loss.csv"), loss_header);
  char zeros[80] = ""; /* what a crash of the machine may leave */
  memcpy(zeros, loss_header, sizeof loss_header - 1);
  put(f, "loss.csv", zeros, sizeof zeros);
  run = open_run(f, RUNLOG_RESUME);
  assert_int_equal(runlog_start(run, 6, 2), STATUS_OK);
  runlog_close(run);
  assert_string_equal(content(f, "loss.csv"), loss_header);
  put(f, "loss.csv", "a,b\n1,2\n", 8); /* someone else's file */
  run = open_run(f, RUNLOG_RESUME);
  assert_int_equal(runlog_start(run, 6, 2), STATUS_INPUT);
  runlog_close(run);
  assert_string_equal(content(f, "loss.csv"), "a,b\n1,2\n");
}

static void test_full_disk(void **state) {
  struct fixture *f = *state;
  make_out(f);
  assert_int_equal(symlink("/dev/full", path_of(f, "loss.csv")), 0);
  struct runlog *run = open_run(f, RUNLOG_RESUME);
  assert_int_equal(runlog_start(run, 0, 0), STATUS_STORAGE);
  assert_non_null(strstr(error_message(), "loss.csv"));
  assert_non_null(strstr(error_message(), "No space left"));
  runlog_close(run);
}

static void test_rows_with_a_comma_locale(void **state) {
  use_decimal_comma(*state);
  test_rows(state);
  setlocale(LC_ALL, "C");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      CASE(test_rows),
      CASE(test_resume_cuts),
      CASE(test_torn_rows),
      CASE(test_full_disk),
      CASE(test_rows_with_a_comma_locale),
  };
  return suite_status(cmocka_run_group_tests(tests, NULL, NULL));
}
