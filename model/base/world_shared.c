/* Memory that the ranks of a host share; see world.h. It lies in files without names in /dev/shm, as behind a
 * window of MPI's, but files that can be written to: a page that is filled by a write is neither cleared nor
 * faulted in first, which takes half of the time of a page that is touched. Several files, since a write
 * locks its whole file. */
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

enum { MOST_FILES = 64, LEAST_BYTES = 1 << 23 };

struct world_shared {
  char *memory; /* NULL: not mapped */
  size_t bytes;
  size_t segment;       /* bytes of a file, but the last one */
  int files;            /* behind the memory of several ranks; 0: this rank's own */
  int file[MOST_FILES]; /* -1: not open */
};

/* Makes what the ranks of this host wrote visible to all of them. */
static enum status settle(const struct world *world, const struct world_shared *shared) {
  if (shared->files == 0) return STATUS_OK;
  return world_check(WORLD_WAIT(world, MPI_Barrier(world->comm->node)), "syncing shared memory");
}

static size_t bytes_of(const struct world_shared *shared, int number) {
  size_t begin = (size_t)number * shared->segment, left = shared->bytes - begin;
  return left < shared->segment ? left : shared->segment;
}

static void divide(struct world_shared *shared) {
  size_t page = 4096, segment = (shared->bytes + MOST_FILES - 1) / MOST_FILES;
  if (segment < LEAST_BYTES) segment = LEAST_BYTES;
  page = sysconf(_SC_PAGESIZE) > 0 ? (size_t)sysconf(_SC_PAGESIZE) : page;
  shared->segment = (segment + page - 1) / page * page;
  shared->files = (int)((shared->bytes + shared->segment - 1) / shared->segment);
  for (int i = 0; i < shared->files; i++) shared->file[i] = -1;
}

/* The first rank of the host makes the files, the others open them. 0, or the errno of what failed. */
static int open_files(struct world_shared *shared, const char *path, bool make) {
  struct statvfs room;
  for (int i = 0; i < shared->files; i++) {
    char name[128];
    snprintf(name, sizeof name, "%s-%d", path, i);
    shared->file[i] = open(name, (make ? O_CREAT | O_EXCL : 0) | O_RDWR | O_CLOEXEC, 0600);
    if (shared->file[i] < 0) return errno;
    if (make && ftruncate(shared->file[i], (off_t)bytes_of(shared, i)) != 0) return errno;
  }
  if (!make) return 0;
  if (fstatvfs(shared->file[0], &room) != 0) return errno;
  return (double)room.f_bavail * (double)room.f_frsize >= (double)shared->bytes ? 0 : ENOSPC;
}

static void remove_names(const struct world_shared *shared, const char *path) {
  for (int i = 0; i < shared->files; i++) {
    char name[128];
    snprintf(name, sizeof name, "%s-%d", path, i);
    (void)unlink(name);
  }
}

/* One file behind the other in one range of addresses. 0, or the errno of what failed. */
static int map_files(struct world_shared *shared) {
  void *memory = mmap(NULL, shared->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return errno;
  shared->memory = memory;
  for (int i = 0; i < shared->files; i++)
    if (mmap(shared->memory + (size_t)i * shared->segment, bytes_of(shared, i), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED, shared->file[i], 0) == MAP_FAILED)
      return errno;
  (void)madvise(memory, shared->bytes, MADV_HUGEPAGE); /* a wish */
  return 0;
}

static enum status map_shared(const struct world *world, struct world_shared *shared) {
  char path[96];
  int failed = 0, worst = 0; /* errno; of any rank of the host */
  divide(shared);
  snprintf(path, sizeof path, "/dev/shm/convoy-%d-%.0f", (int)getpid(), clock_seconds() * 1e9);
  if (world->local_rank == 0) failed = open_files(shared, path, true);
  MPI_Comm node = world->comm->node;
  enum status status = world_check(WORLD_WAIT(world, MPI_Bcast(path, sizeof path, MPI_CHAR, 0, node)),
                                   "mapping shared memory");
  if (status == STATUS_OK && world->local_rank != 0) failed = open_files(shared, path, false);
  if (status == STATUS_OK && !failed) failed = map_files(shared);
  if (status == STATUS_OK)
    status = world_check(WORLD_WAIT(world, MPI_Allreduce(&failed, &worst, 1, MPI_INT, MPI_MAX, node)),
                         "mapping shared memory");
  if (world->local_rank == 0) remove_names(shared, path); /* all have them open */
  if (status != STATUS_OK || !worst) return status;
  return RAISE(STATUS_INPUT, "no %.0f MiB of shared memory on host %s: %s; %s",
               (double)shared->bytes / 1048576.0, world->host, strerror(worst),
               worst == EMFILE || worst == ENFILE
                   ? "raise 'ulimit -n' (files)"
                   : "enlarge /dev/shm there, which the host's ranks must see in common");
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
  enum status status = made ? STATUS_OK : RAISE(STATUS_INPUT, "no memory for a shared window");
  if (world->size > 1) status = world_agree(world, status);
  if (!made || status != STATUS_OK) {
    free(made);
    return status;
  }
  *made = (struct world_shared){.bytes = bytes ? bytes : 1};
  status = world->local_size == 1 ? map_own(world, made) : map_shared(world, made);
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
  if (shared->files == 0) {
    memcpy(shared->memory + offset, data, bytes);
    return STATUS_OK;
  }
  for (size_t done = 0; done < bytes;) {
    size_t number = (offset + done) / shared->segment, at = (offset + done) % shared->segment;
    size_t left = shared->segment - at < bytes - done ? shared->segment - at : bytes - done;
    ssize_t put = pwrite(shared->file[number], (const char *)data + done, left, (off_t)at);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0)
      return RAISE(STATUS_INPUT, "no more shared memory: %s; enlarge /dev/shm",
                   put < 0 ? strerror(errno) : "full");
    done += (size_t)put;
  }
  return STATUS_OK;
}

bool world_shared_direct(const struct world_shared *shared) {
  return shared->files == 0;
}

void world_shared_destroy(struct world_shared *shared) {
  if (!shared) return;
  if (shared->memory) munmap(shared->memory, shared->bytes);
  for (int i = 0; i < shared->files; i++)
    if (shared->file[i] >= 0) close(shared->file[i]);
  free(shared);
}
