/* Rows of a shard into memory by several threads; see row_read.h. */
#include "data/row_read.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/base/thread.h"

enum { MAX_THREADS = 8, LEAST_ROWS = 64 };

struct job {
  struct row_range range;
  struct shard_tally tally;
  pthread_t thread;
  bool started;
  enum status status;
  char message[1024]; /* an error's text is its thread's own */
};

/* Tallies the images piece by piece, while they are in the cache, and hands each piece to the shared memory.
 */
static enum status tally_pieces(const struct row_range *range, struct shard *shard,
                                struct shard_tally *tally) {
  const struct shard_info *info = shard_describe(shard);
  size_t row_bytes = (size_t)info->height * (size_t)info->width * (size_t)info->channels;
  enum status status = STATUS_OK;
  uint8_t *piece = NULL;
  int64_t capacity = 0;
  for (int64_t begin = range->first, end; begin < range->last; begin = end) {
    end = shard_piece_end(info, begin, range->last);
    if (end - begin > capacity) {
      free(piece);
      capacity = end - begin;
      piece = malloc((size_t)capacity * row_bytes);
      if (!piece) return RAISE(STATUS_INPUT, "no memory to read %s", range->path);
    }
    TRY_OUT(shard_tally_read(shard, begin, end, range->global_first + begin - range->first, range->limit,
                             piece, range->labels + (begin - range->first), tally));
    if (range->shared)
      TRY_OUT(world_shared_write(range->shared, range->at + (size_t)(begin - range->first) * row_bytes, piece,
                                 (size_t)(end - begin) * row_bytes));
  }
out:
  free(piece);
  return status;
}

static enum status read_range(const struct row_range *range, struct shard_tally *tally) {
  struct shard *shard = NULL;
  TRY(shard_open_known(range->path, range->info, &shard));
  enum status status = range->images ? shard_tally_read(shard, range->first, range->last, range->global_first,
                                                        range->limit, range->images, range->labels, tally)
                                     : tally_pieces(range, shard, tally);
  shard_close(shard);
  return status;
}

static void *work(void *argument) {
  struct job *job = argument;
  job->status = read_range(&job->range, &job->tally);
  if (job->status != STATUS_OK) snprintf(job->message, sizeof job->message, "%s", error_message());
  error_clear();
  return NULL;
}

/* The threads' parts; the first takes what a thread could not be started for. */
static int split(const struct row_range *range, int threads, struct job job[MAX_THREADS]) {
  int64_t rows = range->last - range->first;
  const struct shard_info *info = range->info;
  int64_t row_bytes = (int64_t)info->height * info->width * info->channels;
  if (threads > MAX_THREADS) threads = MAX_THREADS;
  if (threads > rows / LEAST_ROWS) threads = (int)(rows / LEAST_ROWS);
  if (threads < 1) threads = 1;
  for (int i = 0; i < threads; i++) {
    int64_t begin = rows * i / threads, end = rows * (i + 1) / threads;
    job[i] = (struct job){.range = *range};
    job[i].range.first = range->first + begin;
    job[i].range.last = range->first + end;
    job[i].range.global_first = range->global_first + begin;
    if (range->images) job[i].range.images = range->images + begin * row_bytes;
    job[i].range.at += (size_t)(begin * row_bytes);
    job[i].range.labels = range->labels + begin;
    shard_tally_clear(&job[i].tally);
  }
  return threads;
}

enum status row_read(const struct row_range *range, int threads, struct shard_tally *tally) {
  struct job job[MAX_THREADS];
  int count = split(range, range->info->contiguous ? threads : 1, job); /* HDF5 serves one thread only */
  for (int i = 1; i < count; i++) job[i].started = thread_start(&job[i].thread, work, &job[i]) == 0;
  for (int i = 0; i < count; i++) {
    if (job[i].started)
      pthread_join(job[i].thread, NULL);
    else
      work(&job[i]);
  }
  for (int i = 0; i < count; i++) {
    if (job[i].status != STATUS_OK) return RAISE(job[i].status, "%s", job[i].message);
    shard_tally_add(tally, &job[i].tally);
  }
  if (tally->bad_count > 1) tally->bad_count = 1; /* what is said must not depend on whose rows are whose */
  return shard_tally_labels(range->path, tally, range->limit);
}
