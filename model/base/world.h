/* The ranks of the job: who we are, how many, on which hosts, and small host-side exchanges between them
 * (MPI).
 *
 * Collective calls are made by all ranks in the same order. Gradients do not travel here but through the
 * backend. */
#ifndef CONVOY_MODEL_BASE_WORLD_H
#define CONVOY_MODEL_BASE_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/base/error.h"

struct world_pulse;

struct world {
  int rank, size;             /* among all ranks */
  int local_rank, local_size; /* among the ranks of this host (MPI_Comm_split_type, not variables) */
  int node, nodes;            /* this host among the hosts, numbered by their lowest rank */
  char host[64];
  int cores;                 /* that this rank may compute on: cores_share() of the whole job */
  double cpu_limit;          /* CPUs that this process has the time of (a container's limit); 0: all */
  double memory_limit;       /* bytes that the job's processes on this host may have; 0: all there is */
  int seat, seats;           /* among the ranks of the whole job on this host: which device is this rank's */
  struct world_comm *comm;   /* owned: MPI's side */
  struct world_pulse *pulse; /* owned, a part's borrowed: what the main thread does; NULL: nobody looks */
};

/* What this rank's main thread does, for another thread of it to read at any time. */
struct world_state {
  int64_t step;  /* the last step that it has begun */
  int64_t waits; /* waits for other ranks or the device that have ended */
  bool waiting;  /* inside one */
  bool patient;  /* in a phase that may stand still for long without a fault, such as a save */
};

/* Around each wait for other ranks or the device; may be nested. The exchanges below have it inside. */
void world_wait_begin(const struct world *world);
void world_wait_end(const struct world *world);
/* Seconds that this rank's main thread, which asks, has spent in such waits so far. */
double world_wait_seconds(const struct world *world);
void world_set_step(const struct world *world, int64_t step);
void world_set_patient(const struct world *world, bool patient);
struct world_state world_state(const struct world *world);

/* The MPI library's own line, e.g. "Open MPI v4.1.4, ..."; works before world_open. Cut to `capacity`. */
void world_library(char *text, size_t capacity);

/* Starts MPI (once a process) and finds the ranks. A launch that would give silent singletons or an obscure
 * abort under Slurm is refused by name (STATUS_INPUT), before MPI starts where possible. After STATUS_COMM
 * with world->size > 0 MPI has started and only world_abort is left to call. */
enum status world_open(struct world *world);

/* Ends MPI. Collective; not called on an error path that other ranks may not reach. */
void world_close(struct world *world);

/* A world of some of the ranks: those that give the same `group`, from 0, in the order of their ranks; a rank
 * that gives -1 is in none and gets an empty one. Exchanges and backends work in it as in the whole, beside
 * other parts. A status that its ranks agree on is not yet agreed on by all. Collective in `world`, which
 * outlives it. */
enum status world_part_open(const struct world *world, int group, struct world *part);
/* Collective in the part; of an empty one nothing. */
void world_part_close(struct world *part);

/* As world_barrier, but sleeps meanwhile: for ranks that have nothing to do while others work. */
enum status world_rest(const struct world *world);

/* MPI's Fortran handle of the communicator, for a backend to copy. */
int world_handle(const struct world *world);

/* Ends all ranks at once with `code` as the job's exit code. */
void world_abort(const struct world *world, int code) __attribute__((noreturn));

/* Collective: the most severe status of all ranks, the same on each. If this rank's own was OK, the error
 * record stays empty; of several failed ranks only the lowest keeps its record, so exactly one rank prints.
 */
enum status world_agree(const struct world *world, enum status mine);

/* Whether all ranks leave with this status together, since the last world_agree gave it (always true of one
 * rank and of OK). If not, other ranks may wait for this one: it must make no collective call, and main
 * aborts. */
bool world_agreed(const struct world *world, enum status status);

enum status world_barrier(const struct world *world);
enum status world_broadcast(const struct world *world, void *data, size_t bytes, int root);

/* all[size * bytes] receives each rank's mine[bytes], in rank order. */
enum status world_allgather(const struct world *world, const void *mine, size_t bytes, void *all);

/* In place, over all ranks. */
enum status world_sum_f64(const struct world *world, double *data, int count);
enum status world_sum_i64(const struct world *world, int64_t *data, int count);
enum status world_max_i64(const struct world *world, int64_t *data, int count);

/* Memory that the ranks of one host share (a lone rank's own memory in large pages), of any content; every
 * rank of the host gets its address. Collective. */
struct world_shared;
enum status world_shared_create(const struct world *world, size_t bytes, struct world_shared **shared,
                                void **memory);
/* Puts data[bytes] at `offset` of the shared memory; not collective. Where memory is not `direct`, this is
 * faster than to touch its pages for the first time; where it is, so is writing to it. */
enum status world_shared_write(struct world_shared *shared, size_t offset, const void *data, size_t bytes);
bool world_shared_direct(const struct world_shared *shared);

/* Collective: when it returns, every host's copy holds, for each rank r, the bytes [first[r], first[r] +
 * bytes[r]) which rank r wrote into its host's copy. first and bytes have `size` entries and are the same on
 * all ranks. */
enum status world_shared_exchange(const struct world *world, struct world_shared *shared, const size_t *first,
                                  const size_t *bytes);
void world_shared_destroy(struct world_shared *shared); /* NULL: nothing */

#endif
