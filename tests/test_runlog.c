/* A run's folder: who may use it, what its logs hold after a resume, what a failed write says. */
#include <dirent.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

#include "app/runlog.h"

static const char loss_header[] = "step,epoch,loss,lr,images_per_s,seconds\n";
static const char epochs_header[] =
    "epoch,step,train_loss,train_accuracy,test_loss,test_accuracy,images_per_s,seconds\n";

struct fixture {
  char base[64], out[128];
};

static int setup(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  snprintf(f->base, sizeof f->base, "/tmp/test_runlog.XXXXXX");
  if (!mkdtemp(f->base)) return -1;
  snprintf(f->out, sizeof f->out, "%s/runs/one", f->base);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  struct fixture *f = *state;
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", f->base);
  int result = system(command);
  free(f);
  return result;
}

static const char *path_of(const struct fixture *f, const char *name) {
  static char path[256];
  snprintf(path, sizeof path, "%s/%s", f->out, name);
  return path;
}

static bool exists(const struct fixture *f, const char *name) {
  return access(path_of(f, name), F_OK) == 0;
}

static void put(const struct fixture *f, const char *name, const char *text, size_t bytes) {
  FILE *file = fopen(path_of(f, name), "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
}

static void make_out(const struct fixture *f) {
  char command[160];
  snprintf(command, sizeof command, "mkdir -p %s", f->out);
  assert_int_equal(system(command), 0);
}

static const char *content(const struct fixture *f, const char *name) {
  static char text[8192];
  FILE *file = fopen(path_of(f, name), "rb");
  assert_non_null(file);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  return text;
}

static struct runlog *open_run(const struct fixture *f, enum runlog_mode mode) {
  struct runlog *run = NULL;
  assert_int_equal(runlog_open(f->out, mode, &run), STATUS_OK);
  return run;
}

static void write_rows(struct runlog *run, int64_t from, int64_t to) {
  for (int64_t step = from; step <= to; step++) {
    struct runlog_loss row = {step, (step + 3) / 4, 1.0 / (double)step, 0.1, 1234.5, (double)step};
    assert_int_equal(runlog_loss(run, &row), STATUS_OK);
    if (step % 4) continue;
    struct runlog_epoch epoch = {step / 4, step, 2, 0.25, NAN, NAN, 1000, (double)step};
    assert_int_equal(runlog_epoch(run, &epoch), STATUS_OK);
  }
}

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

static void test_folder_rules(void **state) {
  struct fixture *f = *state;
  struct runlog *run = NULL;
  assert_int_equal(runlog_check(f->out, RUNLOG_NEW), STATUS_OK);
  assert_false(exists(f, ""));
  runlog_close(open_run(f, RUNLOG_NEW)); /* nothing was written: nothing stays, nor its parents */
  assert_int_not_equal(access(f->out, F_OK), 0);
  char parent[128];
  snprintf(parent, sizeof parent, "%s/runs", f->base);
  assert_int_not_equal(access(parent, F_OK), 0);

  run = open_run(f, RUNLOG_NEW);
  assert_int_equal(runlog_start(run, 0, 0), STATUS_OK);
  runlog_close(run);
  put(f, "notes.txt", "mine", 4);
  assert_int_equal(mkdir(path_of(f, "checkpoints"), 0777), 0);
  put(f, "checkpoints/step-00000004.h5", "x", 1);
  put(f, "checkpoints/other.h5", "mine", 4);
  assert_int_equal(runlog_check(f->out, RUNLOG_NEW), STATUS_INPUT);
  assert_non_null(strstr(error_message(), "--resume"));
  assert_int_equal(runlog_open(f->out, RUNLOG_NEW, &run), STATUS_INPUT);
  assert_false(exists(f, "lock"));

  run = open_run(f, RUNLOG_OVERWRITE);
  assert_true(exists(f, "checkpoints/step-00000004.h5"));
  assert_int_equal(runlog_start(run, 0, 0), STATUS_OK);
  runlog_close(run);
  assert_false(exists(f, "checkpoints/step-00000004.h5"));
  assert_string_equal(content(f, "checkpoints/other.h5"), "mine");
  assert_string_equal(content(f, "notes.txt"), "mine");
  assert_string_equal(content(f, "loss.csv"), loss_header);

  char file[256];
  snprintf(file, sizeof file, "%s", path_of(f, "notes.txt"));
  assert_int_equal(runlog_check(file, RUNLOG_NEW), STATUS_INPUT);
  assert_int_equal(runlog_open(path_of(f, "notes.txt/inner"), RUNLOG_NEW, &run), STATUS_INPUT);
  assert_int_equal(runlog_check("", RUNLOG_NEW), STATUS_INPUT);
}

/* What only a stale lock file and an empty checkpoints/ are in is still a new folder. */
static void test_stale_lock(void **state) {
  struct fixture *f = *state;
  make_out(f);
  put(f, "lock", "host gone, process 1\n", 21);
  assert_int_equal(mkdir(path_of(f, "checkpoints"), 0777), 0);
  runlog_close(open_run(f, RUNLOG_NEW));
}

static void test_lock(void **state) {
  struct fixture *f = *state;
  int ready[2], end[2];
  char byte = 0, name[64];
  assert_true(pipe(ready) == 0 && pipe(end) == 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) { /* holds the folder until it is told to die, and then leaves without cleaning up */
    struct runlog *run;
    close(end[1]);
    if (runlog_open(f->out, RUNLOG_NEW, &run) != STATUS_OK) _exit(1);
    if (write(ready[1], "x", 1) != 1 || read(end[0], &byte, 1) < 0) _exit(2);
    _exit(0);
  }
  struct runlog *run = NULL;
  assert_int_equal(read(ready[0], &byte, 1), 1);
  snprintf(name, sizeof name, "process %ld", (long)child);
  for (enum runlog_mode mode = RUNLOG_NEW; mode <= RUNLOG_OVERWRITE; mode++) {
    assert_int_equal(runlog_check(f->out, mode), STATUS_INPUT);
    assert_int_equal(runlog_open(f->out, mode, &run), STATUS_INPUT);
    assert_non_null(strstr(error_message(), name));
  }
  assert_true(exists(f, "lock"));
  close(end[1]);
  int result;
  assert_int_equal(waitpid(child, &result, 0), child);
  assert_int_equal(result, 0);
  runlog_close(open_run(f, RUNLOG_RESUME));
  close(end[0]);
  close(ready[0]);
  close(ready[1]);
}

static cJSON *parse_run(const struct fixture *f) {
  cJSON *json = cJSON_Parse(content(f, "run.json"));
  assert_non_null(json);
  return json;
}

static const char *text_at(const cJSON *json, const char *section, const char *name) {
  const cJSON *in = section ? cJSON_GetObjectItem(json, section) : json;
  return cJSON_GetStringValue(cJSON_GetObjectItem(in, name));
}

static void test_json(void **state) {
  struct fixture *f = *state;
  struct runlog *run = open_run(f, RUNLOG_NEW);
  assert_int_equal(runlog_finish(run, "complete", NULL, 0), STATUS_INTERNAL);
  assert_int_equal(runlog_start(run, 0, 0), STATUS_OK);
  const char *const classes[] = {"cat", "a \"dog\"\n", "\xff\xc3\xa9"};
  const double mean[] = {0.1, 1.0 / 3, NAN};
  const struct runlog_value options[] = {
      runlog_text("model", "resnet18"),    runlog_real("lr", 0.1),       runlog_integer("batch", 128),
      runlog_unsigned("seed", UINT64_MAX), runlog_bool("resume", false), runlog_text("config", NULL)};
  const struct runlog_value data[] = {runlog_texts("classes", classes, 3), runlog_reals("mean", mean, 3)};
  const struct runlog_section sections[] = {{"options", options, 6}, {"data", data, 2}};
  assert_int_equal(runlog_describe(run, sections, 2), STATUS_OK);
  assert_non_null(strstr(content(f, "run.json"), "18446744073709551615"));
  assert_non_null(strstr(content(f, "run.json"), "0.1,"));
  cJSON *json = parse_run(f);
  assert_string_equal(text_at(json, NULL, "status"), "running");
  assert_string_equal(text_at(json, "options", "model"), "resnet18");
  assert_true(cJSON_IsFalse(cJSON_GetObjectItem(cJSON_GetObjectItem(json, "options"), "resume")));
  const cJSON *list = cJSON_GetObjectItem(cJSON_GetObjectItem(json, "data"), "mean");
  assert_int_equal(cJSON_GetArraySize(list), 3);
  assert_true(cJSON_GetArrayItem(list, 1)->valuedouble == 1.0 / 3);
  assert_true(cJSON_IsNull(cJSON_GetArrayItem(list, 2)));
  list = cJSON_GetObjectItem(cJSON_GetObjectItem(json, "data"), "classes");
  assert_string_equal(cJSON_GetStringValue(cJSON_GetArrayItem(list, 1)), classes[1]);
  assert_string_equal(cJSON_GetStringValue(cJSON_GetArrayItem(list, 2)), "?\xc3\xa9");
  char started[64];
  snprintf(started, sizeof started, "%s", text_at(json, NULL, "started"));
  assert_int_equal(strlen(started), 20);
  cJSON_Delete(json);

  const struct runlog_value result[] = {runlog_real("test_accuracy", 0.5)};
  assert_int_equal(runlog_finish(run, "stopped", result, 1), STATUS_OK);
  assert_int_equal(runlog_finish(run, "complete", result, 1), STATUS_OK);
  runlog_close(run);
  json = parse_run(f);
  assert_string_equal(text_at(json, NULL, "status"), "complete");
  assert_true(cJSON_GetObjectItem(cJSON_GetObjectItem(json, "result"), "test_accuracy")->valuedouble == 0.5);
  assert_string_equal(text_at(json, "options", "model"), "resnet18");
  cJSON_Delete(json);
  assert_false(exists(f, "run.json.tmp"));

  put(f, "run.json", "{\"started\": \"2001-02-03T04:05:06Z\"}", 35); /* a resumed run keeps its start */
  run = open_run(f, RUNLOG_RESUME);
  assert_int_equal(runlog_describe(run, sections, 2), STATUS_OK);
  runlog_close(run);
  json = parse_run(f);
  assert_string_equal(text_at(json, NULL, "started"), "2001-02-03T04:05:06Z");
  assert_string_equal(text_at(json, NULL, "status"), "running");
  cJSON_Delete(json);
}

/* Under a locale with a decimal comma; its name comes from the environment where the usual one is not
 * installed. */
static void test_locale(void **state) {
  const char *name = getenv("CONVOY_TEST_LOCALE");
  if (!setlocale(LC_ALL, name ? name : "de_DE.UTF-8")) skip();
  assert_string_equal(localeconv()->decimal_point, ",");
  test_rows(state);
  teardown(state);
  setup(state);
  test_json(state);
  setlocale(LC_ALL, "C");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      CASE(test_rows),      CASE(test_resume_cuts),  CASE(test_torn_rows),
      CASE(test_full_disk), CASE(test_folder_rules), CASE(test_stale_lock),
      CASE(test_lock),      CASE(test_json),         CASE(test_locale),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
