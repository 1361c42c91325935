/* The cores that a rank may compute on. */
#ifndef CONVOY_MODEL_BASE_CORES_H
#define CONVOY_MODEL_BASE_CORES_H

#include "model/base/world.h"

/* The CPUs that this process may run on (taskset, a job's cpuset), which the host's may be more than; at
 * least 1. */
int cores_usable(void);

/* `count` CPUs, or as many as world->cpu_limit leaves. */
int cores_within_limit(const struct world *world, int count);

/* This rank's share, at least 1: its CPUs, divided by the ranks of its host that may run on the same ones,
 * and no more than the limit divided by all ranks of the host. Collective; world->cores has it since
 * world_open. */
enum status cores_share(const struct world *world, int *cores);

#endif
