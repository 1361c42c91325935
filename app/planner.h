/* An epoch's plan: this rank's samples in order, where each step begins among them, each step's rates. The
 * next epoch's is made by a thread while this one's steps run. */
#ifndef CONVOY_APP_PLANNER_H
#define CONVOY_APP_PLANNER_H

#include <pthread.h>

#include "app/schedule.h"
#include "data/sampler.h"
#include "model/backend/backend.h"

/* From step `first` of the epoch on. */
struct epoch_plan {
  int64_t epoch, first; /* epoch -1: none */
  struct sample *list;  /* [count] */
  int64_t count;
  uint32_t *begin;       /* [steps]: in list */
  struct step_row *rows; /* [steps] */
  int64_t steps;
};

struct planner {
  /* Set before planner_create; borrowed. */
  const struct sampler *sampler;
  const struct schedule *schedule;
  double beta1, beta2; /* Adam's */
  const struct world *world;

  struct sample *order; /* of all ranks, room to plan in */
  struct epoch_plan plan[2];
  int current;
  pthread_t thread;
  bool runs;
  int64_t wanted; /* the epoch that the thread makes */
};

/* Room for two plans and the order. STATUS_INPUT: no memory; planner_destroy is due then, too. */
enum status planner_create(struct planner *planner);
/* Waits for the thread and frees what there is; also of a zeroed one. */
void planner_destroy(struct planner *planner);

/* The plan of an epoch from step `first` on: the one made ahead, or made now. It stays until the call after
 * the next. */
enum status planner_get(struct planner *planner, int64_t epoch, int64_t first, struct epoch_plan **plan);

/* Begins to make the whole plan of `epoch`, in the place of the plan before the current one, which must no
 * longer be in use. */
void planner_ahead(struct planner *planner, int64_t epoch);

#endif
