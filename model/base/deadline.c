/* The thread that ends the process; see deadline.h. Its state is the process's, as what it ends. */
#include "model/base/deadline.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "model/base/clock.h"
#include "model/base/thread.h"

enum { TEXT = 512 };

static struct {
  pthread_mutex_t lock; /* of all below */
  pthread_cond_t changed;
  bool running, set, final;
  double moment; /* of clock_seconds */
  int code;
  char text[TEXT];
} deadline = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A reader of stderr that is frozen itself must not hold the process up. */
static void say(const char *text) {
  struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
  if (!text[0] || poll(&out, 1, 0) != 1) return;
  ssize_t written = write(STDERR_FILENO, text, strlen(text)); /* at most PIPE_BUF: it does not block */
  (void)written;
}

static void *wait_for_moment(void *unused) {
  (void)unused;
  pthread_mutex_lock(&deadline.lock);
  while (!deadline.set || clock_seconds() < deadline.moment) {
    if (!deadline.set) {
      pthread_cond_wait(&deadline.changed, &deadline.lock);
      continue;
    }
    struct timespec until = {.tv_sec = (time_t)deadline.moment};
    until.tv_nsec = (long)(1e9 * (deadline.moment - (double)until.tv_sec));
    pthread_cond_timedwait(&deadline.changed, &deadline.lock, &until);
  }
  signal(SIGPIPE, SIG_IGN); /* nobody may read stderr any more */
  say(deadline.text);
  _exit(deadline.code);
}

static bool start(void) {
  pthread_t thread;
  pthread_condattr_t steady;
  pthread_condattr_init(&steady);
  pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
  pthread_cond_init(&deadline.changed, &steady);
  pthread_condattr_destroy(&steady);
  bool made = thread_start(&thread, wait_for_moment, NULL) == 0;
  if (made) pthread_detach(thread);
  return made;
}

static void set(unsigned seconds, int code, const char *text, bool final) {
  double moment = clock_seconds() + seconds;
  pthread_mutex_lock(&deadline.lock);
  if (!deadline.final || (final && moment < deadline.moment)) {
    if (!deadline.running) deadline.running = start();
    deadline.set = true;
    deadline.final = final;
    deadline.moment = moment;
    deadline.code = code;
    snprintf(deadline.text, TEXT, "%s", text ? text : "");
    /* Without a thread there is still the kernel's timer; it ends the process with a signal. */
    if (deadline.running)
      pthread_cond_signal(&deadline.changed);
    else
      alarm(seconds);
  }
  pthread_mutex_unlock(&deadline.lock);
}

void deadline_set(unsigned seconds, int code, const char *text) {
  set(seconds, code, text, false);
}

void deadline_final(unsigned seconds, int code) {
  set(seconds, code, NULL, true);
}

void deadline_clear(void) {
  pthread_mutex_lock(&deadline.lock);
  if (!deadline.final) {
    deadline.set = false;
    if (!deadline.running) alarm(0);
  }
  pthread_mutex_unlock(&deadline.lock);
}
