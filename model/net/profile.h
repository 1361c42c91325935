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

#endif
