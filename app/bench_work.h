/* A model's training step on random images: what `convoy bench` times. */
#ifndef CONVOY_APP_BENCH_WORK_H
#define CONVOY_APP_BENCH_WORK_H

#include "app/bench.h"
#include "model/net/net.h"
#include "model/net/profile.h"

enum { BENCH_WARM_STEPS = 2 /* rows that bench_work_plan adds for what is not counted */ };

struct bench_work {
  const struct world *world; /* borrowed: whose ranks share the batch */
  int64_t batch, part;       /* images a step, over all ranks and this rank's */
  int64_t steps;             /* at most, of a plan */
  struct graph *graph;
  struct backend *backend;
  struct net *net;
  struct net_data data;
  uint8_t *images;
  int32_t *labels;
  struct sample *list;
  struct step_row *rows;
};

/* Opens the backend with `threads` CPU threads (0: this rank's share) and the net of the options' model, for
 * steps of `batch` images over the world's ranks. Collective; the same status on all ranks. */
enum status bench_work_open(const struct world *world, const struct bench_options *options, int64_t batch,
                            int threads, struct bench_work *work);

/* Frees what there is; `status` is what the caller leaves with: if the ranks did not agree on it, nothing is
 * freed. */
void bench_work_close(struct bench_work *work, enum status status);

/* The plan of the next `steps` steps. Collective; the same status on all ranks. */
enum status bench_work_plan(struct bench_work *work, int64_t steps);

/* Seconds of one of `steps` steps, in each of `windows` windows after one that records and warms up; of the
 * slowest rank, the same on all, ascending. Collective. */
enum status bench_work_time(struct bench_work *work, int64_t steps, int windows, double *seconds);

#endif
