/* The watchdog's thread; see watchdog.h. */
#include "app/watchdog.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "app/watchdog_judge.h"
#include "app/watchdog_link.h"
#include "model/base/clock.h"
#include "model/base/deadline.h"
#include "model/base/log.h"
#include "model/base/thread.h"

enum { HOST = 64, LEAVE_SECONDS = 2 };

static const char not_found[] =
    "error: the ranks have not found each other within --init-timeout; a rank or host is missing, or MPI's "
    "network interface is wrong (Open MPI: --mca btl_tcp_if_include NAME); start again with --resume\n";

struct watchdog {
  const struct world *world; /* borrowed */
  double init_seconds, comm_seconds, beat_seconds;
  uint64_t token;
  char (*host)[HOST];          /* [size] */
  struct watchdog_link *links; /* [size] */
  struct watchdog_peer *peers; /* [size]; elsewhere than on rank 0 only peers[0] counts */
  struct pollfd *poll;         /* [size + 1]; the last one wakes the thread */
  double moved;                /* when any rank's activity last grew */
  /* This rank's own activity. */
  struct world_state state;
  int64_t activity;
  double cpu; /* process time, the watchdog's own excluded, when it last counted as activity */
  pthread_t thread;
  int wake;
  atomic_int order; /* enum watchdog_kind: what to send before the end; WATCHDOG_BEAT: it goes on */
  atomic_int code;
};

/* Processor seconds of the process without those of this thread. */
static double seconds_worked(void) {
  struct timespec all, own;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own);
  return (double)(all.tv_sec - own.tv_sec) + 1e-9 * (double)(all.tv_nsec - own.tv_nsec);
}

/* ---- leaving ---- */

static void send_all(const struct watchdog *w, enum watchdog_kind kind, int code) {
  struct watchdog_message message = {.token = w->token,
                                     .step = w->state.step,
                                     .activity = w->activity,
                                     .rank = w->world->rank,
                                     .kind = (int32_t)kind,
                                     .waiting = w->state.waiting,
                                     .code = code};
  for (int r = 0; r < w->world->size; r++)
    if (w->links[r].fd >= 0) watchdog_link_send(&w->links[r], &message);
}

/* Prints the one line and ends the job. */
static void end_job(const struct watchdog *w, const char *line) {
  send_all(w, WATCHDOG_VERDICT, STATUS_COMM);
  ssize_t written = write(STDERR_FILENO, line, strlen(line)); /* the main thread may hold stderr's lock */
  (void)written;
  deadline_final(LEAVE_SECONDS, STATUS_COMM);
  world_abort(w->world, STATUS_COMM);
}

static void describe(const struct watchdog *w, const struct watchdog_verdict *verdict, char *line,
                     size_t capacity) {
  const struct watchdog_peer *peer = &w->peers[verdict->rank];
  char who[160];
  snprintf(who, sizeof who, "rank %d on host %s", verdict->rank, w->host[verdict->rank]);
  static const char advice[] = "start again with --resume";
  switch (verdict->fault) {
  case WATCHDOG_DEAD:
    snprintf(line, capacity, "error: %s died; its last known step was %" PRId64 "; %s\n", who, peer->step,
             advice);
    return;
  case WATCHDOG_SILENT:
    snprintf(line, capacity,
             "error: %s is silent for %.1f s (frozen, or its host or network is lost); its last known step "
             "was %" PRId64 "; --comm-timeout is %.0f s; %s\n",
             who, verdict->seconds, peer->step, w->comm_seconds, advice);
    return;
  case WATCHDOG_STUCK:
    snprintf(
        line, capacity,
        "error: no rank has moved for %.1f s; %s holds the others up: it is %s in step %" PRId64
        "; --comm-timeout is %.0f s; set NCCL_DEBUG=INFO to see more, NCCL_SOCKET_IFNAME to name the network "
        "interface; %s\n",
        verdict->seconds, who, peer->waiting ? "waiting" : "at a standstill", peer->step, w->comm_seconds,
        advice);
    return;
  case WATCHDOG_WELL:
    return;
  }
}

/* ---- listening ---- */

/* Leaves with a code that another rank has reported, once the launcher has had time to end all. */
static void follow(int code) {
  deadline_final(2 * LEAVE_SECONDS, code);
}

static void take(struct watchdog *w, int from, const struct watchdog_message *message, double now) {
  struct watchdog_peer *peer = &w->peers[from];
  peer->heard = now;
  if (message->kind == WATCHDOG_BEAT) {
    if (message->activity != peer->activity) w->moved = now;
    peer->activity = message->activity;
    peer->step = message->step;
    peer->waiting = message->waiting != 0;
    return;
  }
  peer->gone = true;
  if (message->kind == WATCHDOG_BYE) return;
  if (w->world->rank == 0) send_all(w, WATCHDOG_FAIL, message->code);
  for (int r = 0; r < w->world->size; r++) w->peers[r].gone = true; /* all are leaving */
  follow(message->code);
}

static void listen_all(struct watchdog *w, double now) {
  for (int r = 0; r < w->world->size; r++) {
    struct watchdog_link *link = &w->links[r];
    struct watchdog_message message;
    int got = 0;
    while (link->fd >= 0 && (got = watchdog_link_receive(link, w->token, &message)) == 1)
      take(w, r, &message, now);
    if (link->fd < 0 || got == 0) continue;
    w->peers[r].closed = now;
    watchdog_link_close(link);
  }
}

/* ---- judging ---- */

/* Whether the main thread has moved since the last look: it has ended a wait, or, outside of waits, the
 * process has worked, or what it does may take long without any work of the processor. */
static void look_at_self(struct watchdog *w, double now) {
  struct world_state state = world_state(w->world);
  double cpu = seconds_worked();
  bool worked = !state.waiting && cpu - w->cpu > 1e-3;
  if (state.waits != w->state.waits || state.patient || worked) {
    w->activity++;
    w->cpu = cpu;
    w->moved = now;
  }
  if (state.waiting) w->cpu = cpu; /* MPI waits by polling */
  w->state = state;
  if (w->world->rank != 0) return;
  w->peers[0] = (struct watchdog_peer){
      .watched = true, .heard = now, .step = state.step, .activity = w->activity, .waiting = state.waiting};
}

/* Rank 0 judges all, the others only whether rank 0 still beats. */
static void judge(struct watchdog *w, double now) {
  bool root = w->world->rank == 0;
  double stall = w->state.step > 0 || w->init_seconds < w->comm_seconds ? w->comm_seconds : w->init_seconds;
  struct watchdog_limits limits = {.silence = w->comm_seconds, .stall = stall, .grace = 0.5};
  if (!root) {
    limits.silence += 2 * w->beat_seconds;
    limits.grace = 2; /* rank 0 may be about to say why */
    limits.stall = 1e30;
  }
  struct watchdog_verdict verdict =
      watchdog_judge(w->peers, root ? w->world->size : 1, w->moved, &limits, now);
  if (verdict.fault == WATCHDOG_WELL) return;
  char line[512];
  describe(w, &verdict, line, sizeof line);
  if (root || w->world->rank == 1) end_job(w, line);
  w->peers[0].gone = true;
  follow(STATUS_COMM);
}

static void wait_for_news(struct watchdog *w, double seconds) {
  nfds_t count = 0;
  for (int r = 0; r < w->world->size; r++)
    if (w->links[r].fd >= 0) w->poll[count++] = (struct pollfd){.fd = w->links[r].fd, .events = POLLIN};
  w->poll[count++] = (struct pollfd){.fd = w->wake, .events = POLLIN};
  poll(w->poll, count, seconds > 0 ? (int)(seconds * 1000) + 1 : 0);
}

static void *watch(void *argument) {
  struct watchdog *w = argument;
  double next = 0, last = clock_seconds();
  while (atomic_load(&w->order) == WATCHDOG_BEAT) {
    wait_for_news(w, next - clock_seconds());
    double now = clock_seconds();
    listen_all(w, now);
    if (now - last > 3 * w->beat_seconds) { /* this rank stood still: the others get their time again */
      for (int r = 0; r < w->world->size; r++) w->peers[r].heard = now;
      w->moved = now;
    }
    last = now;
    if (now >= next) {
      look_at_self(w, now);
      send_all(w, WATCHDOG_BEAT, 0);
      next = now + w->beat_seconds;
    }
    judge(w, now);
  }
  send_all(w, (enum watchdog_kind)atomic_load(&w->order), atomic_load(&w->code));
  return NULL;
}

/* ---- start and end ---- */

static void release(struct watchdog *w) {
  for (int r = 0; w->links && r < w->world->size; r++) watchdog_link_close(&w->links[r]);
  if (w->wake >= 0) close(w->wake);
  free(w->host);
  free(w->links);
  free(w->peers);
  free(w->poll);
  free(w);
}

static enum status create(const struct world *world, struct watchdog **watchdog) {
  struct watchdog *w = calloc(1, sizeof *w);
  if (!w) return RAISE(STATUS_INPUT, "no memory for the watchdog");
  size_t size = (size_t)world->size;
  w->world = world;
  w->host = calloc(size, sizeof *w->host);
  w->links = calloc(size, sizeof *w->links);
  w->peers = calloc(size, sizeof *w->peers);
  w->poll = calloc(size + 1, sizeof *w->poll);
  w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  for (int r = 0; w->links && r < world->size; r++) w->links[r].fd = -1;
  if (w->host && w->links && w->peers && w->poll && w->wake >= 0) {
    *watchdog = w;
    return STATUS_OK;
  }
  release(w);
  return RAISE(STATUS_INPUT, "no memory or file descriptor for the watchdog");
}

/* Says once which ranks are not watched. */
static void warn_unlinked(const struct watchdog *w) {
  int count = 0, first = 0;
  for (int r = w->world->size - 1; r > 0; r--)
    if (w->links[r].fd < 0) count++, first = r;
  if (w->world->rank != 0 || count == 0) return;
  log_warning(
      "%d rank%s (the first: rank %d on host %s) cannot connect to rank 0 by TCP: nobody will notice if %s "
      "freezes",
      count, count == 1 ? "" : "s", first, w->host[first], count == 1 ? "it" : "one of them");
}

static enum status start_thread(struct watchdog *w) {
  int error = thread_start(&w->thread, watch, w);
  if (error) return RAISE(STATUS_INTERNAL, "cannot start the watchdog's thread: %s", strerror(error));
  return STATUS_OK;
}

static enum status connect_all(struct watchdog *w) {
  const struct world *world = w->world;
  char host[HOST];
  snprintf(host, sizeof host, "%s", world->host);
  TRY(world_allgather(world, host, sizeof host, w->host));
  TRY(watchdog_link_open(world, &w->token, w->links));
  TRY(world_barrier(world));
  double now = clock_seconds();
  for (int r = 0; r < world->size; r++)
    w->peers[r] = (struct watchdog_peer){.watched = w->links[r].fd >= 0, .heard = now};
  w->moved = now;
  warn_unlinked(w);
  return STATUS_OK;
}

void watchdog_stop(struct watchdog *w, enum status status) {
  if (!w) return;
  uint64_t one = 1;
  atomic_store(&w->code, (int)status);
  atomic_store(&w->order, world_agreed(w->world, status) ? WATCHDOG_BYE : WATCHDOG_FAIL);
  ssize_t written = write(w->wake, &one, sizeof one);
  (void)written; /* a full counter wakes as well */
  pthread_join(w->thread, NULL);
  release(w);
}

static enum status start(const struct world *world, int init_seconds, int comm_seconds,
                         struct watchdog **watchdog) {
  struct watchdog *w = NULL;
  enum status status = world_agree(world, create(world, &w));
  if (status != STATUS_OK) {
    if (w) release(w);
    return status;
  }
  w->init_seconds = init_seconds;
  w->comm_seconds = comm_seconds;
  w->beat_seconds = comm_seconds < 5 ? comm_seconds / 10.0 : 0.5;
  enum status mine = connect_all(w);
  if (mine == STATUS_OK) mine = start_thread(w);
  status = world_agree(world, mine);
  if (status == STATUS_OK)
    *watchdog = w;
  else if (mine == STATUS_OK)
    watchdog_stop(w, status);
  else
    release(w);
  return status;
}

enum status watchdog_start(const struct world *world, int init_seconds, int comm_seconds,
                           struct watchdog **watchdog) {
  *watchdog = NULL;
  enum status status = STATUS_OK;
  if (world->size > 1) {
    deadline_set((unsigned)init_seconds, STATUS_COMM, world->rank == 0 ? not_found : NULL);
    status = start(world, init_seconds, comm_seconds, watchdog);
  }
  deadline_clear();
  return status;
}
