/* Threads beside the main one. */
#ifndef CONVOY_MODEL_BASE_THREAD_H
#define CONVOY_MODEL_BASE_THREAD_H

#include <pthread.h>

/* Starts a thread in which every signal is blocked: signals are the main thread's. 0, or an errno. */
int thread_start(pthread_t *thread, void *(*work)(void *argument), void *argument);

#endif
