/* What communication costs, fitted to measured all-reduces, and what a training step then takes on any number
 * of ranks. Seconds and bytes; pure functions.
 *
 * A message of m bytes between neighbours takes alpha + m / beta (Hockney, 1994): alpha seconds of latency,
 * beta bytes/s. Libraries change their protocol with the size, so a link may have two such lines. */
#ifndef CONVOY_APP_SCALING_FIT_H
#define CONVOY_APP_SCALING_FIT_H

#include <stdbool.h>

#include "model/base/error.h"

struct scaling_line {
  double latency;  /* alpha, seconds */
  double per_byte; /* 1 / beta, seconds */
};

struct scaling_link {
  struct scaling_line small, large; /* the same if one line holds everywhere */
  double turn;                      /* messages of as many bytes and more take the second line */
};

struct scaling_point {
  double bytes, seconds; /* of one message */
};

/* Least squares of the logarithms' residuals, reweighted so that few wrong points do not matter (Tukey's
 * biweight after least absolute values), alpha and 1 / beta not negative. Two lines only if they fit much
 * better than one, each on three points or more. `point` is in order of size; STATUS_INPUT with fewer than
 * three points, or a time or size that is not above zero. */
enum status scaling_fit(const struct scaling_point *point, int count, struct scaling_link *link);

/* One line: that latency and bandwidth. */
struct scaling_link scaling_link_of(double latency_seconds, double bytes_per_second);

double scaling_message(const struct scaling_link *link, double bytes); /* seconds */

/* ---- all-reduce: the sum of `bytes` on each of P ranks, G of them on each host, N = ceil(P / G) hosts ----
 */

/* A rank's links to its neighbours on its host and on the next one; all ranks may use theirs at a time. */
struct scaling_network {
  struct scaling_link inside, between;
  int host_ranks; /* G */
};

enum scaling_algorithm {
  /* 2 (P - 1) steps with messages of bytes / P: bandwidth-optimal (Patarasuk and Yuan, 2009). Over several
   * hosts G rings share the data and each crosses by a link of its own, as NCCL's channels do; the slower
   * link paces a step. */
  SCALING_RING,
  /* Two binary trees, each for half of the data, up and down in a pipeline (Sanders, Speck and Träff, 2009;
   * NCCL since 2.4): 2 (ceil(lg N) alpha_between + ceil(lg G) alpha_inside) + 2 bytes / beta. Like
   * reduce-scatter and all-gather by halving and doubling (Thakur, Rabenseifner and Gropp, 2005), which moves
   * 2 (P - 1) / P bytes. */
  SCALING_TREE,
  /* Reduce-scatter in each host, all-reduce of bytes / G over the hosts by G rings at a time, all-gather in
   * each host (Cho et al., BlueConnect, 2019): 2 (G - 1) messages of bytes / G inside and 2 (N - 1) of bytes
   * / (G N) between. */
  SCALING_HIERARCHICAL,
  SCALING_ALGORITHMS
};

const char *scaling_algorithm_name(enum scaling_algorithm algorithm);

/* Seconds; 0 for one rank. Inside one host ring and hierarchical are the same. */
double scaling_allreduce(const struct scaling_network *network, enum scaling_algorithm algorithm, int ranks,
                         double bytes);

/* The message whose cost a ring all-reduce over `ranks` shows: its bytes and seconds of one of its 2 (P - 1)
 * steps. */
struct scaling_point scaling_ring_message(int ranks, double bytes, double seconds);

/* ---- a step ---- */

/* One rank's step as measured alone, and what it sums with the others. */
struct scaling_step {
  double seconds;  /* of the whole step */
  double backward; /* seconds of its backward pass */
  int buckets;
  const double *ready; /* [buckets]: seconds after the backward pass begins; ascending */
  const double *bytes; /* [buckets] */
  bool overlap;        /* sums run beside the backward pass; else it waits for each */
};

struct scaling_prediction {
  double seconds;    /* of a step */
  double allreduce;  /* of all buckets' sums, hidden or not */
  double exposed;    /* the part that the step waits for */
  double efficiency; /* step->seconds / seconds: of weak scaling, as many images on each rank */
};

/* Buckets are summed one after the other: each begins when its gradients are ready and the one before it is
 * done; what ends after the backward pass is exposed (Li et al., PyTorch Distributed, VLDB 2020). That sums
 * take memory bandwidth and processors from the backward pass is not in it, nor is one rank's waiting for a
 * slower one. */
struct scaling_prediction scaling_predict(const struct scaling_network *network,
                                          enum scaling_algorithm algorithm, int ranks,
                                          const struct scaling_step *step);

#endif
