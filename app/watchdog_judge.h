/* Who is at fault, from what is known of all ranks: no threads, sockets or clocks here. */
#ifndef CONVOY_APP_WATCHDOG_JUDGE_H
#define CONVOY_APP_WATCHDOG_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

/* What is known of one rank. Times are seconds of one steady clock. */
struct watchdog_peer {
  bool watched;     /* it is linked */
  bool gone;        /* it said good-bye */
  double heard;     /* when its last beat came */
  double closed;    /* when its link broke; 0: it stands */
  int64_t step;     /* the last step that it has begun, as of its last beat */
  int64_t activity; /* grows as long as its main thread moves */
  bool waiting;     /* for other ranks or the device */
};

enum watchdog_fault {
  WATCHDOG_WELL,
  WATCHDOG_DEAD,   /* its link broke without a word */
  WATCHDOG_SILENT, /* its beats stopped */
  WATCHDOG_STUCK,  /* all beat, none moves; this one is what the others wait for, as far as it can be told */
};

struct watchdog_limits {
  double silence; /* of beats */
  double stall;   /* of all ranks' activity */
  double grace;   /* from a broken link to WATCHDOG_DEAD: the launcher may be ending all ranks just then */
};

struct watchdog_verdict {
  enum watchdog_fault fault;
  int rank;
  double seconds; /* how long it lasts */
};

/* The worst fault at `now`; `moved`: when any rank's activity last grew. Of silent ranks the first to fall
 * silent; of stuck ones one that does not wait, else the one of the lowest step. */
struct watchdog_verdict watchdog_judge(const struct watchdog_peer *peers, int count, double moved,
                                       const struct watchdog_limits *limits, double now);

#endif
