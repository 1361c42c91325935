/* Who may run on which CPUs; see cores.h. */
#include "model/base/cores.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* One rank's claim: the CPUs that it may run on, and its host. */
struct claim {
  cpu_set_t cpus;
  int node;
};

int cores_within_limit(const struct world *world, int count) {
  return world->cpu_limit > 0 && ceil(world->cpu_limit) < count ? (int)ceil(world->cpu_limit) : count;
}

int cores_usable(void) {
  int count = 0; /* the kernel refuses a set that is too small */
  for (size_t most = 1024; most <= 65536 && count == 0; most *= 8) {
    size_t bytes = CPU_ALLOC_SIZE(most);
    cpu_set_t *cpus = CPU_ALLOC(most);
    if (cpus && sched_getaffinity(0, bytes, cpus) == 0) count = CPU_COUNT_S(bytes, cpus);
    CPU_FREE(cpus);
  }
  return count > 1 ? count : 1;
}

enum status cores_share(const struct world *world, int *cores) {
  enum status status = STATUS_OK;
  struct claim mine, *all = calloc((size_t)world->size, sizeof *all);
  int sharing = 1, here = 1; /* ranks, this one among them */
  if (!all) status = RAISE(STATUS_INPUT, "out of memory");
  if (world->size > 1) status = world_agree(world, status);
  TRY_OUT(status);
  memset(&mine, 0, sizeof mine);
  mine.node = world->node;
  if (sched_getaffinity(0, sizeof mine.cpus, &mine.cpus) != 0) CPU_SET(0, &mine.cpus);
  if (world->size > 1)
    TRY_OUT(world_allgather(world, &mine, sizeof mine, all));
  else
    all[0] = mine;
  for (int rank = 0; rank < world->size; rank++) {
    if (rank == world->rank || all[rank].node != mine.node) continue;
    here++;
    sharing += CPU_EQUAL(&all[rank].cpus, &mine.cpus);
  }
  const int own = CPU_COUNT(&mine.cpus), timed = cores_within_limit(world, own * here) / here;
  *cores = own / sharing < timed ? own / sharing : timed;
  if (*cores < 1) *cores = 1;
out:
  free(all);
  return status;
}
