/* Memory that the ranks of a host share; see world.h. It is a file without a name in /dev/shm, as behind a
 * window of MPI's, but one that can be written to: a page that is filled by a write is neither cleared nor
 * faulted in first, which takes half of the time of a page that is touched. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "model/base/clock.h"
#include "model/base/world_parts.h"

struct world_shared {
  char *memory; /* NULL: not mapped */
  size_t bytes;
  int file; /* behind the memory of several ranks; -1: this rank's own */
};

/* Makes what the ranks of this host wrote visible to all of them. */
static enum status settle(const struct world *world, const struct world_shared *shared) {
  if (shared->file < 0) return STATUS_OK;
  return world_check(WORLD_WAIT(world, MPI_Barrier(world->comm->node)), "syncing shared memory");
}

/* The first rank of the host makes the file. */
static bool make_file(struct world_shared *shared, const char *path) {
  struct statvfs room;
  shared->file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  return shared->file >= 0 && fstatvfs(shared->file, &room) == 0 &&
         (double)room.f_bavail * (double)room.f_frsize >= (double)shared->bytes &&
         ftruncate(shared->file, (off_t)shared->bytes) == 0;
}

static bool map_file(struct world_shared *shared) {
  if (shared->file < 0) return false;
  void *memory = mmap(NULL, shared->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared->file, 0);
  if (memory == MAP_FAILED) return false;
  (void)madvise(memory, shared->bytes, MADV_HUGEPAGE); /* a wish */
  shared->memory = memory;
  return true;
}

static enum status map_shared(const struct world *world, struct world_shared *shared) {
  char path[96];
  int good = 1, all = 0;
  snprintf(path, sizeof path, "/dev/shm/convoy-%d-%.0f", (int)getpid(), clock_seconds() * 1e9);
  if (world->local_rank == 0) good = make_file(shared, path);
  MPI_Comm node = world->comm->node;
  enum status status = world_check(WORLD_WAIT(world, MPI_Bcast(path, sizeof path, MPI_CHAR, 0, node)),
                                   "mapping shared memory");
  if (status == STATUS_OK && world->local_rank != 0) shared->file = open(path, O_RDWR | O_CLOEXEC);
  good = good && map_file(shared);
  if (status == STATUS_OK)
    status = world_check(WORLD_WAIT(world, MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, node)),
                         "mapping shared memory");
  if (world->local_rank == 0) (void)unlink(path); /* all have it open */
  if (status != STATUS_OK || all) return status;
  return RAISE(STATUS_INPUT, "no %.0f MiB of shared memory on host %s; enlarge /dev/shm there",
               (double)shared->bytes / 1048576.0, world->host);
}

/* A lone rank shares with nobody: large pages save most of the time that first touches take. */
static enum status map_own(const struct world *world, struct world_shared *shared) {
  size_t bytes = shared->bytes;
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return RAISE(STATUS_INPUT, "no %.0f MiB of memory on host %s", (double)bytes / 1048576.0, world->host);
  (void)madvise(memory, bytes, MADV_HUGEPAGE); /* a wish */
  shared->memory = memory;
  return STATUS_OK;
}

enum status world_shared_create(const struct world *world, size_t bytes, struct world_shared **shared,
                                void **memory) {
  struct world_shared *made = calloc(1, sizeof *made);
  if (!made) return RAISE(STATUS_INPUT, "no memory for a shared window");
  *made = (struct world_shared){.file = -1, .bytes = bytes ? bytes : 1};
  enum status status = world->local_size == 1 ? map_own(world, made) : map_shared(world, made);
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

enum status world_shared_write(struct world_shared *shared, size_t offset, const void *data, size_t bytes) {
  if (offset > shared->bytes || bytes > shared->bytes - offset)
    return RAISE(STATUS_INTERNAL, "%zu bytes at %zu of %zu shared ones", bytes, offset, shared->bytes);
  if (shared->file < 0) {
    memcpy(shared->memory + offset, data, bytes);
    return STATUS_OK;
  }
  for (size_t done = 0; done < bytes;) {
    ssize_t put = pwrite(shared->file, (const char *)data + done, bytes - done, (off_t)(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0)
      return RAISE(STATUS_INPUT, "no more shared memory: %s; enlarge /dev/shm",
                   put < 0 ? strerror(errno) : "full");
    done += (size_t)put;
  }
  return STATUS_OK;
}

bool world_shared_direct(const struct world_shared *shared) {
  return shared->file < 0;
}

void world_shared_destroy(struct world_shared *shared) {
  if (!shared) return;
  if (shared->memory) munmap(shared->memory, shared->bytes);
  if (shared->file >= 0) close(shared->file);
  free(shared);
}
