/* Where a training step's time goes: every op of a net timed by itself, on the values of a real step. */
#ifndef CONVOY_MODEL_NET_PROFILE_H
#define CONVOY_MODEL_NET_PROFILE_H

#include "model/net/net.h"

/* One part of a step. */
struct net_profile_row {
  const char *pass;      /* "gather", "forward", "backward", "all-reduce", "update" */
  const char *op;        /* the op's name, "" for the other passes */
  char name[GRAPH_NAME]; /* its first parameter's module, e.g. "layer1.0.conv1"; "" if it has none */
  double milliseconds;   /* median of the windows */
  double bytes;          /* least device memory traffic: each array read or written once */
  double operations;     /* floating-point operations of its products; 0 for other ops */
};

/* Times each part of a step of train_batch[0]: `repeats` runs in one recorded program, the median of five
 * replays. Rows come in the order of the step and are the caller's (free). The step's plan must hold one row
 * (net_plan); parameters change only by the plan's learning rate. */
enum status net_profile(struct net *net, const struct net_data *data, int repeats,
                        struct net_profile_row **rows, int *count);

/* ---- the parts of a whole step ---- */

enum net_part {
  NET_DATA, /* the images' and labels' gathering, and the step's begin */
  NET_FORWARD,
  NET_BACKWARD,
  NET_EXPOSED, /* what the device waits for sums over the ranks: those beside the backward pass are not in it
                */
  NET_UPDATE,
  NET_PARTS
};

const char *net_part_name(enum net_part part);

enum { NET_MARKS = BACKEND_STAMPS - 1 };

/* A step, cut in pieces that follow one another. The backward pass is cut where a bucket of gradients is
 * complete. */
struct net_timeline {
  int count;
  enum net_part part[NET_MARKS];
  double seconds[NET_MARKS];
};

/* Times whole steps of train_batch[0] with a stamp at each cut, recorded like any step, after two that are
 * not counted; each piece is the median of `steps`. The plan holds steps + 2 rows. Collective as
 * net_train_step. */
enum status net_time_parts(struct net *net, const struct net_data *data, int steps,
                           struct net_timeline *timeline);

/* Seconds of all pieces of a part. */
double net_part_seconds(const struct net_timeline *timeline, enum net_part part);

/* The buckets in which gradients are summed over the ranks, in the order in which they are complete; also of
 * a net on one rank, which sums nothing, but not with lanes. */
int net_bucket_count(const struct net *net);
double net_bucket_bytes(const struct net *net, int index);

/* Seconds from the begin of the backward pass until each bucket is complete; ready[net_bucket_count]. */
void net_bucket_ready(const struct net_timeline *timeline, double *ready);

#endif
