/* The CPU time and memory that a container or Slurm leaves its processes. */
#ifndef CONVOY_APP_QUOTA_H
#define CONVOY_APP_QUOTA_H

/* CPUs that the control groups of this process give it the time of, INFINITY without a limit
 * (https://docs.kernel.org/admin-guide/cgroup-v2.html, cpu.max; sched-bwc for version 1). root: a folder that
 * stands for / (of tests; else ""). */
double quota_cpus(const char *root);

/* Bytes of memory that the processes of this host's job may have in all: the machine's, or fewer if their
 * control groups say so (memory.max and memory.high; version 1: memory.limit_in_bytes). */
double quota_memory(const char *root);

#endif
