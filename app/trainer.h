/* The steps of a run: plans epochs, keeps the host a fixed number of steps ahead of the metrics, logs,
 * evaluates, saves, stops. */
#ifndef CONVOY_APP_TRAINER_H
#define CONVOY_APP_TRAINER_H

#include "app/evaluate.h"
#include "app/metrics.h"
#include "app/planner.h"
#include "app/pace.h"
#include "app/progress.h"
#include "app/record.h"
#include "app/runlog.h"
#include "app/saver.h"
#include "app/schedule.h"
#include "app/snapshot.h"
#include "app/tensorboard.h"
#include "data/sampler.h"

enum { TRAINER_LAG = 8 }; /* steps enqueued before the host reads the oldest one's metrics */

/* Steps whose metrics are not read yet: [at.step, enqueued); step i has its entries at i modulo
 * TRAINER_LAG + 1. */
struct trainer_queue {
  uint64_t ticket[TRAINER_LAG + 1];
  double spent[TRAINER_LAG + 1]; /* seconds that enqueueing each took */
  int64_t enqueued;              /* steps enqueued in all */
};

/* What the metrics that were read ask for: the same on all ranks. */
struct trainer_asked {
  int64_t halt_step; /* the first step whose metrics ask for the end; 0: none */
  bool save;         /* for a checkpoint that has not begun */
  bool not_finite;   /* a loss was not finite: nothing is updated since */
  int64_t bad_step;  /* ... and that was this step's */
};

struct trainer_saves {
  struct saver *saver; /* rank 0's; NULL on the others */
  double last;         /* clock: when the last one began, or the run */
  int64_t saved_step;  /* rank 0: of the last good checkpoint; -1: none */
  int64_t common_step; /* the last step that all ranks saved together; the same on all; -1: none */
  bool failed;         /* rank 0: a save beside the steps has failed; all stop */
  bool best;           /* rank 0: of the running save */
  double stood;        /* seconds that it stopped the steps for */
};

struct trainer {
  /* Set before trainer_create; borrowed. */
  const struct train_options *options;
  struct session *session;
  const struct record *record;
  struct snapshot *snapshot; /* rank 0: all that a checkpoint holds; elsewhere only the parameters */
  struct start *start;
  struct runlog *runlog;     /* rank 0's; NULL on the others */
  struct metrics *metrics;   /* rank 0's; NULL: none are wanted */
  struct tensorboard *board; /* the same */
  struct sampler sampler;
  struct schedule schedule;
  struct checkpoint_progress at; /* what is done and counted; the same on all ranks but for the times */

  int64_t epoch_steps; /* steps an epoch */
  int64_t last_step;   /* the run ends after it */
  struct planner planner;
  struct epoch_plan *plan; /* this epoch's, from its first remaining step on; the planner's */
  struct trainer_queue queue;
  struct trainer_asked asked;
  struct trainer_saves saves;

  struct pace pace;
  struct pace_spread spread; /* of the last epoch that ended */
  struct evaluation tested;  /* the last evaluation; samples 0: none */
  struct progress view;
  double opened; /* clock at trainer_create: the view's zero */
};

/* Makes room for the epochs' plans. trainer->at is where the run stands (zero: at its start). */
enum status trainer_create(struct trainer *trainer);
void trainer_destroy(struct trainer *trainer); /* also a zeroed one */

/* Trains to the last step and begins the checkpoint of it, which trainer_end waits for. STATUS_STOPPED
 * without a record: a signal ended it, and a checkpoint is there if a step was made. STATUS_NUMERIC: the loss
 * is not finite; nothing was updated or saved since. Collective. */
enum status trainer_run(struct trainer *trainer);
/* After a trainer_run that was STATUS_OK: the last checkpoint is durable, or why it is not. Needs no net any
 * more. Collective. */
enum status trainer_end(struct trainer *trainer);

/* Takes the snapshot and compares the ranks' parameters; STATUS_COMM if they differ. Collective. */
enum status trainer_check_replicas(struct trainer *trainer);

#endif
