/* Measurements on some of the ranks, while the others rest: for `convoy bench scaling` and `predict`. */
#ifndef CONVOY_APP_SCALING_RUN_H
#define CONVOY_APP_SCALING_RUN_H

#include "app/bench.h"
#include "app/scaling_fit.h"
#include "model/net/profile.h"

enum { SCALING_COUNTS = 32, SCALING_SIZES = 24 };

/* Which ranks take part if fewer than all are wanted: host by host, or evenly over the hosts. Rank 0 always
 * does. */
enum scaling_place { SCALING_PACKED, SCALING_SPREAD };

/* The job's ranks. */
struct scaling_ranks {
  const struct world *world; /* borrowed */
  int threads;               /* CPU threads of each rank, whoever takes part */
  int order;                 /* this rank takes part among more than so many */
};

/* Collective, as all here; the same status on all ranks, or one that ends them all (world_agreed). */
enum status scaling_ranks_open(const struct world *world, const struct bench_options *options,
                               struct scaling_ranks *ranks);

/* Numbers of ranks from text: "1,2,4", each above the one before and at most `size`; "": powers of two and
 * size. */
enum status scaling_counts(const char *text, int size, int count[SCALING_COUNTS], int *counts);

/* What rank 0 knows after a measurement. */
struct scaling_result {
  int ranks, hosts, windows;
  int64_t batch;                          /* images a step over all ranks */
  double step, least, lower, upper, most; /* seconds: median, extremes and quartiles of the windows */
  double part[NET_PARTS];                 /* seconds, mean over the ranks */
  double images_per_s;
  char device[128]; /* rank 0's */
};

/* Its buckets, as scaling_step takes them: scaled so that the parts are all of `step`. Owned by the caller:
 * free both. */
struct scaling_buckets {
  int count;
  double *ready, *bytes;
};

/* Times steps of `batch` images over `count` ranks; *buckets (NULL: not wanted) on rank 0 only. */
enum status scaling_measure(const struct scaling_ranks *ranks, const struct bench_options *options, int count,
                            int64_t batch, struct scaling_result *result, struct scaling_buckets *buckets);

/* All-reduces of growing size between the ranks of one `group`, all groups at a time (-1: in none); on rank 0
 * those of its group: bytes and seconds of point[*points], and the group's ranks. */
enum status scaling_allreduces(const struct scaling_ranks *ranks, const struct bench_options *options,
                               int group, struct scaling_point point[SCALING_SIZES], int *points, int *size);

#endif
