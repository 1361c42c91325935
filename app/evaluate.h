/* Evaluation: each test image exactly once, whatever the number of ranks; and `convoy eval`. */
#ifndef CONVOY_APP_EVALUATE_H
#define CONVOY_APP_EVALUATE_H

#include "app/session.h"

struct evaluation {
  int64_t samples, correct;
  double loss; /* mean over the samples */
};

/* All test images, in batches that are dealt to the ranks; the batches' sums are added in their order, so the
 * result does not depend on the number of ranks. It is the same on all of them. With `interruptible`,
 * a stop signal on any rank ends it: STATUS_STOPPED without a record, on all ranks. Replaces the net's plan.
 * Collective. */
enum status evaluate(struct session *session, bool interruptible, struct evaluation *result);

/* convoy eval; see eval_command.c. */
enum status eval_command(int argc, char **argv, const struct world *world);
extern const struct option_table eval_table;

#endif
