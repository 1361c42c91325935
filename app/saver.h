/* Saves beside the training: a thread writes one checkpoint from a copy in host memory while the steps go on.
 * Rank 0 only. All functions are the main thread's. */
#ifndef CONVOY_APP_SAVER_H
#define CONVOY_APP_SAVER_H

#include "app/checkpoint.h"
#include "app/runlog.h"
#include "app/snapshot.h"

struct saver;

/* One save. The content is copied; what it and the rest point to is not touched until saver_wait has
 * returned. */
struct saver_job {
  struct checkpoint_content content; /* its items are the snapshot's */
  const struct snapshot *snapshot;
  struct runlog *runlog; /* its rows are made durable first */
  int keep;
  bool best;
};

/* STATUS_INPUT: no memory. */
enum status saver_create(struct saver **saver);
void saver_destroy(struct saver *saver); /* waits; NULL: nothing */

/* Starts a save; saver_wait was called since the last one. */
enum status saver_begin(struct saver *saver, const struct saver_job *job);

/* Whether a save has ended that saver_wait has not been asked about. */
bool saver_ended(const struct saver *saver);

struct saver_result {
  int64_t step;   /* of the checkpoint; -1: there was nothing to wait for */
  double seconds; /* that writing took */
};

/* Waits for the running save. A failure is given by this call and all later ones: STATUS_STORAGE as
 * checkpoint_write says it, or STATUS_NUMERIC without a file if a value is not finite. */
enum status saver_wait(struct saver *saver, struct saver_result *result);

#endif
