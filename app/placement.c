/* Where the ranks run; see placement.h. */
#include "app/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/base/cores.h"

enum status placement_gather(const struct world *world, const char *device, bool cuda,
                             struct placement **all) {
  struct placement own, *made = calloc((size_t)world->size, sizeof *made);
  enum status status =
      made ? STATUS_OK : RAISE(STATUS_INPUT, "no memory for the map of %d ranks", world->size);
  TRY_OUT(world_agree(world, status));
  memset(&own, 0, sizeof own);
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  snprintf(own.host, sizeof own.host, "%s", world->host);
  snprintf(own.device, sizeof own.device, "%s", device);
  if (cuda && visible) snprintf(own.visible, sizeof own.visible, "%s", visible);
  own.node = world->node;
  own.cores = cores_within_limit(world, cores_usable());
  own.cores_there = (int)sysconf(_SC_NPROCESSORS_ONLN);
  TRY_OUT(world_allgather(world, &own, sizeof own, made));
  *all = made;
  return STATUS_OK;
out:
  free(made);
  return status;
}

static int ranks_of(const struct placement *all, int count, int node) {
  int ranks = 0;
  for (int r = 0; r < count; r++) ranks += all[r].node == node;
  return ranks;
}

bool placement_uneven(const struct placement *all, int count, char *text, size_t capacity) {
  int first = ranks_of(all, count, all[0].node);
  for (int r = 1; r < count; r++) {
    int here = ranks_of(all, count, all[r].node);
    if (here == first) continue;
    snprintf(text, capacity,
             "host %s has %d rank%s, %s has %d: expected as many on each (Slurm: --ntasks-per-node)",
             all[0].host, first, first == 1 ? "" : "s", all[r].host, here);
    return true;
  }
  return false;
}

bool placement_tight(const struct placement *all, int count, char *text, size_t capacity) {
  for (int r = 0; r < count; r++) {
    if (all[r].cores != 1 || all[r].cores_there <= ranks_of(all, count, all[r].node)) continue;
    snprintf(text, capacity,
             "rank %d may use one core of host %s's %d, for computing, reading and communication: give more "
             "(Slurm: --cpus-per-task; mpirun: --bind-to none; container: its CPU limit)",
             r, all[r].host, all[r].cores_there);
    return true;
  }
  return false;
}

bool placement_hidden(const struct placement *all, int count, char *text, size_t capacity) {
  for (int a = 0; a < count; a++)
    for (int b = a + 1; b < count; b++) {
      if (all[a].node != all[b].node || strcmp(all[a].visible, all[b].visible) == 0) continue;
      snprintf(text, capacity,
               "ranks %d and %d on host %s see different GPUs (CUDA_VISIBLE_DEVICES %s and %s), so NCCL may "
               "not reach one from the other: let each see all (Slurm: --gpus-per-node, not --gpus-per-task; "
               "--gpu-bind=none)",
               a, b, all[a].host, all[a].visible, all[b].visible);
      return true;
    }
  return false;
}

bool placement_unfenced(int nodes, char *text, size_t capacity) {
  static const char slurm[] = "slurm.pmix.";
  const char *name = getenv("PMIX_NAMESPACE"), *fence = getenv("SLURM_PMIX_FENCE");
  if (nodes < 2 || !name || strncmp(name, slurm, sizeof slurm - 1) != 0) return false;
  if (fence && strcmp(fence, "ring") == 0) return false;
  snprintf(text, capacity,
           "SLURM_PMIX_FENCE is %s: Slurm's PMIx may start MPI on one host before another is ready, and a "
           "rank then "
           "crashes or hangs: export SLURM_PMIX_FENCE=ring before srun",
           fence ? fence : "not set");
  return true;
}
