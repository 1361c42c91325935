/* The cores that a rank may compute on. */
#ifndef CONVOY_MODEL_BASE_CORES_H
#define CONVOY_MODEL_BASE_CORES_H

#include "model/base/world.h"

/* The CPUs that this process may run on (taskset, a job's cpuset), and no more than its control groups give
 * it time of (a container's limit), which the host's may be more than; at least 1. */
int cores_usable(void);

/* This rank's share, at least 1: its CPUs, divided by the ranks of its host that may run on the same ones,
 * and no more than the limit divided by all ranks of the host. Collective; world->cores has it since
 * world_open. */
enum status cores_share(const struct world *world, int *cores);

/* CPUs that the control groups of this process give it the time of, INFINITY without a limit
 * (https://docs.kernel.org/admin-guide/cgroup-v2.html, cpu.max; sched-bwc for version 1). root: a folder that
 * stands for / (of tests; else ""). */
double cores_limit(const char *root);

#endif
