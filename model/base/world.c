/* The ranks by MPI: start-up with the launch checks, small exchanges, memory shared on a host. */
#include "model/base/world.h"

#include <limits.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/base/log.h"

struct world_comm {
  MPI_Comm all;       /* every rank; a copy, so that no message of others gets in */
  MPI_Comm node;      /* the ranks of this host */
  MPI_Comm leaders;   /* local rank 0 of every host, in the order of `node`; null on other ranks */
  int *node_of;       /* [size]: host number of each rank */
  enum status agreed; /* what the last world_agree gave */
};

struct world_pulse {
  _Atomic int64_t step, waits;
  atomic_int depth; /* of nested waits */
  atomic_bool patient;
};

/* Turns an MPI return code into a status; `what` names the call's purpose. */
static enum status check(int code, const char *what) {
  if (code == MPI_SUCCESS) return STATUS_OK;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length;
  MPI_Error_string(code, text, &length);
  return RAISE(STATUS_COMM, "MPI failed at %s: %s; the ranks cannot go on", what, text);
}

void world_library(char *text, size_t capacity) {
  char line[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length;
  if (MPI_Get_library_version(line, &length) != MPI_SUCCESS) line[0] = '\0';
  line[strcspn(line, "\n")] = '\0';
  snprintf(text, capacity, "%s", line);
}

/* ---- launch ---- */

static bool is_set(const char *variable) {
  return getenv(variable) != NULL;
}

static int number_of(const char *variable) {
  const char *text = getenv(variable);
  return text ? atoi(text) : 0;
}

/* Each process of a refused launch believes to be rank 0: only Slurm's first one keeps the record. */
static enum status refuse_launch(const char *found) {
  enum status status =
      RAISE(STATUS_INPUT,
            "Slurm started %d task(s), but %s; use 'srun --mpi=pmix' or mpirun (a module or container may "
            "set SLURM_MPI_TYPE)",
            number_of("SLURM_STEP_NUM_TASKS") > 0 ? number_of("SLURM_STEP_NUM_TASKS") : 1, found);
  if (number_of("SLURM_PROCID") != 0) error_clear();
  return status;
}

static enum status check_before_start(void) {
#ifdef OPEN_MPI
  if (is_set("SLURM_STEP_ID") && !is_set("PMIX_NAMESPACE") && !is_set("OMPI_COMM_WORLD_SIZE"))
    return refuse_launch("without PMIx, so MPI cannot start");
  /* One rank without a launcher needs no daemon beside it. */
  if (!is_set("OMPI_COMM_WORLD_SIZE") && !is_set("PMIX_NAMESPACE"))
    setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
#endif
  return STATUS_OK;
}

static enum status check_after_start(int size) {
  if (size != 1 || is_set("OMPI_COMM_WORLD_SIZE")) return STATUS_OK;
  if (number_of("SLURM_STEP_NUM_TASKS") > 1) return refuse_launch("MPI sees one process");
  if (number_of("SLURM_NTASKS") > 1 && !is_set("SLURM_STEP_ID"))
    log_warning("the job has %d tasks, but no launcher was used: going on with one rank; use 'srun "
                "--mpi=pmix' or mpirun for all",
                number_of("SLURM_NTASKS"));
  return STATUS_OK;
}

/* ---- start and end ---- */

static enum status split_by_host(struct world *world) {
  struct world_comm *comm = world->comm;
  TRY(check(MPI_Comm_split_type(comm->all, MPI_COMM_TYPE_SHARED, world->rank, MPI_INFO_NULL, &comm->node),
            "finding the ranks of this host"));
  MPI_Comm_rank(comm->node, &world->local_rank);
  MPI_Comm_size(comm->node, &world->local_size);
  TRY(check(
      MPI_Comm_split(comm->all, world->local_rank == 0 ? 0 : MPI_UNDEFINED, world->rank, &comm->leaders),
      "finding the first rank of each host"));
  int place[2] = {0, 0}; /* number of this host, number of hosts */
  if (world->local_rank == 0) {
    MPI_Comm_rank(comm->leaders, &place[0]);
    MPI_Comm_size(comm->leaders, &place[1]);
  }
  TRY(check(MPI_Bcast(place, 2, MPI_INT, 0, comm->node), "numbering the hosts"));
  world->node = place[0];
  world->nodes = place[1];
  return check(MPI_Allgather(&world->node, 1, MPI_INT, comm->node_of, 1, MPI_INT, comm->all),
               "mapping ranks to hosts");
}

static enum status find_ranks(struct world *world) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &world->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world->size);
  TRY(check_after_start(world->size));
  if (gethostname(world->host, sizeof world->host) != 0) snprintf(world->host, sizeof world->host, "unknown");
  world->host[sizeof world->host - 1] = '\0';
  world->comm = calloc(1, sizeof *world->comm);
  if (!world->comm) return RAISE(STATUS_INTERNAL, "no memory for the communicators");
  *world->comm = (struct world_comm){.all = MPI_COMM_NULL, .node = MPI_COMM_NULL, .leaders = MPI_COMM_NULL};
  world->pulse = calloc(1, sizeof *world->pulse);
  world->comm->node_of = calloc((size_t)world->size, sizeof *world->comm->node_of);
  if (!world->pulse || !world->comm->node_of)
    return RAISE(STATUS_INTERNAL, "no memory for %d ranks", world->size);
  TRY(check(MPI_Comm_dup(MPI_COMM_WORLD, &world->comm->all), "copying the communicator"));
  return split_by_host(world); /* the copies inherit MPI_ERRORS_RETURN */
}

enum status world_open(struct world *world) {
  *world = (struct world){0};
  TRY(check_before_start());
  int provided;
  if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
    return RAISE(STATUS_COMM, "MPI could not start");
  enum status status = find_ranks(world);
  if (status == STATUS_OK && provided < MPI_THREAD_SERIALIZED) {
    status = RAISE(STATUS_INPUT,
                   "this MPI library has no thread support (MPI_THREAD_SERIALIZED); use another one");
    if (world->rank != 0) error_clear(); /* found by all ranks: one says it */
  }
  if (status == STATUS_OK) return STATUS_OK;
  if (status != STATUS_COMM) world_close(world); /* ranks that cannot talk do not part in order */
  return error_trace(status, __func__);
}

void world_close(struct world *world) {
  if (world->comm) {
    if (world->comm->leaders != MPI_COMM_NULL) MPI_Comm_free(&world->comm->leaders);
    if (world->comm->node != MPI_COMM_NULL) MPI_Comm_free(&world->comm->node);
    if (world->comm->all != MPI_COMM_NULL) MPI_Comm_free(&world->comm->all);
    free(world->comm->node_of);
    free(world->comm);
    world->comm = NULL;
  }
  free(world->pulse);
  world->pulse = NULL;
  MPI_Finalize();
}

void world_abort(const struct world *world, int code) {
  (void)world;
  fflush(NULL);
  MPI_Abort(MPI_COMM_WORLD, code);
  _exit(code);
}

/* ---- what the main thread does ---- */

void world_wait_begin(const struct world *world) {
  if (world->pulse) atomic_fetch_add(&world->pulse->depth, 1);
}

void world_wait_end(const struct world *world) {
  if (!world->pulse) return;
  atomic_fetch_add(&world->pulse->waits, 1);
  atomic_fetch_sub(&world->pulse->depth, 1);
}

void world_set_step(const struct world *world, int64_t step) {
  if (world->pulse) atomic_store(&world->pulse->step, step);
}

void world_set_patient(const struct world *world, bool patient) {
  if (world->pulse) atomic_store(&world->pulse->patient, patient);
}

struct world_state world_state(const struct world *world) {
  struct world_pulse *pulse = world->pulse;
  if (!pulse) return (struct world_state){0};
  return (struct world_state){.step = atomic_load(&pulse->step),
                              .waits = atomic_load(&pulse->waits),
                              .waiting = atomic_load(&pulse->depth) > 0,
                              .patient = atomic_load(&pulse->patient)};
}

/* An MPI call that waits for other ranks, marked as such. */
#define WAIT(world, call) (world_wait_begin(world), waited((world), (call)))

static int waited(const struct world *world, int code) {
  world_wait_end(world);
  return code;
}

/* ---- exchanges ---- */

/* Larger is worse: what makes the others' work pointless comes last. */
static int severity(enum status status) {
  switch (status) {
  case STATUS_OK:
    return 0;
  case STATUS_STOPPED:
    return 1;
  case STATUS_INPUT:
    return 2;
  case STATUS_NUMERIC:
    return 3;
  case STATUS_STORAGE:
    return 4;
  case STATUS_INTERNAL:
    return 5;
  case STATUS_COMM:
    return 6;
  }
  return 5;
}

enum status world_agree(const struct world *world, enum status mine) {
  struct {
    int weight, rank;
  } own = {.rank = world->rank}, worst;
  /* Of equal ones a rank that still holds its record wins: after a nested call only one does. */
  own.weight = 2 * severity(mine) + (mine != STATUS_OK && error_message()[0] != '\0');
  TRY(check(WAIT(world, MPI_Allreduce(&own, &worst, 1, MPI_2INT, MPI_MAXLOC, world->comm->all)),
            "agreeing on an error"));
  int status = (int)mine;
  TRY(check(WAIT(world, MPI_Bcast(&status, 1, MPI_INT, worst.rank, world->comm->all)),
            "agreeing on an error"));
  if (status != STATUS_OK && worst.rank != world->rank) error_clear();
  world->comm->agreed = (enum status)status;
  return (enum status)status;
}

bool world_agreed(const struct world *world, enum status status) {
  return status == STATUS_OK || world->size <= 1 || !world->comm || world->comm->agreed == status;
}

enum status world_barrier(const struct world *world) {
  return check(WAIT(world, MPI_Barrier(world->comm->all)), "a barrier");
}

enum { CHUNK = 1 << 30 }; /* MPI counts are ints */

static enum status broadcast(const struct world *world, MPI_Comm comm, char *data, size_t bytes, int root) {
  for (size_t done = 0; done < bytes; done += CHUNK) {
    size_t left = bytes - done;
    int count = left < CHUNK ? (int)left : CHUNK;
    TRY(check(WAIT(world, MPI_Bcast(data + done, count, MPI_BYTE, root, comm)), "a broadcast"));
  }
  return STATUS_OK;
}

enum status world_broadcast(const struct world *world, void *data, size_t bytes, int root) {
  return broadcast(world, world->comm->all, data, bytes, root);
}

enum status world_allgather(const struct world *world, const void *mine, size_t bytes, void *all) {
  if (bytes > INT_MAX)
    return RAISE(STATUS_INTERNAL, "an all-gather of %zu bytes a rank; at most %d", bytes, INT_MAX);
  return check(
      WAIT(world, MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, world->comm->all)),
      "an all-gather");
}

enum status world_sum_f64(const struct world *world, double *data, int count) {
  return check(WAIT(world, MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_DOUBLE, MPI_SUM, world->comm->all)),
               "a sum");
}

enum status world_sum_i64(const struct world *world, int64_t *data, int count) {
  return check(WAIT(world, MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_INT64_T, MPI_SUM, world->comm->all)),
               "a sum");
}

enum status world_max_i64(const struct world *world, int64_t *data, int count) {
  return check(WAIT(world, MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_INT64_T, MPI_MAX, world->comm->all)),
               "a maximum");
}

/* ---- memory shared on a host ---- */

struct world_shared {
  MPI_Win window; /* null: memory is this rank's own mapping */
  char *memory;
  size_t bytes;
};

/* Makes what the ranks of this host wrote visible to all of them. */
static enum status settle(const struct world *world, struct world_shared *shared) {
  if (shared->window == MPI_WIN_NULL) return STATUS_OK;
  TRY(check(MPI_Win_sync(shared->window), "syncing shared memory"));
  TRY(check(WAIT(world, MPI_Barrier(world->comm->node)), "syncing shared memory"));
  return check(MPI_Win_sync(shared->window), "syncing shared memory");
}

/* The first rank of the host owns all of the window. */
static enum status map_window(const struct world *world, struct world_shared *shared) {
  MPI_Aint mine = world->local_rank == 0 ? (MPI_Aint)shared->bytes : 0;
  char *own;
  int code =
      WAIT(world, MPI_Win_allocate_shared(mine, 1, MPI_INFO_NULL, world->comm->node, &own, &shared->window));
  if (code != MPI_SUCCESS) {
    shared->window = MPI_WIN_NULL;
    return RAISE(STATUS_INPUT, "no %.0f MiB of shared memory on host %s; enlarge /dev/shm there",
                 (double)shared->bytes / 1048576.0, world->host);
  }
  MPI_Aint bytes;
  int unit;
  TRY(check(MPI_Win_shared_query(shared->window, 0, &bytes, &unit, &shared->memory),
            "mapping shared memory"));
  TRY(check(WAIT(world, MPI_Win_lock_all(MPI_MODE_NOCHECK, shared->window)), "mapping shared memory"));
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
  if (!made) return RAISE(STATUS_INTERNAL, "no memory for a shared window");
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
    TRY(broadcast(world, world->comm->leaders, shared->memory + first[rank], bytes[rank],
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
