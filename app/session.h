/* What training and evaluation stand on: the data set, a model and its net on this rank's backend. */
#ifndef CONVOY_APP_SESSION_H
#define CONVOY_APP_SESSION_H

#include "app/start.h"
#include "data/dataset.h"
#include "data/stream.h"
#include "model/net/net.h"

struct session {
  const struct world *world; /* borrowed */
  struct dataset *dataset;
  struct graph *graph;
  struct backend *backend;
  struct net *net;
  struct net_data train, test; /* images NULL: that split is empty */
  struct stream *stream;       /* NULL: the training images are in memory; else train is its ring */
  struct stream_ring ring;
  int64_t eval_batch; /* test images at a time */
};

struct session_plan {
  const char *model, *backend; /* names */
  const char *freeze;          /* as graph_freeze takes it; NULL or "": nothing */
  int lora;                    /* the adapters' rank; 0: none */
  float lora_alpha;
  bool fuse;
  struct backend_options device;
  struct net_options net;
  float mean[4], std[4];
  int64_t eval_batch;
  int64_t window_rows, held_rows; /* as stream_ring_plan takes them; only for a streamed data set */
  const char *plan_cache;         /* as plan_cache_path takes it */
  struct start *start;            /* session_start adds its parts; NULL: nobody asks */
};

/* Opens the data set. Collective, as all functions here. */
enum status session_open(const struct world *world, const char *data, unsigned need, struct session *session);

/* The same; training images of more than `limit` bytes are streamed (dataset_open_limited). */
enum status session_open_limited(const struct world *world, const char *data, unsigned need, int64_t limit,
                                 struct session *session);

/* Builds the model for the data set: session->graph. */
enum status session_build(struct session *session, const struct session_plan *plan);

/* Opens backend and net; builds the model first if that is not done. The plan's eval batches and the room for
 * them are added here: net.eval_batch, and the larger of net.plan_* and what an evaluation needs. */
enum status session_start(struct session *session, const struct session_plan *plan);

/* Frees the net and what the device holds of the data and gives the device back, early: nothing is computed
 * any more. Host-visible memory stays. Collective. */
void session_leave(struct session *session);

/* Frees what there is, also of a session that failed to open. `status` is what the caller leaves with: if the
 * ranks did not agree on it, nothing is freed, since that needs all of them. */
void session_close(struct session *session, enum status status);

/* This rank's part [first, first + count) of the test images: neighbouring whole batches of eval_batch images
 * (the very last one may be smaller). Where batches begin does not depend on the ranks. */
void session_test_part(const struct session *session, int64_t *first, int64_t *count);

/* Adds a batch size to a list unless it is 0 or there. */
void session_add_batch(int64_t batches[NET_MAX_BATCHES], int64_t batch);

#endif
