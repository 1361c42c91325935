/* Starts gnuplot and waits for it; see gnuplot.h. */
#include "app/gnuplot.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "model/base/clock.h"

/* 0, or an errno. */
static int set_streams(const struct gnuplot_job *job, posix_spawn_file_actions_t *actions) {
  const int stream[3] = {job->input, job->output, job->quiet ? -1 : STDERR_FILENO};
  int failed = job->folder ? posix_spawn_file_actions_addchdir_np(actions, job->folder) : 0;
  for (int fd = 0; fd < 3 && !failed; fd++)
    if (stream[fd] < 0)
      failed = posix_spawn_file_actions_addopen(actions, fd, "/dev/null", fd == 0 ? O_RDONLY : O_WRONLY, 0);
    else if (stream[fd] != fd)
      failed = posix_spawn_file_actions_adddup2(actions, stream[fd], fd);
  return failed;
}

/* 0, or an errno. */
static int start(const struct gnuplot_job *job, pid_t *process) {
  char program[] = "gnuplot", *words[] = {program, job->script, NULL};
  posix_spawn_file_actions_t actions;
  int failed = posix_spawn_file_actions_init(&actions);
  if (failed) return failed;
  failed = set_streams(job, &actions);
  if (!failed) failed = posix_spawnp(process, program, &actions, NULL, words, environ);
  posix_spawn_file_actions_destroy(&actions);
  return failed;
}

/* Whether the process has ended by itself in time; if not it is killed. */
static bool await_end(pid_t process, double seconds, int *state) {
  static const struct timespec pause = {.tv_nsec = 20000000};
  double end = clock_seconds() + seconds;
  for (;;) {
    pid_t ended = waitpid(process, state, WNOHANG);
    if (ended == process) return true;
    if ((ended < 0 && errno != EINTR) || clock_seconds() > end) break;
    nanosleep(&pause, NULL);
  }
  kill(process, SIGKILL);
  waitpid(process, state, 0);
  return false;
}

enum status gnuplot_run(const struct gnuplot_job *job, double seconds) {
  pid_t process;
  int state = 0, failed = start(job, &process);
  const char *hint = job->quiet ? "" : " (its words are above)";
  if (failed == ENOENT)
    return RAISE(STATUS_INPUT, "a picture needs gnuplot, which is not in PATH (Debian: gnuplot-nox)");
  if (failed) return RAISE(STATUS_INTERNAL, "gnuplot cannot be started: %s", strerror(failed));
  if (!await_end(process, seconds, &state))
    return RAISE(STATUS_INTERNAL, "gnuplot did not end within %g s and was killed%s", seconds, hint);
  if (WIFSIGNALED(state))
    return RAISE(STATUS_INTERNAL, "gnuplot ended by signal %d%s", WTERMSIG(state), hint);
  if (WEXITSTATUS(state) != 0)
    return RAISE(STATUS_INTERNAL, "gnuplot ended with %d%s", WEXITSTATUS(state), hint);
  return STATUS_OK;
}
