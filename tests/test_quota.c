/* A container's limits of CPU time and memory, in both versions of control groups, read from made folders. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "app/quota.h"
#include "model/base/folder.h"

static char root[32];

static void put(const char *name, const char *text) {
  char path[256], folder[256];
  snprintf(path, sizeof path, "%s/%s", root, name);
  snprintf(folder, sizeof folder, "%s", path);
  *strrchr(folder, '/') = '\0';
  assert_int_equal(folder_make(folder, NULL), STATUS_OK);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
}

static int begin(void **state) {
  (void)state;
  snprintf(root, sizeof root, "/tmp/convoy-limit-XXXXXX");
  return mkdtemp(root) ? 0 : -1;
}
static int end(void **state) {
  (void)state;
  char command[64];
  snprintf(command, sizeof command, "rm -rf %s", root);
  return system(command);
}

static void limit_is(double expected) {
  const double limit = quota_cpus(root);
  if (!(limit == expected)) fail_msg("limit %g, expected %g", limit, expected);
}

static void test_none(void **state) {
  (void)state;
  limit_is(INFINITY); /* no control groups at all */
  put("proc/self/cgroup", "0::/\n");
  limit_is(INFINITY); /* the outermost group has no file */
  put("sys/fs/cgroup/cpu.max", "max 100000\n");
  limit_is(INFINITY);
}

static void test_unified(void **state) {
  (void)state;
  put("proc/self/cgroup", "0::/pods/one/box\n");
  put("sys/fs/cgroup/pods/one/box/cpu.max", "max 100000\n");
  put("sys/fs/cgroup/pods/one/cpu.max", "250000 100000\n");
  put("sys/fs/cgroup/pods/cpu.max", "400000 50000\n");
  limit_is(2.5); /* the least of its own and those around it */
  put("sys/fs/cgroup/pods/one/box/cpu.max", "50000 100000\n");
  limit_is(0.5);
}

static void test_seen_from_a_container(void **state) {
  (void)state;
  put("proc/self/cgroup", "0::/../../host/path\n"); /* the group is mounted as the outermost one */
  put("sys/fs/cgroup/cpu.max", "300000 100000\n");
  limit_is(3);
}

static void test_version_1(void **state) {
  (void)state;
  put("proc/self/cgroup", "9:cpuset:/a\n4:cpuacct,cpu:/docker/b\n2:memory:/docker/b\n");
  put("sys/fs/cgroup/cpu/docker/b/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu/docker/b/cpu.cfs_period_us", "100000\n");
  limit_is(INFINITY);
  put("sys/fs/cgroup/cpu/docker/b/cpu.cfs_quota_us", "150000\n");
  limit_is(1.5);
  put("proc/self/cgroup", "9:cpuset:/docker/b\n");
  limit_is(INFINITY); /* cpuset is another controller */
}

static void test_odd_files(void **state) {
  (void)state;
  put("proc/self/cgroup", "\nnonsense\n1:cpu\n0::/\n");
  put("sys/fs/cgroup/cpu.max", "100000 0\n");
  limit_is(INFINITY);
  put("sys/fs/cgroup/cpu.max", "");
  limit_is(INFINITY);
}

static void memory_is(double expected) {
  const double bytes = quota_memory(root);
  if (!(bytes == expected)) fail_msg("%.0f bytes, expected %.0f", bytes, expected);
}

static void test_memory(void **state) {
  (void)state;
  const double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
  memory_is(machine);
  put("proc/self/cgroup", "0::/slurm/job_1/step_0\n");
  put("sys/fs/cgroup/slurm/job_1/step_0/memory.max", "max\n");
  put("sys/fs/cgroup/slurm/job_1/memory.max", "500000\n");
  put("sys/fs/cgroup/slurm/memory.max", "9223372036854771712\n");
  memory_is(500000);
  put("sys/fs/cgroup/slurm/job_1/step_0/memory.high", "300000\n");
  memory_is(300000);
  put("proc/self/cgroup", "4:memory:/docker/b\n1:cpu:/c\n");
  memory_is(machine);
  put("sys/fs/cgroup/memory/docker/b/memory.limit_in_bytes", "9223372036854771712\n");
  memory_is(machine);
  put("sys/fs/cgroup/memory/docker/b/memory.limit_in_bytes", "200000\n");
  memory_is(200000);
  limit_is(INFINITY);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_none, begin, end),
      cmocka_unit_test_setup_teardown(test_unified, begin, end),
      cmocka_unit_test_setup_teardown(test_seen_from_a_container, begin, end),
      cmocka_unit_test_setup_teardown(test_version_1, begin, end),
      cmocka_unit_test_setup_teardown(test_odd_files, begin, end),
      cmocka_unit_test_setup_teardown(test_memory, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
