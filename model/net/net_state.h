/* What a net holds; private to model/net. */
#ifndef CONVOY_MODEL_NET_NET_STATE_H
#define CONVOY_MODEL_NET_NET_STATE_H

#include "model/net/net.h"
#include "model/net/plan.h"
#include "model/net/profile.h"

/* One number of samples: its plan and its ops' states. All lanes of that size use them in turn. */
struct shape {
  bool training;
  struct plan plan;
  void **state; /* [node], owned */
};

/* A part of a step that is computed on its own, into gradients of its own. */
struct lane {
  const struct shape *shape; /* the net's; NULL: no sample in this step */
  int64_t first;             /* its first sample in the step's */
  float *gradients;          /* the metrics behind them */
  struct op_io *io;          /* [node], owned */
};

/* All that a step of one batch size needs: its lanes and its recording. Evaluation and training without
 * lanes have one. */
struct executor {
  bool training;
  int64_t batch; /* of all lanes; 0: a step without samples on this rank */
  int lane_count;
  struct lane *lane;
  struct program *program;
  struct net_data data;          /* what the program was recorded with */
  struct net_timeline *timeline; /* where the body puts stamps; NULL: nowhere */
  struct net *net;
};

/* A training step's lanes differ by at most one sample. */
enum { NET_MAX_SHAPES = 3 * NET_MAX_BATCHES };

struct bucket {
  int64_t first, count; /* elements of GRADIENTS */
  int node;             /* complete after the backward of this node */
};

struct net {
  struct backend *backend;   /* borrowed */
  const struct graph *graph; /* borrowed */
  struct net_options options;
  struct layout layout;
  struct update_desc update;

  int bucket_count;
  struct bucket *bucket; /* in the order in which they become complete */

  /* regions, in device memory */
  float *params, *slot[2];
  float *gradients;  /* of this rank's first lane, then its others': lane_stride elements each */
  float *received;   /* another rank's gradients; NULL: not in use */
  uint16_t *reduced; /* room for gradients that are summed in bf16; NULL: not in use */
  void *low;         /* bf16 copy of params; NULL in fp32 */
  char *activations, *workspace;
  float *metrics; /* behind the first lane's gradients, so that they are reduced with them */
  struct step_control *control;
  struct sample *list;   /* two plans of options.plan_samples */
  struct step_row *rows; /* two plans of options.plan_steps */
  size_t bytes, activation_bytes, workspace_bytes;
  int64_t lane_stride;

  /* host-visible */
  float *ring;
  int32_t *stop;

  int shape_count;
  struct shape shape[NET_MAX_SHAPES];
  struct executor train[NET_MAX_BATCHES], eval[NET_MAX_BATCHES], idle;

  uint64_t step;          /* tickets given */
  uint64_t run[NET_RING]; /* the backend's ticket of step i at i % NET_RING */
  int half;               /* the half of list and rows that the current plan lies in */
  bool half_used[2];
  uint64_t half_run[2]; /* the backend's last ticket that reads that half */
};

/* shape.c */
/* The net's shape of that size, made if it is not there; grows what the net's regions must hold. */
enum status shape_get(struct net *net, int64_t batch, bool training, const struct shape **shape);
void shape_destroy(struct net *net, struct shape *shape);
/* Gives the lane's ops their pointers, once all regions are allocated. */
void shape_bind(const struct net *net, struct lane *lane);
const struct op_table *shape_op(const struct net *net, const struct shape *shape, int node);

/* executor.c */
enum status executor_create(struct net *net, int64_t batch, bool training, struct executor *executor);
/* Gives the ops their pointers, once all regions are allocated. */
void executor_bind(struct executor *executor);
void executor_destroy(struct executor *executor);
/* Runs one step: the recorded program, or the body that records it. */
enum status executor_run(struct executor *executor, const struct net_data *data, uint64_t *run);
/* The step itself, for a program that is not the executor's. */
enum status executor_body(void *executor);
/* Parts of it, enqueued alone: the lane's images and labels (of executor->data), and the update. */
enum status executor_gather(const struct executor *executor, const struct lane *lane);
enum status executor_update(const struct net *net);
/* Starts the all-reduce of a bucket. */
enum status executor_reduce(const struct net *net, const struct bucket *bucket);

/* init.c: values of all items of PARAMS into host[all_count], drawn by so many threads, which changes
 * nothing. */
enum { INIT_THREADS = 8 /* the most that are worth it */ };
void init_params(const struct layout *layout, uint64_t seed, int threads, float *host);

#endif
