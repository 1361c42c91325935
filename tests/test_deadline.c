/* The deadline ends a process whatever its threads do, and world_abort ends one although MPI does not. */
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/base/clock.h"
#include "model/base/deadline.h"
#include "model/base/world.h"

enum { SURVIVED = 77, PATIENCE = 30 };

/* Instead of MPI's: a launcher that does not answer. */
int MPI_Abort(MPI_Comm comm, int code) {
  (void)comm;
  (void)code;
  for (;;) pause();
}

static void spin(void) {
  for (volatile unsigned i = 0;; i++) {
  }
}

/* The child's way to the deadline. */
static void block_all_signals(void) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, NULL);
}

static void blocked(void) {
  block_all_signals();
  deadline_set(1, 5, "error: late\n");
  spin();
}

static void ignored(void) {
  deadline_set(1, 5, "error: late\n");
  signal(SIGALRM, SIG_IGN);
  alarm(0);
  flockfile(stderr); /* as a thread that is stuck while it prints */
  pause();
}

static void cleared(void) {
  deadline_set(1, 5, "error: late\n");
  deadline_clear();
  sleep(2);
  _exit(SURVIVED);
}

static void replaced(void) {
  deadline_set(1, 5, "error: late\n");
  deadline_set(PATIENCE, 6, "error: later\n");
  sleep(2);
  deadline_set(1, 7, "error: last\n");
  pause();
}

static void final(void) {
  deadline_final(1, 5);
  deadline_clear();
  deadline_set(PATIENCE, 6, "error: later\n");
  deadline_final(PATIENCE, 7);
  pause();
}

static void final_sooner(void) {
  deadline_final(PATIENCE, 5);
  deadline_final(1, 6);
  pause();
}

static void *set_and_clear(void *unused) {
  (void)unused;
  for (int i = 0; i < 2000; i++) {
    deadline_set(1, 5, "error: late\n");
    deadline_clear();
  }
  return NULL;
}

static void many_threads(void) {
  pthread_t thread[4];
  for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, set_and_clear, NULL);
  for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
  sleep(2);
  _exit(SURVIVED);
}

static void aborted(void) {
  block_all_signals();
  world_abort(&(struct world){.size = 2}, 5);
}

/* Runs a child; gives its exit code and what it wrote to stderr. */
static int run_child(void (*way)(void), char *text, size_t capacity, double *seconds) {
  int ends[2], state;
  double begin = clock_seconds();
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    way();
    _exit(SURVIVED);
  }
  close(ends[1]);
  struct pollfd poll_fd = {.fd = ends[0], .events = POLLIN};
  size_t used = 0;
  ssize_t got = 1;
  while (got > 0 && poll(&poll_fd, 1, PATIENCE * 1000) == 1 && used + 1 < capacity)
    if ((got = read(ends[0], text + used, capacity - used - 1)) > 0) used += (size_t)got;
  text[used] = '\0';
  if (got != 0) kill(child, SIGKILL);
  close(ends[0]);
  assert_int_equal(waitpid(child, &state, 0), child);
  *seconds = clock_seconds() - begin;
  return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

static void expect(void (*way)(void), int code, const char *text) {
  char found[256];
  double seconds;
  int ended = run_child(way, found, sizeof found, &seconds);
  assert_string_equal(found, text);
  assert_int_equal(ended, code);
  assert_true(seconds > 0.9);
}

static void test_ends(void **state) {
  (void)state;
  expect(blocked, 5, "error: late\n");
  expect(ignored, 5, "error: late\n");
}

static void test_clear(void **state) {
  (void)state;
  expect(cleared, SURVIVED, "");
  expect(replaced, 7, "error: last\n");
  expect(many_threads, SURVIVED, "");
}

static void test_final(void **state) {
  (void)state;
  expect(final, 5, "");
  expect(final_sooner, 6, "");
}

/* stderr is a pipe that is full and that nobody reads: the text is lost, the process ends all the same. */
static void test_full_pipe(void **state) {
  (void)state;
  int ends[2], status;
  char block[4096] = "";
  assert_int_equal(pipe(ends), 0);
  assert_int_equal(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
  while (write(ends[1], block, sizeof block) > 0) continue;
  assert_int_equal(errno, EAGAIN);
  assert_int_equal(fcntl(ends[1], F_SETFL, 0), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    blocked();
  }
  double begin = clock_seconds();
  pid_t ended = 0;
  while (ended == 0 && clock_seconds() - begin < PATIENCE) {
    ended = waitpid(child, &status, WNOHANG);
    usleep(20000);
  }
  if (ended == 0) kill(child, SIGKILL);
  close(ends[0]);
  close(ends[1]);
  assert_int_equal(ended, child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 5);
}

static void test_abort(void **state) {
  (void)state;
  expect(aborted, 5, "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ends),      cmocka_unit_test(test_clear), cmocka_unit_test(test_final),
      cmocka_unit_test(test_full_pipe), cmocka_unit_test(test_abort),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
