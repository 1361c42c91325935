/* What a net holds; private to model/net. */
#ifndef CONVOY_MODEL_NET_NET_STATE_H
#define CONVOY_MODEL_NET_NET_STATE_H

#include "model/net/net.h"
#include "model/net/plan.h"

/* All that a step of one batch size needs: its plan, its ops' states, their pointers, and its recording. */
struct executor {
  bool training;
  struct plan plan; /* count 0: a step without samples on this rank */
  void **state;     /* [node], owned */
  struct op_io *io; /* [node] */
  struct program *program;
  struct gather_desc gather; /* what the program was recorded with */
  struct net *net;
};

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
  float *params, *gradients, *slot[2];
  void *low; /* bf16 copy of params; NULL in fp32 */
  char *activations, *workspace;
  float *metrics; /* behind the gradients, so that they ride on the last bucket */
  struct step_control *control;
  struct sample *list;   /* two plans of options.plan_samples */
  struct step_row *rows; /* two plans of options.plan_steps */
  size_t bytes, activation_bytes, workspace_bytes;

  /* host-visible */
  float *ring;
  int32_t *stop;

  struct executor train[NET_MAX_BATCHES], eval[NET_MAX_BATCHES], idle;

  uint64_t step;          /* tickets given */
  uint64_t run[NET_RING]; /* the backend's ticket of step i at i % NET_RING */
  int half;               /* the half of list and rows that the current plan lies in */
  bool half_used[2];
  uint64_t half_run[2]; /* the backend's last ticket that reads that half */
};

/* executor.c */
enum status executor_create(struct net *net, int64_t batch, bool training, struct executor *executor);
/* Gives the ops their pointers, once all regions are allocated. */
void executor_bind(struct executor *executor);
void executor_destroy(struct executor *executor);
/* Runs one step: the recorded program, or the body that records it. */
enum status executor_run(struct executor *executor, const struct net_data *data, uint64_t *run);

/* init.c: values of all items of PARAMS into host[total_count]. */
void init_params(const struct layout *layout, uint64_t seed, float *host);

#endif
