/* Checkpoints where the disk is full: nothing new under a final name, nothing lost, no temporary. */
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/checkpoint_fixture.h"
#include "tests/left_out.h"

/* Writes that end early at many places. */
static void test_no_space(void **state) {
  struct fixture *f = *state;
  struct stat info;
  write_step(f, 41, 0, true);
  assert_int_equal(stat(path_of(f, "step-00000041.h5"), &info), 0);
  size_t bytes = (size_t)info.st_size;
  f->content.progress.step = 42;
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit saved, limit;
  getrlimit(RLIMIT_FSIZE, &saved);
  for (size_t size = 0; size < bytes; size += bytes / 9) {
    limit = (struct rlimit){size, saved.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    enum status status = checkpoint_write(f->folder, &f->content, 1, true);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &saved), 0);
    assert_int_equal(status, STATUS_STORAGE);
    assert_non_null(strstr(error_message(), "step-00000042.h5"));
    assert_non_null(strstr(error_message(), "free"));
    assert_int_equal(entries(f), 2);
    assert_int_equal(newest_step(f), 41);
  }
  write_step(f, 42, 1, false);
  assert_int_equal(newest_step(f), 42);
}

/* The same on a full file system: a small one, mounted where only a child of this test sees it. */
static void test_full_disk(void **state) {
  struct fixture *f = *state;
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", f->folder, "tmpfs", 0, "size=48k") != 0)
      _exit(77);
    f->content.progress.step = 1;
    if (checkpoint_write(f->folder, &f->content, 1, true) != STATUS_OK) _exit(1);
    for (int64_t step = 2; step < 9; step++) { /* two fit beside best.h5's file, then never more */
      f->content.progress.step = step;
      enum status status = checkpoint_write(f->folder, &f->content, 0, false);
      if (status == STATUS_OK) continue;
      bool good = status == STATUS_STORAGE && strstr(error_message(), "No space left") &&
                  newest_step(f) == step - 1 && entries(f) == (int)step;
      _exit(good ? 0 : 2);
    }
    _exit(3);
  }
  int result;
  assert_int_equal(waitpid(child, &result, 0), child);
  if (WIFEXITED(result) && WEXITSTATUS(result) == 77) leave_out("mounts");
  assert_int_equal(result, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_no_space, setup, teardown),
      cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
  };
  return suite_status(cmocka_run_group_tests(tests, NULL, NULL));
}
