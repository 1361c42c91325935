/* Limits of CPU time and memory (control groups, as containers and Slurm set them); see quota.h. */
#include "app/quota.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The first two numbers in a file; returns how many there are (0: "max", or no such file). */
static int read_numbers(const char *folder, const char *name, double number[2]) {
  char path[PATH_MAX];
  if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return 0;
  FILE *file = fopen(path, "re");
  if (!file) return 0;
  int count = fscanf(file, "%lf %lf", &number[0], &number[1]);
  fclose(file);
  return count > 0 ? count : 0;
}

/* Version 2 has "quota period" in cpu.max, version 1 a file each. */
static double folder_cpus(const char *folder) {
  double quota[2], period[2];
  if (read_numbers(folder, "cpu.max", quota) == 2 && quota[1] > 0) return quota[0] / quota[1];
  if (read_numbers(folder, "cpu.cfs_quota_us", quota) > 0 && quota[0] > 0 &&
      read_numbers(folder, "cpu.cfs_period_us", period) > 0 && period[0] > 0)
    return quota[0] / period[0];
  return INFINITY;
}

/* Version 2 has a limit, and one above which it slows processes down; version 1 a huge number for none. */
static double folder_memory(const char *folder) {
  static const char *const names[] = {"memory.max", "memory.high", "memory.limit_in_bytes"};
  double least = INFINITY, bytes[2];
  for (int i = 0; i < 3; i++)
    if (read_numbers(folder, names[i], bytes) > 0) least = fmin(least, bytes[0]);
  return least;
}

/* A controller, and what a group's folder says of it. */
struct controller {
  const char *name;
  double (*limit)(const char *folder);
};

/* The least of the group's limit and those of the groups around it. A container may see its group as the
 * outermost one whatever the path says: folders that are not there have no limit. */
static double group_limit(const struct controller *controller, const char *mount, const char *group) {
  char folder[PATH_MAX];
  size_t top = strlen(mount);
  double least = INFINITY;
  if (snprintf(folder, sizeof folder, "%s%s", mount, group) >= (int)sizeof folder) return INFINITY;
  for (;;) {
    least = fmin(least, controller->limit(folder));
    char *slash = strrchr(folder + top, '/');
    if (!slash) return least;
    *slash = '\0';
  }
}

static bool names(char *controllers, const char *controller) {
  char *rest = NULL;
  for (char *name = strtok_r(controllers, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
    if (strcmp(name, controller) == 0) return true;
  return false;
}

static double least_limit(const struct controller *controller, const char *root) {
  char path[PATH_MAX], mount[PATH_MAX], line[PATH_MAX + 256];
  double least = INFINITY;
  snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
  FILE *file = fopen(path, "re");
  while (file && fgets(line, sizeof line, file)) { /* number:controllers:group */
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) continue;
    *group++ = '\0';
    const bool unified = controllers[1] == '\0';
    if (!unified && !names(controllers + 1, controller->name)) continue;
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/%s", root, unified ? "" : controller->name);
    least = fmin(least, group_limit(controller, mount, group));
  }
  if (file) fclose(file);
  return least;
}

double quota_cpus(const char *root) {
  return least_limit(&(struct controller){"cpu", folder_cpus}, root);
}

double quota_memory(const char *root) {
  double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
  return fmin(machine, least_limit(&(struct controller){"memory", folder_memory}, root));
}
