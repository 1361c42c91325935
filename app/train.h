/* `convoy train`: one run from its options to its last checkpoint. */
#ifndef CONVOY_APP_TRAIN_H
#define CONVOY_APP_TRAIN_H

#include "app/trainer.h"
#include "app/watchdog.h"

enum status train_command(int argc, char **argv, const struct world *world);

/* Everything that one run has, for the files that make up `convoy train`. */
struct train {
  struct train_options options;
  const struct world *world;
  struct watchdog *watchdog; /* NULL: one rank */
  struct session session;
  struct session_plan plan;
  struct start start;
  double rate_factor; /* of --lr, by --scale-lr */
  float *drawn;       /* the parameters that a new run begins with, until its net has them; NULL: not drawn */
  struct record record;
  struct snapshot snapshot;      /* elsewhere than on rank 0 only the parameters */
  struct runlog *runlog;         /* rank 0 */
  struct checkpoint *checkpoint; /* rank 0: resumed from it; NULL: a new run */
  bool described;                /* rank 0: run.json is this run's */
  struct trainer trainer;
};

/* train_plan.c: from the options and the open data set to the plan, the sampler, the schedule and the record.
 * STATUS_INPUT for options that do not fit the data. The same on all ranks but for the rank's own part. */
enum status train_plan(struct train *train);

/* banner.c: says on stdout what will run where. Collective. */
enum status banner_print(const struct train *train);

/* describe.c: writes run.json. Rank 0. */
enum status describe_run(const struct train *train);
/* Opens --metrics, if it is wanted, as trainer->metrics. Rank 0. */
enum status describe_metrics(struct train *train);
/* Opens --tensorboard, if it is wanted, as trainer->board. Rank 0. */
enum status describe_tensorboard(struct train *train, enum runlog_mode mode);
/* Adds how it ended: "complete", "stopped" or "failed". Rank 0. */
enum status describe_end(const struct train *train, const char *ending);

#endif
