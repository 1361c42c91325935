/* See library_lock.h. */
#include "model/base/library_lock.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

void library_lock(void) {
  pthread_mutex_lock(&lock);
}

void library_unlock(void) {
  pthread_mutex_unlock(&lock);
}
