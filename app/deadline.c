/* The deadline's alarm; see deadline.h. A handler can only use variables of the process. */
#include "app/deadline.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char line[512];
static volatile sig_atomic_t exit_code;

static void leave(int number) {
  (void)number;
  ssize_t written = write(STDERR_FILENO, line, strlen(line));
  (void)written; /* nothing is left to be done about it */
  _exit(exit_code);
}

void deadline_set(unsigned seconds, int code, const char *text) {
  struct sigaction action = {.sa_handler = leave};
  deadline_clear();
  sigemptyset(&action.sa_mask);
  snprintf(line, sizeof line, "%s", text ? text : "");
  exit_code = code;
  sigaction(SIGALRM, &action, NULL);
  alarm(seconds);
}

void deadline_clear(void) {
  alarm(0);
}
