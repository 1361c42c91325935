/* Decoding threads behind a bounded queue; see decode_pool.h. */
#include "data/decode_pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "data/image_decode.h"
#include "model/base/thread.h"

enum { QUEUE = 64, MAX_THREADS = 16 };

struct job {
  struct import_image image;
  uint8_t *data; /* owned */
  size_t bytes;
  int64_t number;
};

struct decode_pool {
  struct import_set *set;
  pthread_mutex_t lock;
  pthread_cond_t filled, freed;
  struct job queue[QUEUE];
  int begin, count;
  int64_t submitted, failed_number; /* the failed image that was submitted first; -1: none */
  enum status failed;
  char message[1024];
  bool closed;
  int threads;
  pthread_t thread[MAX_THREADS];
};

static enum status run(struct decode_pool *pool, struct job *job) {
  struct image image;
  enum status status = image_decode(job->image.name, job->data, job->bytes, &image);
  free(job->data);
  if (status != STATUS_OK) {
    free(job->image.name);
    return status;
  }
  job->image.height = image.height;
  job->image.width = image.width;
  job->image.pixels = image.pixels;
  return import_set_add(pool->set, job->image, 1, NULL);
}

/* Called with the lock held. The error text is the thread's own: it is kept for the thread that asks. */
static void record(struct decode_pool *pool, int64_t number, enum status status) {
  if (pool->failed != STATUS_OK && pool->failed_number < number) return;
  pool->failed = status;
  pool->failed_number = number;
  snprintf(pool->message, sizeof pool->message, "%s", error_message());
}

static void *work(void *argument) {
  struct decode_pool *pool = argument;
  pthread_mutex_lock(&pool->lock);
  for (;;) {
    while (pool->count == 0 && !pool->closed) pthread_cond_wait(&pool->filled, &pool->lock);
    if (pool->count == 0) break;
    struct job job = pool->queue[pool->begin];
    pool->begin = (pool->begin + 1) % QUEUE;
    pool->count--;
    pthread_cond_signal(&pool->freed);
    pthread_mutex_unlock(&pool->lock);
    enum status status = run(pool, &job);
    pthread_mutex_lock(&pool->lock);
    if (status != STATUS_OK) {
      record(pool, job.number, status);
      pthread_cond_signal(&pool->freed);
    }
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

enum status decode_pool_create(int threads, struct import_set *set, struct decode_pool **created) {
  struct decode_pool *pool = calloc(1, sizeof *pool);
  if (!pool) return RAISE(STATUS_INPUT, "no memory for decoding");
  pool->set = set;
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->filled, NULL);
  pthread_cond_init(&pool->freed, NULL);
  if (threads > MAX_THREADS) threads = MAX_THREADS;
  while (pool->threads < threads && thread_start(&pool->thread[pool->threads], work, pool) == 0)
    pool->threads++;
  if (pool->threads == 0) {
    decode_pool_destroy(pool);
    return RAISE(STATUS_INTERNAL, "no thread can be started for decoding");
  }
  *created = pool;
  return STATUS_OK;
}

enum status decode_pool_submit(struct decode_pool *pool, struct import_image image, uint8_t *data,
                               size_t bytes) {
  pthread_mutex_lock(&pool->lock);
  while (pool->count == QUEUE && pool->failed == STATUS_OK) pthread_cond_wait(&pool->freed, &pool->lock);
  bool good = pool->failed == STATUS_OK;
  if (good) {
    pool->queue[(pool->begin + pool->count) % QUEUE] =
        (struct job){.image = image, .data = data, .bytes = bytes, .number = pool->submitted++};
    pool->count++;
    pthread_cond_signal(&pool->filled);
  }
  pthread_mutex_unlock(&pool->lock);
  if (good) return STATUS_OK;
  free(image.name);
  free(data);
  return RAISE(STATUS_INPUT, "an image before could not be decoded");
}

static void join(struct decode_pool *pool) {
  pthread_mutex_lock(&pool->lock);
  pool->closed = true;
  pthread_cond_broadcast(&pool->filled);
  pthread_mutex_unlock(&pool->lock);
  for (int i = 0; i < pool->threads; i++) pthread_join(pool->thread[i], NULL);
  pool->threads = 0;
}

enum status decode_pool_finish(struct decode_pool *pool) {
  join(pool);
  return pool->failed == STATUS_OK ? STATUS_OK : RAISE(pool->failed, "%s", pool->message);
}

void decode_pool_destroy(struct decode_pool *pool) {
  if (!pool) return;
  join(pool);
  pthread_cond_destroy(&pool->filled);
  pthread_cond_destroy(&pool->freed);
  pthread_mutex_destroy(&pool->lock);
  free(pool);
}
