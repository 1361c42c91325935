/* What the parts of world share, model/base/world*.c only: MPI's side of the ranks. */
#ifndef CONVOY_MODEL_BASE_WORLD_PARTS_H
#define CONVOY_MODEL_BASE_WORLD_PARTS_H

#include <mpi.h>

#include "model/base/world.h"

struct world_comm {
  MPI_Comm all;       /* every rank; a copy, so that no message of others gets in */
  MPI_Comm node;      /* the ranks of this host */
  MPI_Comm leaders;   /* local rank 0 of every host, in the order of `node`; null on other ranks */
  int *node_of;       /* [size]: host number of each rank */
  enum status agreed; /* what the last world_agree gave */
};

/* Ranks, hosts and communicators of the ranks of `all`, which is the world's from now on, also after a
 * failure. */
enum status world_fill(struct world *world, MPI_Comm all);
void world_comm_free(struct world *world);

/* Turns an MPI return code into a status; `what` names the call's purpose. */
enum status world_check(int code, const char *what);

/* An MPI call that waits for other ranks, marked as such; its return code. */
#define WORLD_WAIT(world, call) (world_wait_begin(world), world_waited((world), (call)))
int world_waited(const struct world *world, int code); /* world_wait_end, and `code` */

/* data[bytes] of the rank `root` of `comm`, of any size. */
enum status world_broadcast_in(const struct world *world, MPI_Comm comm, char *data, size_t bytes, int root);

#endif
