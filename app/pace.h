/* Where a rank's time goes while it trains, and how the ranks' steps compare. */
#ifndef CONVOY_APP_PACE_H
#define CONVOY_APP_PACE_H

#include <stdbool.h>

#include "model/base/world.h"

/* Seconds since the end of the first step (until then: start.h), of this rank. No part but the two that are
 * said to be parts overlaps another. */
struct pace {
  double steps;      /* in steps; the following two are parts of it */
  double wait;       /* waiting for other ranks; 0 where a device computes: its waits are its work, too */
  double data;       /* waiting for the reader of a streamed set */
  double evaluation; /* in evaluations */
  double saves;      /* in which the steps stood for a save, or the end waited for one */
  double planning;   /* drawing the order of an epoch */

  bool device; /* the ranks' steps run on devices */
  double mark, waited;
  double epoch_own; /* of the epoch's steps, without wait */
  long long epoch_steps;
};

/* The ranks' mean time a step over an epoch without what they waited for each other (on devices, with it). */
struct pace_spread {
  double least, median, most; /* seconds; 0: no step */
  int slowest;                /* rank */
  char host[64];              /* its host */
};

/* What passes from here on counts as steps' time. */
void pace_begin(struct pace *pace, const struct world *world);
/* Seconds since the last call or pace_begin, taken into the counts. */
double pace_lap(struct pace *pace, const struct world *world);
/* What passed since the last lap was no step: adds it to one of the counts. */
void pace_part(struct pace *pace, const struct world *world, double *part);
/* What was counted so far is the start's: from here on the counts above begin anew, not the epoch's. */
void pace_restart(struct pace *pace);
/* One more step of the epoch is done. */
void pace_step(struct pace *pace);

/* Compares the ranks and begins the next epoch. Collective. */
enum status pace_gather(struct pace *pace, const struct world *world, struct pace_spread *spread);

/* "; step 12.1 ms", with several ranks "; step 12.1/12.3/14.0 ms, slowest rank 3 on n07" (least, median,
 * most);
 * "" without a step. */
void pace_text(const struct pace_spread *spread, int ranks, char *text, size_t capacity);

#endif
