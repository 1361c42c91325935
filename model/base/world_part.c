/* Worlds of some of the ranks, and rests that leave the cores to others; see world.h. */
#include <stdio.h>
#include <time.h>

#include "model/base/world_parts.h"

enum { REST_NANOSECONDS = 2000000 };

enum status world_part_open(const struct world *world, int group, struct world *part) {
  struct world made = {.pulse = world->pulse,
                       .cores = world->cores,
                       .cpu_limit = world->cpu_limit,
                       .memory_limit = world->memory_limit,
                       .seat = world->seat,
                       .seats = world->seats};
  int color = group < 0 ? MPI_UNDEFINED : group;
  MPI_Comm all;
  *part = (struct world){0};
  enum status status = world_check(
      WORLD_WAIT(world, MPI_Comm_split(world->comm->all, color, world->rank, &all)), "splitting the ranks");
  if (status != STATUS_OK || group < 0) return status;
  status = world_fill(&made, all);
  snprintf(made.host, sizeof made.host, "%s", world->host);
  if (status != STATUS_OK) {
    world_part_close(&made);
    return status;
  }
  *part = made;
  return STATUS_OK;
}

void world_part_close(struct world *part) {
  world_comm_free(part);
  *part = (struct world){0};
}

enum status world_rest(const struct world *world) {
  static const struct timespec pause = {.tv_nsec = REST_NANOSECONDS};
  MPI_Request request;
  int done = 0, code = MPI_Ibarrier(world->comm->all, &request);
  world_wait_begin(world);
  while (code == MPI_SUCCESS && !done) {
    code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (!done) nanosleep(&pause, NULL);
  }
  world_wait_end(world);
  return world_check(code, "a rest");
}

int world_handle(const struct world *world) {
  return (int)MPI_Comm_c2f(world->comm->all);
}
