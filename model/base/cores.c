/* Who may run on which CPUs; see cores.h. */
#include "model/base/cores.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* One rank's claim: the CPUs that it may run on, and its host. */
struct claim {
  cpu_set_t cpus;
  int node;
};

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
  int sharing = 0;
  if (!all) return RAISE(STATUS_INPUT, "out of memory");
  memset(&mine, 0, sizeof mine);
  mine.node = world->node;
  if (sched_getaffinity(0, sizeof mine.cpus, &mine.cpus) != 0) CPU_SET(0, &mine.cpus);
  if (world->size > 1)
    TRY_OUT(world_allgather(world, &mine, sizeof mine, all));
  else
    all[0] = mine;
  for (int rank = 0; rank < world->size; rank++)
    sharing += all[rank].node == mine.node && CPU_EQUAL(&all[rank].cpus, &mine.cpus);
  *cores = CPU_COUNT(&mine.cpus) / (sharing > 0 ? sharing : 1);
  if (*cores < 1) *cores = 1;
out:
  free(all);
  return status;
}
