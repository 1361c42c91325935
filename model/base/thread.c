/* Threads that no signal interrupts; see thread.h. */
#include "model/base/thread.h"

#include <signal.h>

int thread_start(pthread_t *thread, void *(*work)(void *argument), void *argument) {
  sigset_t all, former;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &former); /* a thread begins with its maker's mask */
  int error = pthread_create(thread, NULL, work, argument);
  pthread_sigmask(SIG_SETMASK, &former, NULL);
  return error;
}
