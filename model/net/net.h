/* A model with its memory on one backend: forward, backward, update, evaluation.
 *
 * Six regions, one allocation each, at net_create: PARAMS, GRADIENTS and OPTIMIZER (same offsets), STATISTICS
 * (the tail of PARAMS, before what is frozen), ACTIVATIONS (placed by lifetime), WORKSPACE. A step allocates
 * nothing and the host only counts. Batch sizes are fixed at net_create: a step names one of them.
 *
 * With lanes, a rank's samples of a step are cut into lanes (as even as can be, the first ones one larger).
 * Each lane's forward pass, batch statistics and gradient are computed on their own; then all lanes are
 * summed in one binary tree: 0 + 1, 2 + 3, …, then (0 + 1) + (2 + 3), …, within a rank and, by pairwise
 * exchange, over the ranks, which hold neighbouring lanes. So the result depends on the lanes of all ranks
 * together, and not on which rank holds which. A lane without samples adds zeros. */
#ifndef CONVOY_MODEL_NET_NET_H
#define CONVOY_MODEL_NET_NET_H

#include "model/backend/backend.h"
#include "model/net/graph.h"

enum { NET_MAX_BATCHES = 4, NET_RING = 64 /* steps whose metrics the host may still read */ };

struct net_options {
  enum optimizer_kind optimizer;
  float momentum, beta1, beta2, epsilon, weight_decay;
  bool nesterov;
  float label_smoothing;
  int64_t train_batch[NET_MAX_BATCHES]; /* this rank's samples a step; 0 entries unused */
  int64_t eval_batch[NET_MAX_BATCHES];
  int64_t plan_samples; /* the longest sample list that net_plan will be given */
  int64_t plan_steps;   /* and the most rows */
  bool reduce_low;      /* all-reduce gradients in bf16; not with lanes */
  size_t bucket_bytes;  /* an all-reduce bucket's smallest size; 0: default */
  int lanes; /* of this rank, the same on all, a power of two as is the number of ranks; the backend was
                opened with `exchanges`. 0: none: a rank's samples are one part, the sum is the backend's
                all-reduce */
};

/* Host-side result of one step; training: over all ranks, evaluation: this rank's. */
struct net_metrics {
  double loss_sum;
  double correct;
  bool stop; /* some rank asked to stop */
  bool save; /* ... and rank 0 for a checkpoint */
};

/* One named array, for checkpoints and exports. Its elements lie at [offset, offset + count) of its region.
 */
enum net_region { NET_PARAMS, NET_OPTIMIZER0, NET_OPTIMIZER1, NET_REGION_COUNT };
struct net_item {
  const char *name;     /* "layer1.0.conv1.weight" or "layer1.0.bn1.running_mean" */
  struct tensor tensor; /* fp32, its true shape: filters K,R,S,C */
  int64_t offset;       /* in elements */
  bool learned;         /* false: a running statistic, only in NET_PARAMS */
  bool fixed;           /* training leaves it as it is; only in NET_PARAMS */
};

struct net_data {
  const uint8_t *images; /* N,H,W,C bytes; device (backend resident) */
  const int32_t *labels; /* N */
  float mean[4], std[4];
};

struct net;

/* `graph` and `backend` are borrowed and outlive the net. Parameters are zero until net_init or net_write.
 * STATUS_INPUT: it does not fit in memory, or plans are longer than 2^31 - 1. */
enum status net_create(struct backend *backend, const struct graph *graph, const struct net_options *options,
                       struct net **net);
void net_destroy(struct net *net); /* NULL: nothing */

/* Initial parameters, each a function of (seed, its name); running mean 0, variance 1; optimizer state 0. */
enum status net_init(struct net *net, uint64_t seed);
/* The same in two steps, of which the first needs no net: the graph's parameters, drawn by so many threads
 * into memory that the caller frees, and a net that begins with them. */
enum status net_draw(const struct graph *graph, uint64_t seed, int threads, float **params);
enum status net_begin(struct net *net, const float *params);

/* Loads the plan of the next steps: this rank's sample list, and one row a step (copied; row.slot is set
 * here, and row.first counts from the list's begin). The steps that follow take the rows in order; rows of
 * the former plan that no step took are dropped. The former plan's steps may still be running: two plans are
 * held. */
enum status net_plan(struct net *net, const struct sample *list, int64_t list_count,
                     const struct step_row *rows, int64_t row_count);

/* Enqueues the plan's next step: gather, forward, backward, all-reduce, update; batch is train_batch[i] or 0
 * (this rank has no sample in this step and only takes part in the reduction). Collective. */
enum status net_train_step(struct net *net, const struct net_data *data, int64_t batch, uint64_t *ticket);
/* Enqueues forward, loss and count of correct predictions only; not collective. */
enum status net_eval_step(struct net *net, const struct net_data *data, int64_t batch, uint64_t *ticket);

/* Waits for that step and reads its metrics. A ticket numbers the steps of a net, 0, 1, 2, …; it is readable
 * until NET_RING - 1 further steps were enqueued (later: STATUS_INTERNAL). */
enum status net_metrics(struct net *net, uint64_t ticket, struct net_metrics *metrics);

/* Waits for the step enqueued last, an evaluation of `batch` samples, and reads its logits (batch, classes),
 * in the order of its sample list. */
enum status net_logits(struct net *net, int64_t batch, float *logits);

/* The next step, and all that follow, carry this rank's wish to stop to all ranks. */
void net_request_stop(struct net *net);
/* The same for a checkpoint, which only one rank may wish for, and take back when no step is under way. */
void net_request_save(struct net *net, bool wanted);

int net_item_count(const struct net *net);
struct net_item net_item(const struct net *net, int index);
int64_t net_region_count(const struct net *net, enum net_region region); /* in elements; 0: not in use */
/* Copies a whole region to host[net_region_count] or back. write ends with every copy that depends on it. */
enum status net_read(struct net *net, enum net_region region, float *host);
enum status net_write(struct net *net, enum net_region region, const float *host);

/* Makes this rank's parameters and optimizer state rank 0's. Collective. */
enum status net_broadcast(struct net *net);

/* A line that describes the plan: parameters, bytes of device memory, lanes, buckets. */
void net_describe(const struct net *net, char *text, size_t capacity);

#endif
