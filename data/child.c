/* A child process with limits; see child.h. */
#include "data/child.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRST_SECONDS = 1 };

struct child {
  pid_t pid;
  int socket;
};

/* ---- in the child ---- */

void child_allow(unsigned seconds) {
  (void)setitimer(ITIMER_PROF, &(struct itimerval){.it_value = {.tv_sec = (time_t)seconds}}, NULL);
}

/* `bytes` beyond what is mapped now. */
static void limit_memory(size_t bytes) {
#ifdef CONVOY_SANITIZE
  (void)bytes;
#else
  unsigned long pages = 0;
  struct rlimit limit;
  FILE *file = fopen("/proc/self/statm", "re");
  bool known = file && fscanf(file, "%lu", &pages) == 1;
  if (file) (void)fclose(file);
  if (!known || getrlimit(RLIMIT_AS, &limit) != 0) return;
  rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + bytes;
  if (most < limit.rlim_cur) limit.rlim_cur = most;
  (void)setrlimit(RLIMIT_AS, &limit);
#endif
}

/* Files that this process holds open or locked, and its connections, are none of the child's. */
static void close_others(int socket) {
  DIR *folder = opendir("/proc/self/fd");
  if (!folder) return;
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    int fd = atoi(entry->d_name);
    if (fd > STDERR_FILENO && fd != socket && fd != dirfd(folder)) (void)close(fd);
  }
  (void)closedir(folder);
}

/* No handler of this program or of MPI runs here, nothing is printed (a C library that finds its heap damaged
 * would), no core is left, and the child does not outlive its parent. Sanitizers keep their handlers: they
 * tell where a fault lies. */
static void settle(size_t bytes, pid_t parent) {
#ifndef CONVOY_SANITIZE
  static const int faults[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGSYS, SIGTRAP};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) (void)signal(faults[i], SIG_DFL);
#endif
  static const int limits[] = {SIGPROF, SIGALRM, SIGPIPE};
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) (void)signal(limits[i], SIG_DFL);
  static const int requests[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1,
                                 SIGUSR2}; /* to this program, not to the child */
  for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) (void)signal(requests[i], SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, NULL);
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);
  int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = STDIN_FILENO; nowhere >= 0 && fd <= STDERR_FILENO; fd++) (void)dup2(nowhere, fd);
  (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
  limit_memory(bytes);
  child_allow(FIRST_SECONDS);
}

/* ---- on both sides ---- */

bool child_get(int socket, void *data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    ssize_t got = recv(socket, (char *)data + done, bytes - done, MSG_WAITALL);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += (size_t)got;
  }
  return true;
}

bool child_put(int socket, const void *data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    ssize_t put = send(socket, (const char *)data + done, bytes - done, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    done += (size_t)put;
  }
  return true;
}

/* ---- in this process ---- */

static enum status not_started(int error) {
  return RAISE(STATUS_INPUT,
               "no process can be started to read shards: %s; raise 'ulimit -n' (files), 'ulimit -u' "
               "(processes) or the job's memory",
               strerror(error));
}

enum status child_start(void (*work)(void *context, int socket), void *context, size_t bytes,
                        struct child **started) {
  int ends[2];
  struct child *child = calloc(1, sizeof *child);
  if (!child) return RAISE(STATUS_INPUT, "no memory for a reading process");
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    int error = errno;
    free(child);
    return not_started(error);
  }
  pid_t parent = getpid();
  child->pid = fork();
  if (child->pid == 0) {
    close(ends[0]);
    settle(bytes, parent);
    close_others(ends[1]);
    work(context, ends[1]);
    _exit(0);
  }
  int error = errno;
  close(ends[1]);
  child->socket = ends[0];
  if (child->pid < 0) {
    close(ends[0]);
    free(child);
    return not_started(error);
  }
  *started = child;
  return STATUS_OK;
}

int child_socket(const struct child *child) {
  return child->socket;
}

static void explain(int state, char *why, size_t capacity) {
  int number = WIFSIGNALED(state) ? WTERMSIG(state) : 0;
  why[0] = '\0';
  if (number == SIGPROF)
    snprintf(why, capacity, "it did not come to an end");
  else if (number == SIGKILL)
    snprintf(why, capacity, "it was killed, perhaps for want of memory");
  else if (number != 0)
    snprintf(why, capacity, "it crashed (signal %d)", number);
  else if (WEXITSTATUS(state) != 0)
    snprintf(why, capacity, "it ended (code %d)", WEXITSTATUS(state));
}

/* A child whose socket is closed from its side ends at once by itself: how it does is what is asked for. */
void child_end(struct child *child, char *why, size_t capacity) {
  if (!child) return;
  int state = 0;
  char byte;
  ssize_t got = recv(child->socket, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  bool ended = got == 0 || (got < 0 && errno == ECONNRESET);
  close(child->socket);
  if (!ended) (void)kill(child->pid, SIGKILL);
  while (waitpid(child->pid, &state, 0) < 0 && errno == EINTR) continue;
  if (why && capacity) explain(ended ? state : 0, why, capacity);
  free(child);
}
