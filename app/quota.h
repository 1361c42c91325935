/* The CPU time that a container leaves its processes. */
#ifndef CONVOY_APP_QUOTA_H
#define CONVOY_APP_QUOTA_H

/* CPUs that the control groups of this process give it the time of, INFINITY without a limit
 * (https://docs.kernel.org/admin-guide/cgroup-v2.html, cpu.max; sched-bwc for version 1). root: a folder that
 * stands for / (of tests; else ""). */
double quota_cpus(const char *root);

#endif
