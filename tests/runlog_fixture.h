/* A run's folder in a place of its own, shared by the suites of the run log. */
#ifndef CONVOY_TESTS_RUNLOG_FIXTURE_H
#define CONVOY_TESTS_RUNLOG_FIXTURE_H

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
#include <unistd.h>

#include <cmocka.h>

#include "app/runlog.h"
#include "tests/left_out.h"

struct fixture {
  char base[64], out[128];
};

static inline int setup(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  snprintf(f->base, sizeof f->base, "/tmp/test_runlog.XXXXXX");
  if (!mkdtemp(f->base)) return -1;
  snprintf(f->out, sizeof f->out, "%s/runs/one", f->base);
  *state = f;
  return 0;
}

static inline int teardown(void **state) {
  struct fixture *f = *state;
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", f->base);
  int result = system(command);
  free(f);
  return result;
}

static inline const char *path_of(const struct fixture *f, const char *name) {
  static char path[256];
  snprintf(path, sizeof path, "%s/%s", f->out, name);
  return path;
}

static inline bool exists(const struct fixture *f, const char *name) {
  return access(path_of(f, name), F_OK) == 0;
}

static inline void put(const struct fixture *f, const char *name, const char *text, size_t bytes) {
  FILE *file = fopen(path_of(f, name), "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
}

static inline void make_out(const struct fixture *f) {
  char command[160];
  snprintf(command, sizeof command, "mkdir -p %s", f->out);
  assert_int_equal(system(command), 0);
}

static inline const char *content(const struct fixture *f, const char *name) {
  static char text[8192];
  FILE *file = fopen(path_of(f, name), "rb");
  assert_non_null(file);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  return text;
}

static inline struct runlog *open_run(const struct fixture *f, enum runlog_mode mode) {
  struct runlog *run = NULL;
  assert_int_equal(runlog_open(f->out, mode, &run), STATUS_OK);
  return run;
}

static inline void write_rows(struct runlog *run, int64_t from, int64_t to) {
  for (int64_t step = from; step <= to; step++) {
    struct runlog_loss row = {step, (step + 3) / 4, 1.0 / (double)step, 0.1, 1234.5, (double)step};
    assert_int_equal(runlog_loss(run, &row), STATUS_OK);
    if (step % 4) continue;
    struct runlog_epoch epoch = {step / 4, step, 2, 0.25, NAN, NAN, 1000, (double)step};
    assert_int_equal(runlog_epoch(run, &epoch), STATUS_OK);
  }
}

/* A locale with a decimal comma; where it is not installed it is made in the fixture's folder. */
static inline void use_decimal_comma(const struct fixture *f) {
  static const char name[] = "de_DE.UTF-8";
  char command[256];
  if (!setlocale(LC_ALL, name)) {
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/%s > /dev/null 2>&1", f->base, name);
    if (system(command) != 0) leave_out("locales");
    setenv("LOCPATH", f->base, 1);
    assert_non_null(setlocale(LC_ALL, name));
    unsetenv("LOCPATH");
  }
  assert_string_equal(localeconv()->decimal_point, ",");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

#endif
