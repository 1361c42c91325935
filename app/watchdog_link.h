/* The watchdog's TCP links: one from each rank to rank 0, carrying fixed-size messages. */
#ifndef CONVOY_APP_WATCHDOG_LINK_H
#define CONVOY_APP_WATCHDOG_LINK_H

#include "model/base/world.h"

enum watchdog_kind {
  WATCHDOG_BEAT,
  WATCHDOG_BYE,     /* the sender needs nobody any more */
  WATCHDOG_FAIL,    /* the sender ends the job with `code` because of its own error */
  WATCHDOG_VERDICT, /* rank 0 ends the job with `code` because of a rank's fault */
};

/* As sent: all ranks run one binary. */
struct watchdog_message {
  uint64_t token; /* of the job: others may find the port */
  int64_t step, activity;
  int32_t rank, kind, waiting, code;
};

struct watchdog_link {
  int fd; /* -1: none */
  int used;
  unsigned char buffer[sizeof(struct watchdog_message)]; /* of a message that has not come whole */
};

/* Fills links[world->size]: on rank 0 those of the others, elsewhere links[0] only; fd -1 where there is none
 * after a few seconds. Collective. */
enum status watchdog_link_open(const struct world *world, uint64_t *token, struct watchdog_link *links);

/* Takes the next whole message: 1 it is there, 0 not yet, -1 the link is broken or speaks another language.
 */
int watchdog_link_receive(struct watchdog_link *link, uint64_t token, struct watchdog_message *message);

/* Sends unless the receiver has not taken what was sent long ago. Never blocks. */
void watchdog_link_send(const struct watchdog_link *link, const struct watchdog_message *message);

void watchdog_link_close(struct watchdog_link *link);

#endif
