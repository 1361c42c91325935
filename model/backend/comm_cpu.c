/* Sums and broadcasts between CPU ranks by MPI, on a duplicate of the world's communicator so that they
 * cannot be mixed up with the host's own exchanges. */
#include <mpi.h>
#include <stdlib.h>

#include "model/backend/cpu.h"

struct comm_cpu {
  MPI_Comm comm;
  const struct world *world; /* borrowed */
};

enum { CHUNK = 1 << 30 }; /* elements a call: MPI counts are ints */

static enum status check(int result, const char *call) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (result == MPI_SUCCESS) return STATUS_OK;
  MPI_Error_string(result, text, &length);
  return RAISE(STATUS_COMM, "%s: %s", call, text);
}

/* A call that waits for other ranks, marked as such. */
#define WAIT(comm, call) (world_wait_begin((comm)->world), waited((comm), (call)))

static int waited(const struct comm_cpu *comm, int result) {
  world_wait_end(comm->world);
  return result;
}

enum status comm_cpu_open(const struct world *world, struct comm_cpu **comm) {
  *comm = NULL;
  if (world->size == 1) return STATUS_OK;
  struct comm_cpu *made = malloc(sizeof *made);
  enum status status = world_agree(world, made ? STATUS_OK : RAISE(STATUS_INPUT, "out of memory"));
  if (!made || status != STATUS_OK) {
    free(made);
    return status;
  }
  made->world = world;
  world_wait_begin(world);
  int code = MPI_Comm_dup(MPI_Comm_f2c((MPI_Fint)world_handle(world)), &made->comm);
  world_wait_end(world);
  status = check(code, "MPI_Comm_dup");
  if (status != STATUS_OK) {
    free(made);
    return status;
  }
  MPI_Comm_set_errhandler(made->comm, MPI_ERRORS_RETURN);
  *comm = made;
  return STATUS_OK;
}

void comm_cpu_close(struct comm_cpu *comm) {
  if (!comm) return;
  MPI_Comm_free(&comm->comm);
  free(comm);
}

enum status comm_cpu_sum(struct comm_cpu *comm, float *data, int64_t count) {
  if (!comm) return STATUS_OK;
  for (int64_t done = 0; done < count; done += CHUNK) {
    int part = (int)(count - done < CHUNK ? count - done : CHUNK);
    TRY(check(WAIT(comm, MPI_Allreduce(MPI_IN_PLACE, data + done, part, MPI_FLOAT, MPI_SUM, comm->comm)),
              "MPI_Allreduce"));
  }
  return STATUS_OK;
}

enum status comm_cpu_exchange(struct comm_cpu *comm, const float *data, float *other, int64_t count,
                              int peer) {
  if (!comm) return RAISE(STATUS_INTERNAL, "an exchange with rank %d, but there is one rank", peer);
  for (int64_t done = 0; done < count; done += CHUNK) {
    int part = (int)(count - done < CHUNK ? count - done : CHUNK);
    TRY(check(WAIT(comm, MPI_Sendrecv(data + done, part, MPI_FLOAT, peer, 0, other + done, part, MPI_FLOAT,
                                      peer, 0, comm->comm, MPI_STATUS_IGNORE)),
              "MPI_Sendrecv"));
  }
  return STATUS_OK;
}

enum status comm_cpu_broadcast(struct comm_cpu *comm, void *data, size_t bytes, int root) {
  if (!comm) return STATUS_OK;
  for (size_t done = 0; done < bytes; done += CHUNK) {
    int part = (int)(bytes - done < CHUNK ? bytes - done : CHUNK);
    TRY(check(WAIT(comm, MPI_Bcast((char *)data + done, part, MPI_BYTE, root, comm->comm)), "MPI_Bcast"));
  }
  return STATUS_OK;
}
