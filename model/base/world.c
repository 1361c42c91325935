/* The ranks by MPI: start-up with the launch checks, the end, and what the main thread does meanwhile. */

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/base/deadline.h"
#include "model/base/clock.h"
#include "model/base/cores.h"
#include "model/base/log.h"
#include "model/base/world_parts.h"

enum { ABORT_SECONDS = 5 };

struct world_pulse {
  _Atomic int64_t step, waits;
  atomic_int depth; /* of nested waits */
  atomic_bool patient;
  double began, waited; /* the main thread's: when the outermost wait began, seconds of those that ended */
};

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

/* Do all ranks share one host, as far as the launcher says? */
static bool on_one_host(void) {
  const int ranks = number_of("OMPI_COMM_WORLD_SIZE");
  if (ranks > 0) return number_of("OMPI_COMM_WORLD_LOCAL_SIZE") == ranks;
  if (!is_set("PMIX_NAMESPACE")) return true;
  return number_of("SLURM_STEP_NUM_NODES") == 1 && !is_set("SLURM_HET_SIZE"); /* of each part of such a job */
}

/* Ranks of one host talk through shared memory: looking for networks (UCX, libfabric) takes Open MPI 0.2 s
 * for nothing. What the user has set in the environment stays (also by mpirun --mca; a parameter file does
 * not), and programs that this one starts do not see it. */
static int start_mpi(int *provided) {
#ifdef OPEN_MPI
  const bool chosen =
      !is_set("OMPI_MCA_pml") && !is_set("OMPI_MCA_btl") && !is_set("OMPI_MCA_mtl") && on_one_host();
  if (chosen) setenv("OMPI_MCA_pml", "ob1", 1);
#endif
  const int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, provided);
#ifdef OPEN_MPI
  if (chosen) unsetenv("OMPI_MCA_pml");
#endif
  return code;
}

static enum status check_before_start(void) {
#ifdef OPEN_MPI
  if (is_set("SLURM_STEP_ID") && !is_set("PMIX_NAMESPACE") && !is_set("OMPI_COMM_WORLD_SIZE"))
    return refuse_launch("without PMIx, so MPI cannot start");
  /* One rank without a launcher needs no daemon beside it, and no folder in TMPDIR: without a daemon all such
   * ranks of a user would make and remove the same one. It looks at the host itself then: not for displays
   * and OpenCL, which takes hwloc 0.16 s on a host with a GPU. */
  if (!is_set("OMPI_COMM_WORLD_SIZE") && !is_set("PMIX_NAMESPACE")) {
    setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
    setenv("OMPI_MCA_orte_create_session_dirs", "0", 0);
    setenv("HWLOC_COMPONENTS", "-gl,-opencl", 0);
  }
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
  TRY(world_check(
      MPI_Comm_split_type(comm->all, MPI_COMM_TYPE_SHARED, world->rank, MPI_INFO_NULL, &comm->node),
      "finding the ranks of this host"));
  MPI_Comm_rank(comm->node, &world->local_rank);
  MPI_Comm_size(comm->node, &world->local_size);
  TRY(world_check(
      MPI_Comm_split(comm->all, world->local_rank == 0 ? 0 : MPI_UNDEFINED, world->rank, &comm->leaders),
      "finding the first rank of each host"));
  int place[2] = {0, 0}; /* number of this host, number of hosts */
  if (world->local_rank == 0) {
    MPI_Comm_rank(comm->leaders, &place[0]);
    MPI_Comm_size(comm->leaders, &place[1]);
  }
  TRY(world_check(MPI_Bcast(place, 2, MPI_INT, 0, comm->node), "numbering the hosts"));
  world->node = place[0];
  world->nodes = place[1];
  return world_check(MPI_Allgather(&world->node, 1, MPI_INT, comm->node_of, 1, MPI_INT, comm->all),
                     "mapping ranks to hosts");
}

enum status world_fill(struct world *world, MPI_Comm all) {
  world->comm = calloc(1, sizeof *world->comm);
  if (!world->comm) {
    MPI_Comm_free(&all);
    return RAISE(STATUS_INPUT, "no memory for the communicators");
  }
  *world->comm = (struct world_comm){.all = all, .node = MPI_COMM_NULL, .leaders = MPI_COMM_NULL};
  MPI_Comm_rank(all, &world->rank);
  MPI_Comm_size(all, &world->size);
  world->comm->node_of = calloc((size_t)world->size, sizeof *world->comm->node_of);
  if (!world->comm->node_of) return RAISE(STATUS_INPUT, "no memory for %d ranks", world->size);
  return split_by_host(world);
}

static enum status find_ranks(struct world *world) {
  MPI_Comm all;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &world->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world->size);
  TRY(check_after_start(world->size));
  if (gethostname(world->host, sizeof world->host) != 0) snprintf(world->host, sizeof world->host, "unknown");
  world->host[sizeof world->host - 1] = '\0';
  world->pulse = calloc(1, sizeof *world->pulse);
  if (!world->pulse) return RAISE(STATUS_INPUT, "no memory for the ranks' state");
  TRY(world_check(MPI_Comm_dup(MPI_COMM_WORLD, &all), "copying the communicator"));
  TRY(world_fill(world, all)); /* the copies inherit MPI_ERRORS_RETURN */
  TRY(cores_share(world, &world->cores));
  world->seat = world->local_rank;
  world->seats = world->local_size;
  return STATUS_OK;
}

enum status world_open(struct world *world) {
  *world = (struct world){0};
  TRY(check_before_start());
  int provided;
  if (start_mpi(&provided) != MPI_SUCCESS) return RAISE(STATUS_COMM, "MPI could not start");
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

void world_comm_free(struct world *world) {
  struct world_comm *comm = world->comm;
  if (!comm) return;
  if (comm->leaders != MPI_COMM_NULL) MPI_Comm_free(&comm->leaders);
  if (comm->node != MPI_COMM_NULL) MPI_Comm_free(&comm->node);
  if (comm->all != MPI_COMM_NULL) MPI_Comm_free(&comm->all);
  free(comm->node_of);
  free(comm);
  world->comm = NULL;
}

void world_close(struct world *world) {
  /* Nobody leaves while another rank still waits for its message: Slurm's PMIx may let MPI_Finalize through
   * when only the ranks of the own host have come. */
  if (world->comm && world->comm->all != MPI_COMM_NULL) MPI_Barrier(world->comm->all);
  world_comm_free(world);
  free(world->pulse);
  world->pulse = NULL;
  MPI_Finalize();
}

void world_abort(const struct world *world, int code) {
  (void)world;
  deadline_final(ABORT_SECONDS, code); /* the launcher may not answer, and another thread hold a stream */
  fflush(NULL);
  MPI_Abort(MPI_COMM_WORLD, code);
  _exit(code);
}

/* ---- what the main thread does ---- */

void world_wait_begin(const struct world *world) {
  if (!world->pulse) return;
  if (atomic_fetch_add(&world->pulse->depth, 1) == 0) world->pulse->began = clock_seconds();
}

void world_wait_end(const struct world *world) {
  if (!world->pulse) return;
  atomic_fetch_add(&world->pulse->waits, 1);
  if (atomic_fetch_sub(&world->pulse->depth, 1) == 1)
    world->pulse->waited += clock_seconds() - world->pulse->began;
}

double world_wait_seconds(const struct world *world) {
  return world->pulse ? world->pulse->waited : 0;
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
