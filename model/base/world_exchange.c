/* Small exchanges between the ranks; see world.h. */
#include <limits.h>

#include "model/base/world_parts.h"

enum status world_check(int code, const char *what) {
  if (code == MPI_SUCCESS) return STATUS_OK;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length;
  MPI_Error_string(code, text, &length);
  return RAISE(STATUS_COMM, "MPI failed at %s: %s; the ranks cannot go on", what, text);
}

int world_waited(const struct world *world, int code) {
  world_wait_end(world);
  return code;
}

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
  TRY(world_check(WORLD_WAIT(world, MPI_Allreduce(&own, &worst, 1, MPI_2INT, MPI_MAXLOC, world->comm->all)),
                  "agreeing on an error"));
  int status = (int)mine;
  TRY(world_check(WORLD_WAIT(world, MPI_Bcast(&status, 1, MPI_INT, worst.rank, world->comm->all)),
                  "agreeing on an error"));
  if (status != STATUS_OK && worst.rank != world->rank) error_clear();
  world->comm->agreed = (enum status)status;
  return (enum status)status;
}

bool world_agreed(const struct world *world, enum status status) {
  return status == STATUS_OK || world->size <= 1 || !world->comm || world->comm->agreed == status;
}

enum status world_barrier(const struct world *world) {
  return world_check(WORLD_WAIT(world, MPI_Barrier(world->comm->all)), "a barrier");
}

enum { CHUNK = 1 << 30 }; /* MPI counts are ints */

enum status world_broadcast_in(const struct world *world, MPI_Comm comm, char *data, size_t bytes, int root) {
  for (size_t done = 0; done < bytes; done += CHUNK) {
    size_t left = bytes - done;
    int count = left < CHUNK ? (int)left : CHUNK;
    TRY(world_check(WORLD_WAIT(world, MPI_Bcast(data + done, count, MPI_BYTE, root, comm)), "a broadcast"));
  }
  return STATUS_OK;
}

enum status world_broadcast(const struct world *world, void *data, size_t bytes, int root) {
  return world_broadcast_in(world, world->comm->all, data, bytes, root);
}

enum status world_allgather(const struct world *world, const void *mine, size_t bytes, void *all) {
  if (bytes > INT_MAX)
    return RAISE(STATUS_INTERNAL, "an all-gather of %zu bytes a rank; at most %d", bytes, INT_MAX);
  return world_check(WORLD_WAIT(world, MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                                                     world->comm->all)),
                     "an all-gather");
}

enum status world_sum_f64(const struct world *world, double *data, int count) {
  return world_check(
      WORLD_WAIT(world, MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_DOUBLE, MPI_SUM, world->comm->all)),
      "a sum");
}

enum status world_sum_i64(const struct world *world, int64_t *data, int count) {
  return world_check(
      WORLD_WAIT(world, MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_INT64_T, MPI_SUM, world->comm->all)),
      "a sum");
}

enum status world_max_i64(const struct world *world, int64_t *data, int count) {
  return world_check(
      WORLD_WAIT(world, MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_INT64_T, MPI_MAX, world->comm->all)),
      "a maximum");
}
