/* Whether all ranks hold the same parameters, as data-parallel training takes for granted. */
#ifndef CONVOY_APP_REPLICA_H
#define CONVOY_APP_REPLICA_H

#include "model/net/net.h"

/* Compares the digests of all ranks' params[count] after `step` steps. STATUS_COMM if they differ: names the
 * rank that differs from most others. Collective; the same status on all ranks. */
enum status replica_check(const struct world *world, const float *params, int64_t count, int64_t step);

/* For tests: if CONVOY_TEST_PERTURB_RANK is "RANK" or "RANK@STEP" and names this rank and a step that is
 * reached, changes one parameter of it by its last bit, once. */
enum status replica_disturb(const struct world *world, struct net *net, int64_t step);

#endif
