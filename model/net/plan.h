/* Where everything lies and in which order it runs: the parameters' layout, and for each batch size the
 * shapes, lifetimes and places of all activations. Plans hold offsets only; net.c owns the memory. */
#ifndef CONVOY_MODEL_NET_PLAN_H
#define CONVOY_MODEL_NET_PLAN_H

#include "model/net/graph.h"

/* ---- parameters: one layout for PARAMS, GRADIENTS and OPTIMIZER ---- */

/* Elements [0, decay_count) are decayed, up to parameter_count learned, up to total_count running statistics:
 * so far reach gradients and updates. Up to all_count lie what training leaves as it is: frozen parameters
 * and the statistics of frozen layers. Each of the first groups is in the order in which backward finishes
 * it, so that a bucket is a slice. Every array begins at a multiple of LAYOUT_ALIGN elements; what lies
 * between stays zero. */
enum { LAYOUT_ALIGN = 64 };

struct layout_item {
  const char *name; /* the graph's */
  struct tensor tensor;
  int64_t offset; /* elements */
  bool learned;   /* a parameter, not a statistic */
  bool fixed;     /* training leaves it as it is */
  enum init_kind init;
  int fan;
};

struct layout {
  int64_t decay_count, parameter_count, total_count, all_count;
  int64_t (*param)[OP_MAX_PARAM];         /* [node][param]: offset */
  int64_t (*statistic)[OP_MAX_STATISTIC]; /* [node][statistic]: offset */
  int64_t *decay_end; /* [node]: decayed elements complete once this node's backward is done */
  int item_count;
  struct layout_item *item;
};

/* The graph is borrowed: items keep its names. STATUS_INPUT: no memory. */
enum status layout_create(const struct graph *graph, struct layout *layout);
void layout_destroy(struct layout *layout); /* safe on a zeroed one */

/* ---- activations of one batch size ---- */

enum { PLAN_NONE = -1 }; /* an offset that is not in use */

/* A graph's node, or the loss behind it, at one batch size. Offsets are bytes into ACTIVATIONS. */
struct plan_node {
  struct op_desc desc;
  struct op_signature signature;
  bool backward; /* it, or what lies below it, has something to learn */
  int64_t in[OP_MAX_IN], out;
  int64_t saved[OP_MAX_SAVED];
  int64_t d_out, d_in[OP_MAX_IN]; /* where a gradient is wanted */
  bool d_in_add[OP_MAX_IN];       /* another reader of that value wrote its gradient before */
};

struct plan {
  int64_t batch;
  int count; /* nodes, the loss last; its `out` is PLAN_NONE: it goes to the metrics */
  struct plan_node *node;
  int64_t images, labels; /* where gather writes */
  size_t bytes;           /* of ACTIVATIONS */
};

/* Plans for `batch` samples a step in the compute type. STATUS_INPUT if a shape does not fit. */
enum status plan_create(const struct graph *graph, int64_t batch, bool training, enum dtype compute,
                        float smoothing, struct plan *plan);
void plan_destroy(struct plan *plan); /* safe on a zeroed one */

#endif
