/* A run's folder: who may use it, and its run.json. */
#include <sys/wait.h>

#include <cjson/cJSON.h>

#include "tests/runlog_fixture.h"

static const char loss_header[] = "step,epoch,loss,lr,images_per_s,seconds\n";
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
  const char *const classes[] = {
      "cat", "a \"dog\"\n", "\xff\xc3\xa9",
      "\xc1\xbf \xe0\x9f\xbf \xed\xa0\x80 \xf4\x90\x80\x80 \xf0\x8f\xbf\xbf \xf0\x9f\x9a\x82"};
  const double mean[] = {0.1, 1.0 / 3, NAN};
  const struct runlog_value options[] = {runlog_text("model", "resnet18"), runlog_real("lr", 0.1),
                                         runlog_integer("batch", 128),     runlog_integer("seed", INT64_MAX),
                                         runlog_bool("resume", false),     runlog_text("config", NULL)};
  const struct runlog_value data[] = {runlog_texts("classes", classes, 4), runlog_reals("mean", mean, 3)};
  const struct runlog_section sections[] = {{"options", options, 6}, {"data", data, 2}};
  assert_int_equal(runlog_describe(run, sections, 2), STATUS_OK);
  assert_non_null(strstr(content(f, "run.json"), "9223372036854775807"));
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
  assert_string_equal(cJSON_GetStringValue(cJSON_GetArrayItem(list, 3)),
                      "?? ??? ??? ???? ???? \xf0\x9f\x9a\x82");
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

/* What lies under the name that run.json is written under first is not written into: neither the file that a
 * link names, nor a pipe, which would wait for a reader. */
static void test_temporary_is_not_written_into(void **state) {
  struct fixture *f = *state;
  struct runlog *run = open_run(f, RUNLOG_NEW);
  assert_int_equal(runlog_start(run, 0, 0), STATUS_OK);
  put(f, "precious", "kept", 4);
  for (int pipe = 0; pipe < 2; pipe++) {
    const char *temporary = path_of(f, "run.json.tmp");
    assert_int_equal(pipe ? mkfifo(temporary, 0600) : symlink("precious", temporary), 0);
    alarm(60);
    assert_int_equal(runlog_describe(run, NULL, 0), STATUS_OK);
    alarm(0);
    assert_string_equal(content(f, "precious"), "kept");
    struct stat info;
    assert_int_equal(lstat(path_of(f, "run.json"), &info), 0);
    assert_true(S_ISREG(info.st_mode));
  }
  runlog_close(run);
}

static void test_json_with_a_comma_locale(void **state) {
  use_decimal_comma(*state);
  test_json(state);
  setlocale(LC_ALL, "C");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      CASE(test_folder_rules),
      CASE(test_stale_lock),
      CASE(test_lock),
      CASE(test_json),
      CASE(test_temporary_is_not_written_into),
      CASE(test_json_with_a_comma_locale),
  };
  return suite_status(cmocka_run_group_tests(tests, NULL, NULL));
}
