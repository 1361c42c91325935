/* Progress: one line that fits and vanishes on a terminal, plain lines elsewhere. */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cmocka.h>

#include "app/progress.h"
#include "model/base/log.h"
#include "tests/left_out.h"

static struct progress_values at(int64_t step, double seconds) {
  return (struct progress_values){.epoch = 1,
                                  .epochs = 2,
                                  .step = step,
                                  .steps = 100,
                                  .loss = 2.25,
                                  .images_per_s = 1234.4,
                                  .seconds = seconds};
}

static void test_text(void **state) {
  (void)state;
  char text[256];
  struct progress_values values = at(25, 10);
  progress_text(&values, 5, 200, text, sizeof text);
  assert_string_equal(
      text, "epoch 1/2  step 25/100  loss 2.2500  1234 images/s  00:38 left  [=====>              ]");
  values.loss = NAN;
  values.images_per_s = NAN;
  values.step = 5;
  progress_text(&values, 5, 200, text, sizeof text);
  assert_string_equal(text, "epoch 1/2  step 5/100  [=>                  ]");
  values = at(99, 1e6);
  for (int columns = 0; columns < 120; columns++) {
    int length = progress_text(&values, 0, columns, text, sizeof text);
    assert_true(length <= columns && length == (int)strlen(text));
  }
}

/* Runs `scene` with stdout at `fd` and gives it back. */
static void with_stdout(int fd, void (*scene)(void)) {
  fflush(stdout);
  int saved = dup(STDOUT_FILENO);
  assert_true(dup2(fd, STDOUT_FILENO) >= 0);
  scene();
  fflush(stdout);
  dup2(saved, STDOUT_FILENO);
  close(saved);
}

static struct progress progress;

/* A hundred steps of 0.5 s with a line of the log in between. */
static void long_scene(void) {
  progress_open(&progress, false, 0);
  for (int64_t step = 1; step <= 100; step++) {
    struct progress_values values = at(step, (double)step * 0.5);
    progress_update(&progress, &values);
    if (step == 50) log_info("epoch 1 done");
  }
  progress_close(&progress);
}

static void test_plain(void **state) {
  (void)state;
  int ends[2];
  char text[4096];
  assert_int_equal(pipe(ends), 0);
  with_stdout(ends[1], long_scene);
  close(ends[1]);
  ssize_t got = read(ends[0], text, sizeof text - 1);
  assert_true(got > 0);
  text[got] = '\0';
  close(ends[0]);
  assert_null(strchr(text, '\r'));
  assert_null(strchr(text, '\033'));
  int lines = 0;
  for (char *c = text; *c; c++) lines += *c == '\n';
  assert_int_equal(lines, 1 + 5); /* the log's and those at 0.5, 10.5, 20.5, 30.5, 40.5 s */
  assert_int_equal(strncmp(text, "epoch 1/2  step 1/100", 21), 0);
  assert_null(strchr(text, '['));
}

static void quiet_scene(void) {
  progress_open(&progress, true, 0);
  struct progress_values values = at(1, 1);
  assert_false(progress_due(&progress, 1000));
  progress_update(&progress, &values);
  progress_close(&progress);
  progress_close(&progress);
}

static void test_quiet(void **state) {
  (void)state;
  int ends[2];
  char text[64];
  assert_int_equal(pipe(ends), 0);
  with_stdout(ends[1], quiet_scene);
  close(ends[1]);
  assert_int_equal(read(ends[0], text, sizeof text), 0);
  close(ends[0]);
}

/* What a terminal of `columns` shows after `text`: lines, each redrawn by \r. Nothing may wrap. */
enum { LINES = 512 };
static void show(const char *text, int columns, char lines[LINES][128], int *count) {
  int column = 0;
  *count = 0;
  memset(lines[0], ' ', 128);
  for (; *text; text++) {
    if (*text == '\r') {
      column = 0;
    } else if (*text == '\n') {
      assert_true(++*count < LINES);
      memset(lines[*count], ' ', 128);
      column = 0;
    } else {
      assert_true(column < columns);
      lines[*count][column++] = *text;
    }
  }
}

/* A terminal of 60 columns and the end that sees what is written to it. */
static void open_terminal(int *controller, int *terminal) {
  *controller = posix_openpt(O_RDWR | O_NOCTTY);
  if (*controller < 0 || grantpt(*controller) != 0 || unlockpt(*controller) != 0)
    leave_out("a pseudo-terminal");
  *terminal = open(ptsname(*controller), O_RDWR | O_NOCTTY);
  assert_true(*terminal >= 0);
  struct winsize size = {.ws_row = 24, .ws_col = 60};
  assert_int_equal(ioctl(*terminal, TIOCSWINSZ, &size), 0);
}

static void test_live(void **state) {
  (void)state;
  int controller, terminal;
  open_terminal(&controller, &terminal);
  static char text[1 << 16];
  size_t used = 0;
  fcntl(controller, F_SETFL, O_NONBLOCK);
  with_stdout(terminal, long_scene);
  for (ssize_t got; (got = read(controller, text + used, sizeof text - 1 - used)) > 0;) used += (size_t)got;
  text[used] = '\0';
  assert_null(strchr(text, '\033'));
  assert_non_null(strstr(text, "step 99/100")); /* many redraws */
  static char lines[LINES][128];
  int count;
  show(text, 60, lines, &count);
  assert_int_equal(count, 1); /* only the log's line stays, whole */
  assert_int_equal(strncmp(lines[0], "epoch 1 done ", 13), 0);
  for (int i = 12; i < 60; i++) assert_true(lines[0][i] == ' ' && lines[1][i] == ' ');
  for (int i = 0; i < 12; i++) assert_true(lines[1][i] == ' ');
  close(terminal);
  close(controller);
}

enum { WARNINGS = 400 };

static void *warn(void *unused) {
  (void)unused;
  for (int i = 0; i < WARNINGS; i++) log_warning("number %03d", i);
  return NULL;
}

/* A thread warns, as that of a save does, while the live line is drawn as fast as possible. */
static void threads_scene(void) {
  pthread_t thread;
  progress_open(&progress, false, 0);
  if (pthread_create(&thread, NULL, warn, NULL) != 0) _exit(1);
  for (int64_t step = 1; pthread_tryjoin_np(thread, NULL) != 0; step++) {
    struct progress_values values = at(step % 100, (double)step);
    progress_update(&progress, &values);
  }
  progress_close(&progress);
}

static void test_threads(void **state) {
  (void)state;
  int controller, terminal, ended;
  open_terminal(&controller, &terminal);
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(terminal, STDERR_FILENO);
    with_stdout(terminal, threads_scene);
    _exit(0);
  }
  close(terminal);
  size_t used = 0, capacity = 1 << 26;
  char *text = malloc(capacity);
  assert_non_null(text);
  for (ssize_t got; used < capacity - 1 && (got = read(controller, text + used, capacity - 1 - used)) > 0;)
    used += (size_t)got; /* ends with an error when the child has ended */
  text[used] = '\0';
  close(controller);
  assert_int_equal(waitpid(child, &ended, 0), child);
  assert_int_equal(ended, 0);
  static char lines[LINES][128];
  char expected[129];
  int count;
  show(text, 60, lines, &count);
  assert_int_equal(count, WARNINGS);
  for (int i = 0; i < WARNINGS; i++) {
    snprintf(expected, sizeof expected, "warning: number %03d%108s", i, "");
    assert_memory_equal(lines[i], expected, 60);
  }
  free(text);
}

int main(void) {
  unsetenv("OMPI_COMM_WORLD_SIZE");
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_text), cmocka_unit_test(test_plain),
                                     cmocka_unit_test(test_quiet), cmocka_unit_test(test_live),
                                     cmocka_unit_test(test_threads)};
  return suite_status(cmocka_run_group_tests(tests, NULL, NULL));
}
