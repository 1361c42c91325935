/* See watchdog_judge.h. */
#include "app/watchdog_judge.h"

#include <stddef.h>

static bool is_watched(const struct watchdog_peer *peer) {
  return peer->watched && !peer->gone;
}

static struct watchdog_verdict find_silent(const struct watchdog_peer *peers, int count,
                                           const struct watchdog_limits *limits, double now) {
  struct watchdog_verdict verdict = {0};
  for (int r = 0; r < count; r++) {
    double seconds = now - peers[r].heard;
    if (!is_watched(&peers[r]) || peers[r].closed > 0 || seconds <= limits->silence) continue;
    if (verdict.fault == WATCHDOG_WELL || seconds > verdict.seconds)
      verdict = (struct watchdog_verdict){WATCHDOG_SILENT, r, seconds};
  }
  return verdict;
}

/* Whether the others rather wait for `a` than for `b`. */
static bool more_suspect(const struct watchdog_peer *a, const struct watchdog_peer *b) {
  return a->waiting != b->waiting ? b->waiting : a->step < b->step;
}

struct watchdog_verdict watchdog_judge(const struct watchdog_peer *peers, int count, double moved,
                                       const struct watchdog_limits *limits, double now) {
  for (int r = 0; r < count; r++)
    if (is_watched(&peers[r]) && peers[r].closed > 0 && now - peers[r].closed > limits->grace)
      return (struct watchdog_verdict){WATCHDOG_DEAD, r, now - peers[r].closed};
  struct watchdog_verdict verdict = find_silent(peers, count, limits, now);
  if (verdict.fault != WATCHDOG_WELL || now - moved <= limits->stall) return verdict;
  int suspect = -1;
  for (int r = 0; r < count; r++) {
    if (!peers[r].watched) return verdict; /* a rank that nobody hears may well move */
    if (!is_watched(&peers[r])) continue;
    if (suspect < 0 || more_suspect(&peers[r], &peers[suspect])) suspect = r;
  }
  if (suspect < 0) return verdict;
  return (struct watchdog_verdict){WATCHDOG_STUCK, suspect, now - moved};
}
