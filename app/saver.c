/* The saving thread; see saver.h. It lives for one save. */
#include "app/saver.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/clock.h"
#include "model/base/thread.h"

struct saver {
  pthread_t thread;
  bool running; /* begun and not waited for */
  atomic_bool ended;
  struct saver_job job;
  /* The thread's result; a failure stays. */
  enum status status;
  char message[1024];
  double seconds;
};

enum status saver_create(struct saver **saver) {
  *saver = calloc(1, sizeof **saver);
  return *saver ? STATUS_OK : RAISE(STATUS_INPUT, "no memory for the saving thread");
}

static enum status write_all(const struct saver_job *job) {
  const char *broken = snapshot_not_finite(job->snapshot);
  if (broken)
    return RAISE(STATUS_NUMERIC,
                 "%s is not finite after step %" PRId64 "; nothing was saved; try a lower --lr", broken,
                 job->content.progress.step);
  TRY(runlog_sync(job->runlog));
  return checkpoint_write(runlog_checkpoints(job->runlog), &job->content, job->keep, job->best);
}

static void *work(void *argument) {
  struct saver *saver = argument;
  double start = clock_seconds();
  saver->status = write_all(&saver->job);
  saver->seconds = clock_seconds() - start;
  if (saver->status != STATUS_OK) snprintf(saver->message, sizeof saver->message, "%s", error_message());
  atomic_store(&saver->ended, true);
  return NULL;
}

enum status saver_begin(struct saver *saver, const struct saver_job *job) {
  saver->job = *job;
  atomic_store(&saver->ended, false);
  int error = thread_start(&saver->thread, work, saver);
  if (error) return RAISE(STATUS_INTERNAL, "cannot start the saving thread: %s", strerror(error));
  saver->running = true;
  return STATUS_OK;
}

bool saver_ended(const struct saver *saver) {
  return saver->running && atomic_load(&saver->ended);
}

enum status saver_wait(struct saver *saver, struct saver_result *result) {
  *result = (struct saver_result){.step = -1};
  if (saver->running) {
    pthread_join(saver->thread, NULL);
    saver->running = false;
    *result = (struct saver_result){saver->job.content.progress.step, saver->seconds};
  }
  return saver->status == STATUS_OK ? STATUS_OK : RAISE(saver->status, "%s", saver->message);
}

void saver_destroy(struct saver *saver) {
  if (!saver) return;
  if (saver->running) pthread_join(saver->thread, NULL);
  free(saver);
}
