/* Sockets between the watchdogs; see watchdog_link.h. Rank 0 listens on a port that the kernel picks and
 * tells all its addresses; each rank takes the first on which rank 0 answers. */
#include "app/watchdog_link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "model/base/clock.h"

enum { ADDRESSES = 16, CONNECT_MS = 2000, ACCEPT_MS = 10000, QUEUED_BYTES = 4096 };

/* Where rank 0 can be reached. */
struct place {
  uint64_t token;
  int count; /* 0: it cannot listen */
  struct in_addr address[ADDRESSES];
  in_port_t port;
};

static int64_t now_ms(void) {
  return (int64_t)(1e3 * clock_seconds());
}

static void prepare(int fd) {
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* ---- rank 0 ---- */

/* Adds the host's own addresses, the loopback ones last: ranks of other hosts then find them refused or
 * strange. */
static void list_addresses(struct place *place) {
  struct ifaddrs *list;
  if (getifaddrs(&list) != 0) return;
  for (int loopback = 0; loopback < 2; loopback++)
    for (const struct ifaddrs *item = list; item && place->count < ADDRESSES; item = item->ifa_next) {
      bool is_loopback = (item->ifa_flags & IFF_LOOPBACK) != 0;
      if (!item->ifa_addr || item->ifa_addr->sa_family != AF_INET || !(item->ifa_flags & IFF_UP)) continue;
      if (is_loopback != (loopback == 1)) continue;
      struct sockaddr_in address;
      memcpy(&address, item->ifa_addr, sizeof address);
      place->address[place->count++] = address.sin_addr;
    }
  freeifaddrs(list);
}

/* The listening socket, or -1. */
static int listen_anywhere(struct place *place) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
  socklen_t length = sizeof address;
  if (getrandom(&place->token, sizeof place->token, 0) != (ssize_t)sizeof place->token) return -1;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, SOMAXCONN) != 0 ||
      getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
    close(fd);
    return -1;
  }
  place->port = address.sin_port;
  list_addresses(place);
  return fd;
}

/* Reads one whole message within `ms`. */
static bool receive_within(int fd, uint64_t token, int ms, struct watchdog_message *message) {
  struct watchdog_link link = {.fd = fd};
  int64_t end = now_ms() + ms;
  for (;;) {
    int got = watchdog_link_receive(&link, token, message);
    int64_t left = end - now_ms();
    if (got != 0 || left <= 0) return got == 1;
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    poll(&poll_fd, 1, (int)left);
  }
}

/* Takes the ranks that come, until all are there or time is up. Each is answered, so that it knows its
 * partner. */
static void accept_ranks(const struct world *world, int listener, uint64_t token,
                         struct watchdog_link *links) {
  int missing = world->size - 1;
  int64_t end = now_ms() + ACCEPT_MS, left;
  while (missing > 0 && (left = end - now_ms()) > 0) {
    struct pollfd poll_fd = {.fd = listener, .events = POLLIN};
    if (poll(&poll_fd, 1, (int)left) <= 0) continue;
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) continue;
    prepare(fd);
    struct watchdog_message hello;
    struct watchdog_link link = {.fd = fd};
    bool known = receive_within(fd, token, 1000, &hello) && hello.rank > 0 && hello.rank < world->size;
    if (!known) {
      close(fd);
      continue;
    }
    watchdog_link_send(&link, &(struct watchdog_message){.token = token, .kind = WATCHDOG_BEAT});
    if (links[hello.rank].fd < 0)
      missing--;
    else
      close(links[hello.rank].fd); /* its answer was late */
    links[hello.rank] = link;
  }
}

/* ---- the other ranks ---- */

static int connect_within(const struct in_addr *where, in_port_t port, int ms) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = *where, .sin_port = port};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  prepare(fd);
  int error = connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    socklen_t length = sizeof error;
    if (poll(&poll_fd, 1, ms) != 1 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
      error = ETIMEDOUT;
  }
  if (error == 0) return fd;
  close(fd);
  return -1;
}

static void connect_root(const struct world *world, const struct place *place, struct watchdog_link *link) {
  struct watchdog_message hello = {.token = place->token, .rank = world->rank, .kind = WATCHDOG_BEAT}, answer;
  for (int i = 0; i < place->count && link->fd < 0; i++) {
    int fd = connect_within(&place->address[i], place->port, CONNECT_MS);
    if (fd < 0) continue;
    *link = (struct watchdog_link){.fd = fd};
    watchdog_link_send(link, &hello);
    if (!receive_within(fd, place->token, CONNECT_MS, &answer)) watchdog_link_close(link);
  }
}

enum status watchdog_link_open(const struct world *world, uint64_t *token, struct watchdog_link *links) {
  struct place place;
  memset(&place, 0, sizeof place);
  int listener = -1;
  for (int r = 0; r < world->size; r++) links[r].fd = -1;
  if (world->rank == 0) listener = listen_anywhere(&place);
  if (world->rank == 0 && listener < 0) place.count = 0;
  enum status status = world_broadcast(world, &place, sizeof place, 0);
  if (status == STATUS_OK && world->rank != 0) connect_root(world, &place, &links[0]);
  if (status == STATUS_OK && listener >= 0) accept_ranks(world, listener, place.token, links);
  if (listener >= 0) close(listener);
  *token = place.token;
  return status;
}

/* ---- messages ---- */

int watchdog_link_receive(struct watchdog_link *link, uint64_t token, struct watchdog_message *message) {
  while (link->used < (int)sizeof *message) {
    ssize_t got =
        recv(link->fd, link->buffer + link->used, sizeof *message - (size_t)link->used, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
    if (got <= 0) return -1;
    link->used += (int)got;
  }
  memcpy(message, link->buffer, sizeof *message);
  link->used = 0;
  return message->token == token ? 1 : -1;
}

void watchdog_link_send(const struct watchdog_link *link, const struct watchdog_message *message) {
  int queued = 0;
  /* A socket's buffer is much larger than what may wait here: a message is never sent in part. */
  if (ioctl(link->fd, SIOCOUTQ, &queued) == 0 && queued > QUEUED_BYTES) return;
  ssize_t sent = send(link->fd, message, sizeof *message, MSG_NOSIGNAL | MSG_DONTWAIT);
  (void)sent; /* a broken link shows in receive */
}

void watchdog_link_close(struct watchdog_link *link) {
  if (link->fd >= 0) close(link->fd);
  link->fd = -1;
}
