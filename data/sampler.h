/* Which samples a step takes, in which order, and how each is augmented: pure functions of (seed, epoch,
 * position), independent of ranks, shards and backends. */
#ifndef CONVOY_DATA_SAMPLER_H
#define CONVOY_DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "model/base/error.h"
#include "model/base/sample.h"

struct sampler {
  uint64_t seed;
  int64_t count;         /* samples in the training set */
  int64_t global_batch;  /* samples a step over all ranks; the last step of an epoch takes what is left */
  bool flip;             /* mirror half of the samples */
  int crop;              /* shift by up to this many pixels each way; 0: none */
  bool reflect;          /* a crop mirrors what lies outside; else zeros */
  int cut;               /* side of the square that is set to zero; 0: none */
  int height, width;     /* of the images; only with cut */
  int64_t block, window; /* rows a block, blocks a window (sampler_by_blocks); 0: every order is possible */
  int lanes;             /* parts that each step is cut into, as many for each rank; 0: one a rank */
};

/* Orders the epochs so that a set can be read in large pieces: blocks of about 1 MiB of neighbouring rows
 * come in random order, and the rows of each 64 blocks that follow one another so are shuffled. A function of
 * (seed, epoch, count, row_bytes). */
void sampler_by_blocks(struct sampler *sampler, int64_t row_bytes);

/* Steps an epoch: ceil(count / global_batch). */
int64_t sampler_steps(const struct sampler *sampler);

/* Samples of step `step` (0-based in its epoch) over all ranks. */
int64_t sampler_step_count(const struct sampler *sampler, int64_t step);

/* Rank's part [first, first + count) of `total` samples over `size` ranks; parts differ by at most one. */
void sampler_part(int64_t total, int rank, int size, int64_t *first, int64_t *count);

/* Rank's part [first, first + count) of step `step`: of the lanes 0, 1, … it holds lanes / size neighbouring
 * ones, each of which is a sampler_part of the step. */
void sampler_rank_part(const struct sampler *sampler, int64_t step, int rank, int size, int64_t *first,
                       int64_t *count);

/* The whole epoch in global order: list[sampler->count]. Every sample stands there exactly once. */
enum status sampler_epoch(const struct sampler *sampler, int64_t epoch, struct sample *list);

/* Rank's own part of that list from step `first_step` on, step after step, into mine (capacity: all that it
 * can take, sampler_rank_count). begin[s - first_step] is where step s begins in it. */
int64_t sampler_rank_count(const struct sampler *sampler, int64_t first_step, int rank, int size);
void sampler_rank_list(const struct sampler *sampler, const struct sample *list, int64_t first_step, int rank,
                       int size, struct sample *mine, uint32_t *begin);

#endif
