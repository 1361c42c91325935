/* Limits of CPU time (control groups, as containers set them); see quota.h. */
#include "app/quota.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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
static double folder_limit(const char *folder) {
  double quota[2], period[2];
  if (read_numbers(folder, "cpu.max", quota) == 2 && quota[1] > 0) return quota[0] / quota[1];
  if (read_numbers(folder, "cpu.cfs_quota_us", quota) > 0 && quota[0] > 0 &&
      read_numbers(folder, "cpu.cfs_period_us", period) > 0 && period[0] > 0)
    return quota[0] / period[0];
  return INFINITY;
}

/* The least of the group's limit and those of the groups around it. A container may see its group as the
 * outermost one whatever the path says: folders that are not there have no limit. */
static double group_limit(const char *mount, const char *group) {
  char folder[PATH_MAX];
  size_t top = strlen(mount);
  double least = INFINITY;
  if (snprintf(folder, sizeof folder, "%s%s", mount, group) >= (int)sizeof folder) return INFINITY;
  for (;;) {
    least = fmin(least, folder_limit(folder));
    char *slash = strrchr(folder + top, '/');
    if (!slash) return least;
    *slash = '\0';
  }
}

static bool names_cpu(char *controllers) {
  char *rest = NULL;
  for (char *name = strtok_r(controllers, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
    if (strcmp(name, "cpu") == 0) return true;
  return false;
}

double quota_cpus(const char *root) {
  char path[PATH_MAX], mount[PATH_MAX], line[PATH_MAX + 256];
  double least = INFINITY;
  snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
  FILE *file = fopen(path, "re");
  while (file && fgets(line, sizeof line, file)) { /* number:controllers:group */
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) continue;
    *group++ = '\0';
    const bool unified = controllers[1] == '\0', cpu = names_cpu(controllers + 1);
    if (!unified && !cpu) continue;
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s", root, unified ? "" : "/cpu");
    least = fmin(least, group_limit(mount, group));
  }
  if (file) fclose(file);
  return least;
}
