/* Child processes with limits, and the process that forks them; see child.h. */
#include "data/child.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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

/* To the forker: start a child, whose end of the socket comes along; or tell how one has ended. */
struct order {
  child_work *work; /* NULL: `pid` shall end */
  size_t context_bytes, bytes;
  pid_t pid;
  bool kill; /* it is still at work */
};
struct answer {
  pid_t pid;
  int error; /* an errno, 0: it was done */
  int state; /* by waitpid */
};

static struct {
  pthread_mutex_t lock;
  pid_t pid; /* 0: it does not run */
  int socket;
} forker = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- on all sides ---- */

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

/* One message, and a file descriptor beside it if `fd` >= 0. */
static bool message_send(int socket, void *data, size_t bytes, int fd) {
  union {
    struct cmsghdr head;
    char space[CMSG_SPACE(sizeof(int))];
  } beside = {.space = {0}};
  struct iovec part = {data, bytes};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  if (fd >= 0) {
    message.msg_control = beside.space;
    message.msg_controllen = sizeof beside.space;
    beside.head.cmsg_level = SOL_SOCKET;
    beside.head.cmsg_type = SCM_RIGHTS;
    beside.head.cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(&beside.head), &fd, sizeof fd);
  }
  ssize_t sent;
  do sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent == (ssize_t)bytes;
}

/* *fd: -1 if none came. */
static bool message_receive(int socket, void *data, size_t bytes, int *fd) {
  union {
    struct cmsghdr head;
    char space[CMSG_SPACE(sizeof(int))];
  } beside = {.space = {0}};
  struct iovec part = {data, bytes};
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = beside.space, .msg_controllen = sizeof beside.space};
  ssize_t got;
  do got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  *fd = -1;
  if (got >= 0 && head && head->cmsg_type == SCM_RIGHTS) memcpy(fd, CMSG_DATA(head), sizeof *fd);
  return got == (ssize_t)bytes;
}

/* ---- in a child ---- */

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

static void do_work(const struct order *order, int socket) {
  void *context = malloc(order->context_bytes + 1);
  limit_memory(order->bytes);
  child_allow(FIRST_SECONDS);
  if (context && child_get(socket, context, order->context_bytes)) order->work(context, socket);
  free(context);
}

/* ---- in the forker ---- */

static void close_others(int socket) {
  DIR *folder = opendir("/proc/self/fd");
  if (!folder) return;
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    int fd = atoi(entry->d_name);
    if (fd > STDERR_FILENO && fd != socket && fd != dirfd(folder)) (void)close(fd);
  }
  (void)closedir(folder);
}

/* For itself and for the children: no handler of the program's runs, requests to stop are for the program
 * alone, nothing is printed (a C library that finds its heap damaged would), and no core is left. Sanitizers
 * keep their handlers: they tell where a fault lies. */
static void settle(int socket) {
#ifndef CONVOY_SANITIZE
  static const int faults[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGSYS, SIGTRAP};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) (void)signal(faults[i], SIG_DFL);
#endif
  static const int others[] = {SIGPROF, SIGALRM, SIGPIPE, SIGCHLD};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) (void)signal(others[i], SIG_DFL);
  static const int requests[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
  for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) (void)signal(requests[i], SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, NULL);
  int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = STDIN_FILENO; nowhere >= 0 && fd <= STDERR_FILENO; fd++) (void)dup2(nowhere, fd);
  if (nowhere > STDERR_FILENO) (void)close(nowhere); /* the look for others needs a descriptor */
  (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
  close_others(socket);
}

static struct answer start(const struct order *order, int connection, int socket) {
  if (socket < 0) return (struct answer){.error = EMFILE};
  pid_t mine = getpid(), pid = fork();
  if (pid == 0) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != mine) _exit(0);
    close(connection);
    do_work(order, socket);
    _exit(0);
  }
  return (struct answer){.pid = pid, .error = pid < 0 ? errno : 0};
}

/* Asks for the state before it kills, so that nothing but a child can be meant. */
static struct answer end(const struct order *order) {
  struct answer answer = {.pid = order->pid};
  pid_t ended = waitpid(order->pid, &answer.state, order->kill ? WNOHANG : 0);
  if (ended == 0) {
    (void)kill(order->pid, SIGKILL);
    ended = waitpid(order->pid, &answer.state, 0);
  }
  if (ended < 0) answer.error = errno;
  return answer;
}

/* Until the program closes the connection, which it does at its end at the latest. */
static void serve(int connection) {
  struct order order;
  int socket;
  while (message_receive(connection, &order, sizeof order, &socket)) {
    struct answer answer = order.work ? start(&order, connection, socket) : end(&order);
    if (socket >= 0) (void)close(socket);
    if (!message_send(connection, &answer, sizeof answer, -1)) break;
  }
}

/* ---- in this process ---- */

static void set_title(char *title, size_t capacity) {
  static const char name[] = "convoy reader";
  if (title) {
    memset(title, 0, capacity);
    snprintf(title, capacity, "%s", name);
  }
  (void)prctl(PR_SET_NAME, name);
}

/* Under the lock. 0 or an errno. */
static int fork_forker(char *title, size_t capacity) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return errno;
  pid_t pid = fork();
  if (pid == 0) {
    (void)close(ends[0]); /* it would keep itself running */
    set_title(title, capacity);
    settle(ends[1]);
    serve(ends[1]);
    _exit(0);
  }
  int error = errno;
  close(ends[1]);
  if (pid < 0) return close(ends[0]), error;
  forker.pid = pid;
  forker.socket = ends[0];
  return 0;
}

void children_prepare(char *title, size_t capacity) {
  pthread_mutex_lock(&forker.lock);
  if (forker.pid == 0) (void)fork_forker(title, capacity);
  pthread_mutex_unlock(&forker.lock);
}

/* Under the lock. */
static void end_forker(void) {
  if (forker.pid == 0) return;
  close(forker.socket);
  while (waitpid(forker.pid, NULL, 0) < 0 && errno == EINTR) continue;
  forker.pid = 0;
}

void children_finish(void) {
  pthread_mutex_lock(&forker.lock);
  end_forker();
  pthread_mutex_unlock(&forker.lock);
}

/* 0 or an errno. */
static int ask(struct order *order, int socket, struct answer *answer) {
  int none, error = 0;
  pthread_mutex_lock(&forker.lock);
  if (forker.pid == 0) error = fork_forker(NULL, 0);
  if (error == 0 && (!message_send(forker.socket, order, sizeof *order, socket) ||
                     !message_receive(forker.socket, answer, sizeof *answer, &none))) {
    error = ESRCH; /* it was killed: who asks next starts another */
    end_forker();
  }
  pthread_mutex_unlock(&forker.lock);
  return error ? error : answer->error;
}

enum status child_start(child_work *work, const void *context, size_t context_bytes, size_t bytes,
                        struct child **started) {
  int ends[2];
  struct answer answer;
  struct order order;
  memset(&order, 0, sizeof order); /* with what lies between the members */
  order.work = work;
  order.context_bytes = context_bytes;
  order.bytes = bytes;
  struct child *child = calloc(1, sizeof *child);
  if (!child) return RAISE(STATUS_INPUT, "no memory for a reading process");
  int error = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 ? 0 : errno;
  if (error == 0) {
    error = ask(&order, ends[1], &answer);
    if (error == ESRCH)
      error = ask(&order, ends[1], &answer); /* the forker was killed: this starts another */
    close(ends[1]);
    if (error != 0) close(ends[0]);
  }
  if (error != 0) {
    free(child);
    return RAISE(STATUS_INPUT,
                 "no process can be started to read shards: %s; raise 'ulimit -n' (files), 'ulimit -u' "
                 "(processes) or the job's memory",
                 strerror(error));
  }
  *child = (struct child){.pid = answer.pid, .socket = ends[0]};
  (void)child_put(child->socket, context, context_bytes); /* a child that has died is seen by who asks it */
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
  char byte;
  struct answer answer;
  struct order order;
  memset(&order, 0, sizeof order);
  ssize_t got = recv(child->socket, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  bool ended = got == 0 || (got < 0 && errno == ECONNRESET);
  close(child->socket);
  order.pid = child->pid;
  order.kill = !ended;
  int error = ask(&order, -1, &answer);
  if (error != 0) answer.state = SIGKILL; /* of a forker that was killed itself: its children end with it */
  if (why && capacity) explain(ended ? answer.state : 0, why, capacity);
  free(child);
}
