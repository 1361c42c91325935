/* Lifts a binding that nobody asked for; see binding.h. */
#include "app/binding.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool chosen_by_user(void) {
  static const char *const choices[] = {"OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_hwloc_base_cpu_list",
                                        "OMPI_MCA_rmaps_base_mapping_policy", "OMPI_MCA_rmaps_rank_file_path",
                                        "OMPI_MCA_orte_rankfile"};
  for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
    if (getenv(choices[i])) return true;
  return false;
}

/* The hardware threads of a CPU's core: "0,8" or "0-1"; that CPU alone where the system does not say. */
static int threads_of_core(size_t cpu) {
  char path[96];
  int first, last, count = 0;
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list", cpu);
  FILE *file = fopen(path, "r");
  while (file && fscanf(file, "%d", &first) == 1) {
    last = first;
    if (fscanf(file, "-%d", &last) != 1) last = first;
    count += last - first + 1;
    if (fgetc(file) != ',') break;
  }
  if (file) fclose(file);
  return count > 1 ? count : 1;
}

static size_t first_of(const cpu_set_t *cpus) {
  size_t cpu = 0;
  while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, cpus)) cpu++;
  return cpu;
}

void binding_lift(void) {
  const char *ranks = getenv("OMPI_COMM_WORLD_SIZE"), *here = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  cpu_set_t own, all;
  if (!ranks || !here || atoi(ranks) > 2 || !getenv("OMPI_MCA_orte_bound_at_launch") || chosen_by_user())
    return;
  if (sched_getaffinity(0, sizeof own, &own) != 0 || sched_getaffinity(getppid(), sizeof all, &all) != 0)
    return;
  if (CPU_COUNT(&own) > threads_of_core(first_of(&own))) return; /* numactl or taskset, below mpirun */
  if (CPU_COUNT(&all) > CPU_COUNT(&own) * atoi(here)) (void)sched_setaffinity(0, sizeof all, &all);
}
