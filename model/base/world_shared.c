/* Memory that the ranks of a host share; see world.h. */
#include <stdlib.h>
#include <sys/mman.h>

#include "model/base/world_parts.h"

struct world_shared {
  MPI_Win window; /* null: memory is this rank's own mapping */
  char *memory;
  size_t bytes;
};

/* Makes what the ranks of this host wrote visible to all of them. */
static enum status settle(const struct world *world, struct world_shared *shared) {
  if (shared->window == MPI_WIN_NULL) return STATUS_OK;
  TRY(world_check(MPI_Win_sync(shared->window), "syncing shared memory"));
  TRY(world_check(WORLD_WAIT(world, MPI_Barrier(world->comm->node)), "syncing shared memory"));
  return world_check(MPI_Win_sync(shared->window), "syncing shared memory");
}

/* The first rank of the host owns all of the window. */
static enum status map_window(const struct world *world, struct world_shared *shared) {
  MPI_Aint mine = world->local_rank == 0 ? (MPI_Aint)shared->bytes : 0;
  char *own;
  int code = WORLD_WAIT(
      world, MPI_Win_allocate_shared(mine, 1, MPI_INFO_NULL, world->comm->node, &own, &shared->window));
  if (code != MPI_SUCCESS) {
    shared->window = MPI_WIN_NULL;
    return RAISE(STATUS_INPUT, "no %.0f MiB of shared memory on host %s; enlarge /dev/shm there",
                 (double)shared->bytes / 1048576.0, world->host);
  }
  MPI_Aint bytes;
  int unit;
  TRY(world_check(MPI_Win_shared_query(shared->window, 0, &bytes, &unit, &shared->memory),
                  "mapping shared memory"));
  TRY(world_check(WORLD_WAIT(world, MPI_Win_lock_all(MPI_MODE_NOCHECK, shared->window)),
                  "mapping shared memory"));
  return settle(world, shared);
}

/* A lone rank shares with nobody: large pages save most of the time that first touches take. */
static enum status map_own(const struct world *world, struct world_shared *shared) {
  size_t bytes = shared->bytes ? shared->bytes : 1;
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return RAISE(STATUS_INPUT, "no %.0f MiB of memory on host %s", (double)bytes / 1048576.0, world->host);
  (void)madvise(memory, bytes, MADV_HUGEPAGE); /* a wish */
  shared->memory = memory;
  shared->bytes = bytes;
  return STATUS_OK;
}

enum status world_shared_create(const struct world *world, size_t bytes, struct world_shared **shared,
                                void **memory) {
  struct world_shared *made = calloc(1, sizeof *made);
  if (!made) return RAISE(STATUS_INPUT, "no memory for a shared window");
  *made = (struct world_shared){.window = MPI_WIN_NULL, .bytes = bytes};
  enum status status = world->local_size == 1 ? map_own(world, made) : map_window(world, made);
  if (status != STATUS_OK) {
    world_shared_destroy(made);
    return error_trace(status, __func__);
  }
  *shared = made;
  *memory = made->memory;
  return STATUS_OK;
}

enum status world_shared_exchange(const struct world *world, struct world_shared *shared, const size_t *first,
                                  const size_t *bytes) {
  TRY(settle(world, shared));
  for (int rank = 0; rank < world->size && world->nodes > 1 && world->local_rank == 0; rank++)
    TRY(world_broadcast_in(world, world->comm->leaders, shared->memory + first[rank], bytes[rank],
                           world->comm->node_of[rank]));
  return settle(world, shared);
}

void world_shared_destroy(struct world_shared *shared) {
  if (!shared) return;
  if (shared->window != MPI_WIN_NULL) {
    if (shared->memory) MPI_Win_unlock_all(shared->window);
    MPI_Win_free(&shared->window);
  } else if (shared->memory) {
    munmap(shared->memory, shared->bytes);
  }
  free(shared);
}
