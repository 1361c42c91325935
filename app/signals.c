/* The handlers of the stop signals; see signals.h. A handler can only leave word in variables of the process.
 */
#include "app/signals.h"

#include <signal.h>
#include <stddef.h>

#include "model/base/clock.h"

static volatile sig_atomic_t received; /* whether one of the signals came */
static double received_at;             /* of clock_seconds */

static void handle(int number) {
  if (!received) {
    received_at = clock_seconds();
    received = 1;
    return;
  }
  if (clock_seconds() - received_at < 0.5) return;
  signal(number, SIG_DFL);
  raise(number);
}

static const int numbers[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP};

void signals_install(void) {
  struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaddset(&action.sa_mask, numbers[i]);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    struct sigaction former;
    bool ignored = sigaction(numbers[i], NULL, &former) == 0 && former.sa_handler == SIG_IGN;
    /* A shell's background job: Ctrl-C is not for it. One under nohup: nor is the terminal's end. */
    if ((numbers[i] == SIGINT || numbers[i] == SIGHUP) && ignored) continue;
    sigaction(numbers[i], &action, NULL);
  }
}

void signals_ignore_size_limit(void) {
  signal(SIGXFSZ, SIG_IGN);
}

void signals_ignore_closed_output(void) {
  signal(SIGPIPE, SIG_IGN);
}

void signals_ignore(void) {
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) signal(numbers[i], SIG_IGN);
}

bool signals_stop_wanted(void) {
  return received != 0;
}
