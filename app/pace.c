/* The ranks' times; see pace.h. */
#include "app/pace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/clock.h"

void pace_begin(struct pace *pace, const struct world *world) {
  pace->mark = clock_seconds();
  pace->waited = world_wait_seconds(world);
}

double pace_lap(struct pace *pace, const struct world *world) {
  double now = clock_seconds(), waited = world_wait_seconds(world);
  double passed = now - pace->mark, wait = pace->device ? 0 : waited - pace->waited;
  pace->mark = now;
  pace->waited = waited;
  pace->steps += passed;
  pace->wait += wait;
  pace->epoch_own += passed - wait;
  return passed;
}

void pace_part(struct pace *pace, const struct world *world, double *part) {
  *part += clock_seconds() - pace->mark;
  pace_begin(pace, world);
}

void pace_restart(struct pace *pace) {
  pace->steps = pace->wait = pace->data = pace->evaluation = pace->saves = pace->planning = 0;
}

void pace_step(struct pace *pace) {
  pace->epoch_steps++;
}

struct rank_pace {
  double seconds;
  int rank;
  char host[64];
};

static int by_seconds(const void *a, const void *b) {
  const struct rank_pace *x = a, *y = b;
  return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

enum status pace_gather(struct pace *pace, const struct world *world, struct pace_spread *spread) {
  struct rank_pace mine = {.rank = world->rank};
  struct rank_pace *all = calloc((size_t)world->size, sizeof *all);
  enum status status = STATUS_OK;
  *spread = (struct pace_spread){0};
  if (!all) return world_agree(world, RAISE(STATUS_INPUT, "no memory for the ranks' times"));
  if (pace->epoch_steps > 0) mine.seconds = pace->epoch_own / (double)pace->epoch_steps;
  memcpy(mine.host, world->host, sizeof mine.host);
  pace->epoch_own = 0;
  pace->epoch_steps = 0;
  TRY_OUT(world_agree(world, STATUS_OK)); /* all have memory */
  TRY_OUT(world_allgather(world, &mine, sizeof mine, all));
  qsort(all, (size_t)world->size, sizeof *all, by_seconds);
  const struct rank_pace *last = &all[world->size - 1];
  spread->least = all[0].seconds;
  spread->median = (all[(world->size - 1) / 2].seconds + all[world->size / 2].seconds) / 2;
  spread->most = last->seconds;
  spread->slowest = last->rank;
  memcpy(spread->host, last->host, sizeof spread->host);
out:
  free(all);
  return status;
}

/* Milliseconds with three digits or, above 1000, all of them. */
static const char *milliseconds(double seconds, char text[24]) {
  double value = 1e3 * seconds;
  snprintf(text, 24, "%.*f", value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3, value);
  return text;
}

void pace_text(const struct pace_spread *spread, int ranks, char *text, size_t capacity) {
  char a[24], b[24], c[24];
  text[0] = '\0';
  if (spread->most <= 0) return;
  if (ranks == 1)
    snprintf(text, capacity, "; step %s ms", milliseconds(spread->most, a));
  else
    snprintf(text, capacity, "; step %s/%s/%s ms, slowest rank %d on %s", milliseconds(spread->least, a),
             milliseconds(spread->median, b), milliseconds(spread->most, c), spread->slowest, spread->host);
}
