/* Where each rank runs, and what about it is allowed but rarely meant: for the banner and `convoy check`. */
#ifndef CONVOY_APP_PLACEMENT_H
#define CONVOY_APP_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "model/base/world.h"

struct placement {
  char host[64];
  char device[128];       /* as the backend describes it: with the PCI id of a GPU */
  char visible[64];       /* CUDA_VISIBLE_DEVICES on a GPU backend; "" if not set */
  int node;               /* number of the host */
  int cores, cores_there; /* that this rank may run on; that its host has */
};

/* Every rank's, by rank, on every rank; free() it. `device` is this rank's, `cuda` whether it is a GPU.
 * Collective. */
enum status placement_gather(const struct world *world, const char *device, bool cuda,
                             struct placement **all);

/* Each is true, and says in `text` what was found and what to do, if … */
/* … the hosts have different numbers of ranks: the slower ones are waited for, and some NCCL versions hang;
 */
bool placement_uneven(const struct placement *all, int count, char *text, size_t capacity);
/* … a rank may use only one core, which its reader thread needs too, although its host has cores to spare; */
bool placement_tight(const struct placement *all, int count, char *text, size_t capacity);
/* … ranks of one host see different GPUs, so that NCCL may not reach one from the other; */
bool placement_hidden(const struct placement *all, int count, char *text, size_t capacity);
/* … srun started ranks on several hosts without asking its PMIx for a barrier that waits for all of them
 * (jobs/README.md). */
bool placement_unfenced(int nodes, char *text, size_t capacity);

#endif
