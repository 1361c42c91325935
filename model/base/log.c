/* Lines to stdout and stderr; see log.h. The speaker's name is the only state of the process kept here. */
#include "model/base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static struct {
  int rank;
  char host[64];
  bool quiet;
  void (*before_line)(void);
} speaker;

enum { LINE = 4096 }; /* room for two paths */

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

void log_lock(void) {
  pthread_mutex_lock(&lock);
}

void log_unlock(void) {
  pthread_mutex_unlock(&lock);
}

void log_open(int rank, const char *host, bool quiet) {
  speaker.rank = rank;
  speaker.quiet = quiet;
  snprintf(speaker.host, sizeof speaker.host, "%s", host);
}

void log_on_line(void (*hook)(void)) {
  log_lock();
  speaker.before_line = hook;
  log_unlock();
}

void log_one_line(char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < ' ' || *text == 127) *text = '?';
}

void log_info(const char *format, ...) {
  char line[LINE];
  if (speaker.rank != 0 || speaker.quiet) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  log_one_line(line);
  log_lock();
  if (speaker.before_line) speaker.before_line();
  fprintf(stdout, "%s\n", line);
  fflush(stdout);
  log_unlock();
}

void log_warning(const char *format, ...) {
  char line[LINE];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  log_one_line(line);
  log_lock();
  if (speaker.before_line) speaker.before_line();
  if (speaker.rank == 0)
    fprintf(stderr, "warning: %s\n", line);
  else
    fprintf(stderr, "warning: [rank %d %s] %s\n", speaker.rank, speaker.host, line);
  fflush(stderr);
  log_unlock();
}
