/* Evaluation over the ranks; see evaluate.h. */
#include "app/evaluate.h"

#include <stdlib.h>

#include "app/signals.h"
#include "data/sampler.h"

enum { LAG = 8 }; /* steps that the host runs ahead of the metrics it reads */

/* The sums of each batch of the test set. An entry is not zero on one rank at most, so adding the tables of
 * all ranks is exact. */
struct table {
  int64_t batches;
  double *loss, *correct, *samples; /* [batches], in one allocation that begins at loss */
  double *stopped;                  /* one number behind them; 1 or more: a signal ended it */
};

static enum status table_create(int64_t batches, struct table *table) {
  double *memory = calloc((size_t)(3 * batches + 1), sizeof *memory);
  if (!memory) return RAISE(STATUS_INPUT, "no memory for the sums of %lld batches", (long long)batches);
  *table = (struct table){.batches = batches,
                          .loss = memory,
                          .correct = memory + batches,
                          .samples = memory + 2 * batches,
                          .stopped = memory + 3 * batches};
  return STATUS_OK;
}

/* Plans all batches of this rank's part [first, first + count). */
static enum status plan_part(struct session *session, int64_t first, int64_t count) {
  int64_t batch = session->eval_batch, steps = (count + batch - 1) / batch;
  enum status status = STATUS_OK;
  struct sample *list = calloc((size_t)count, sizeof *list);
  struct step_row *rows = calloc((size_t)steps, sizeof *rows);
  if (!list || !rows) {
    status = RAISE(STATUS_INPUT, "no memory for a list of %lld samples", (long long)count);
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

static enum status read_step(struct net *net, uint64_t ticket, struct table *table, int64_t at) {
  struct net_metrics metrics;
  TRY(net_metrics(net, ticket, &metrics));
  table->loss[at] = metrics.loss_sum;
  table->correct[at] = metrics.correct;
  return STATUS_OK;
}

/* This rank's batches, of `count` images in all, into the table from entry `at` on. */
static enum status run_part(struct session *session, int64_t at, int64_t count, bool interruptible,
                            struct table *table) {
  int64_t batch = session->eval_batch;
  uint64_t pending[LAG];
  int64_t enqueued = 0, read = 0;
  for (int64_t done = 0; done < count; done += batch) {
    if (interruptible && signals_stop_wanted()) {
      *table->stopped = 1;
      return STATUS_OK;
    }
    int64_t size = count - done < batch ? count - done : batch;
    if (enqueued - read == LAG) {
      TRY(read_step(session->net, pending[read % LAG], table, at + read));
      read++;
    }
    TRY(net_eval_step(session->net, &session->test, size, &pending[enqueued % LAG]));
    table->samples[at + enqueued++] = (double)size;
  }
  for (; read < enqueued; read++) TRY(read_step(session->net, pending[read % LAG], table, at + read));
  return STATUS_OK;
}

static struct evaluation total(const struct table *table) {
  double loss = 0, correct = 0, samples = 0;
  for (int64_t i = 0; i < table->batches; i++) {
    loss += table->loss[i];
    correct += table->correct[i];
    samples += table->samples[i];
  }
  return (struct evaluation){
      .samples = (int64_t)samples, .correct = (int64_t)correct, .loss = loss / samples};
}

enum status evaluate(struct session *session, bool interruptible, struct evaluation *result) {
  const struct world *world = session->world;
  enum status status = STATUS_OK;
  struct table table;
  int64_t first, count, batch = session->eval_batch;
  session_test_part(session, &first, &count);
  TRY(table_create((session->dataset->test.count + batch - 1) / batch, &table));
  if (count > 0) {
    TRY_OUT(plan_part(session, first, count));
    TRY_OUT(run_part(session, first / batch, count, interruptible, &table));
  }
  TRY_OUT(world_sum_f64(world, table.loss, (int)(3 * table.batches + 1)));
  if (*table.stopped > 0)
    status = world_agree(world, STATUS_STOPPED);
  else
    *result = total(&table);
out:
  free(table.loss);
  return status;
}
