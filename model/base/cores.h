/* The cores that a rank may compute on. */
#ifndef CONVOY_MODEL_BASE_CORES_H
#define CONVOY_MODEL_BASE_CORES_H

#include "model/base/world.h"

/* This rank's share, at least 1: the CPUs that it may run on, divided by the ranks of its host that may run
 * on the same ones. Collective. */
enum status cores_share(const struct world *world, int *cores);

#endif
