/* Evaluation over the ranks; see evaluate.h. */
#include "app/evaluate.h"

#include <stdlib.h>

#include "app/signals.h"
#include "data/sampler.h"

enum { LAG = 8 }; /* steps that the host runs ahead of the metrics it reads */

/* This rank's sums. */
struct sums {
  double loss, correct, samples;
  double stopped; /* 1: a signal ended it */
};

/* Plans all batches of this rank's part [first, first + count). */
static enum status plan_part(struct session *session, int64_t first, int64_t count) {
  int64_t batch = session->eval_batch, steps = (count + batch - 1) / batch;
  enum status status = STATUS_OK;
  struct sample *list = calloc((size_t)count, sizeof *list);
  struct step_row *rows = calloc((size_t)steps, sizeof *rows);
  if (!list || !rows) {
    status = RAISE(STATUS_INTERNAL, "no memory for a list of %lld samples", (long long)count);
    goto out;
  }
  for (int64_t i = 0; i < count; i++) list[i].index = (uint32_t)(first + i);
  for (int64_t s = 0; s < steps; s++) {
    int64_t left = count - s * batch;
    rows[s].first = (uint32_t)(s * batch);
    rows[s].scale = 1.0f / (float)(left < batch ? left : batch);
  }
  TRY_OUT(net_plan(session->net, list, count, rows, steps));
out:
  free(list);
  free(rows);
  return status;
}

static enum status add_step(struct net *net, uint64_t ticket, struct sums *sums) {
  struct net_metrics metrics;
  TRY(net_metrics(net, ticket, &metrics));
  sums->loss += metrics.loss_sum;
  sums->correct += metrics.correct;
  return STATUS_OK;
}

static enum status run_part(struct session *session, int64_t count, bool interruptible, struct sums *sums) {
  int64_t batch = session->eval_batch;
  uint64_t pending[LAG];
  int64_t enqueued = 0, read = 0;
  for (int64_t done = 0; done < count; done += batch) {
    if (interruptible && signals_stop_wanted()) {
      sums->stopped = 1;
      return STATUS_OK;
    }
    int64_t left = count - done;
    if (enqueued - read == LAG) TRY(add_step(session->net, pending[read++ % LAG], sums));
    TRY(net_eval_step(session->net, &session->test, left < batch ? left : batch, &pending[enqueued++ % LAG]));
  }
  while (read < enqueued) TRY(add_step(session->net, pending[read++ % LAG], sums));
  sums->samples = (double)count;
  return STATUS_OK;
}

enum status evaluate(struct session *session, bool interruptible, struct evaluation *result) {
  const struct world *world = session->world;
  struct sums sums = {0};
  int64_t first, count;
  sampler_part(session->dataset->test.count, world->rank, world->size, &first, &count);
  if (count > 0) {
    TRY(plan_part(session, first, count));
    TRY(run_part(session, count, interruptible, &sums));
  }
  double all[4] = {sums.loss, sums.correct, sums.samples, sums.stopped};
  TRY(world_sum_f64(world, all, 4));
  if (all[3] > 0) return world_agree(world, STATUS_STOPPED);
  *result =
      (struct evaluation){.samples = (int64_t)all[2], .correct = (int64_t)all[1], .loss = all[0] / all[2]};
  return STATUS_OK;
}
