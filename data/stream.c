/* The thread that reads training rows ahead of the steps; see stream.h. It reads groups of rows: those of a
 * group are sorted by their place, so that neighbours in a file come with one call. */
#include "data/stream.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_plan.h"
#include "data/shard_raw.h"
#include "model/base/thread.h"

enum { MAX_OPEN = 128 };

struct wanted {
  uint32_t row; /* in the split */
  uint32_t slot;
};

struct stream {
  const struct dataset *dataset;
  struct stream_ring ring;
  size_t row_bytes;
  pthread_t thread;
  bool started;
  pthread_mutex_t lock; /* of all down to `message` */
  pthread_cond_t changed;
  uint32_t *row; /* owned: of this epoch's list */
  int64_t count, filled, released;
  bool busy, ended; /* busy: a group is being read without the lock */
  enum status status;
  char message[1024];
  /* The thread's own. */
  struct wanted *group; /* owned: of the group that is read */
  uint8_t *planar;      /* owned: a row before it is transposed; NULL: no shard needs it */
  struct shard_raw **shard;
  int open;
};

void stream_ring_plan(struct stream_ring *ring, int64_t window_rows, int ranks, int64_t held) {
  ring->group = (window_rows + ranks - 1) / ranks;
  ring->slots = 2 * ring->group + 2 * held;
}

static int compare(const void *a, const void *b) {
  uint32_t x = ((const struct wanted *)a)->row, y = ((const struct wanted *)b)->row;
  return (x > y) - (x < y);
}

/* ---- the thread ---- */

static void close_shards(struct stream *stream) {
  for (int i = 0; stream->shard && i < stream->dataset->plan->shard_count[SPLIT_TRAIN]; i++) {
    shard_raw_close(stream->shard[i]);
    stream->shard[i] = NULL;
  }
  stream->open = 0;
}

/* The training shard that holds a row. */
static int find_shard(const struct dataset_plan *plan, uint32_t row) {
  int low = 0, high = plan->shard_count[SPLIT_TRAIN] - 1;
  while (low < high) { /* the last one that does not begin after it; empty ones begin where the next does */
    int middle = (low + high + 1) / 2;
    if (plan->shard[middle].first <= row)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

static enum status open_shard(struct stream *stream, int number) {
  if (stream->shard[number]) return STATUS_OK;
  if (stream->open == MAX_OPEN) close_shards(stream);
  const struct plan_shard *entry = &stream->dataset->plan->shard[number];
  char *path = shard_list_path(stream->dataset->directory, entry->name);
  if (!path) return RAISE(STATUS_INPUT, "no memory to open %s", entry->name);
  enum status status = shard_raw_open(path, &entry->info, &stream->shard[number]);
  free(path);
  if (status == STATUS_OK) stream->open++;
  return status;
}

/* Reads group[0..count), sorted neighbours of one shard. */
static enum status read_run(struct stream *stream, int number, const struct wanted *group, int64_t count) {
  const struct plan_shard *entry = &stream->dataset->plan->shard[number];
  TRY(open_shard(stream, number));
  const struct shard_raw *shard = stream->shard[number];
  int64_t first = (int64_t)group[0].row - entry->first;
  for (int64_t i = 0; i < count; i++)
    stream->ring.labels[group[i].slot] = stream->dataset->train.labels[group[i].row];
  if (entry->info.planar) {
    for (int64_t i = 0; i < count; i++) {
      TRY(shard_raw_images(shard, first + i, 1, stream->planar));
      shard_interleave(&entry->info, 1, stream->planar,
                       stream->ring.images + group[i].slot * stream->row_bytes);
    }
    return STATUS_OK;
  }
  enum { MOST = 512 };
  uint8_t *to[MOST];
  for (int64_t done = 0; done < count;) {
    int some = count - done < MOST ? (int)(count - done) : MOST;
    for (int i = 0; i < some; i++) to[i] = stream->ring.images + group[done + i].slot * stream->row_bytes;
    TRY(shard_raw_scatter(shard, first + done, some, to));
    done += some;
  }
  return STATUS_OK;
}

static enum status read_group(struct stream *stream, int64_t count) {
  struct wanted *group = stream->group;
  qsort(group, (size_t)count, sizeof *group, compare);
  for (int64_t begin = 0, end; begin < count; begin = end) {
    int number = find_shard(stream->dataset->plan, group[begin].row);
    const struct plan_shard *entry = &stream->dataset->plan->shard[number];
    int64_t last = entry->first + entry->info.count;
    end = begin + 1;
    while (end < count && group[end].row == group[end - 1].row + 1 && group[end].row < last) end++;
    TRY(read_run(stream, number, group + begin, end - begin));
  }
  return STATUS_OK;
}

/* Rows of the next group; 0: there is nothing to read now. A group is read as soon as all its slots are free.
 */
static int64_t next_group(const struct stream *stream) {
  int64_t size = stream->ring.group, left = stream->count - stream->filled;
  if (left < size) size = left;
  int64_t room = stream->released + stream->ring.slots - stream->filled;
  return stream->status == STATUS_OK && size > 0 && room >= size ? size : 0;
}

static void *work(void *argument) {
  struct stream *stream = argument;
  pthread_mutex_lock(&stream->lock);
  for (;;) {
    int64_t count = 0;
    while (!stream->ended && (count = next_group(stream)) == 0)
      pthread_cond_wait(&stream->changed, &stream->lock);
    if (stream->ended) break;
    for (int64_t i = 0; i < count; i++) {
      int64_t at = stream->filled + i;
      stream->group[i] = (struct wanted){stream->row[at], (uint32_t)(at % stream->ring.slots)};
    }
    stream->busy = true;
    pthread_mutex_unlock(&stream->lock);
    enum status status = read_group(stream, count);
    pthread_mutex_lock(&stream->lock);
    stream->busy = false;
    if (status == STATUS_OK) {
      stream->filled += count;
    } else {
      stream->status = status;
      snprintf(stream->message, sizeof stream->message, "%s", error_message());
    }
    pthread_cond_broadcast(&stream->changed);
  }
  pthread_mutex_unlock(&stream->lock);
  close_shards(stream);
  return NULL;
}

/* ---- the steps' side ---- */

static enum status allocate(struct stream *stream) {
  const struct dataset_plan *plan = stream->dataset->plan;
  bool planar = false;
  for (int i = 0; i < plan->shard_count[SPLIT_TRAIN]; i++) planar = planar || plan->shard[i].info.planar;
  stream->group = malloc((size_t)stream->ring.group * sizeof *stream->group);
  uint32_t shards = (uint32_t)plan->shard_count[SPLIT_TRAIN];
  stream->shard = calloc(shards, sizeof(struct shard_raw *));
  stream->row = malloc((size_t)stream->dataset->train.count * sizeof *stream->row);
  if (planar) stream->planar = malloc(stream->row_bytes);
  if (!stream->group || !stream->shard || !stream->row || (planar && !stream->planar))
    return RAISE(STATUS_INPUT, "no memory to stream the training images");
  return STATUS_OK;
}

enum status stream_create(const struct dataset *dataset, const struct stream_ring *ring,
                          struct stream **created) {
  if (!dataset->streamed || ring->group < 1 || ring->slots <= ring->group || ring->slots > UINT32_MAX)
    return RAISE(STATUS_INTERNAL, "a data set in memory needs no stream");
  struct stream *stream = calloc(1, sizeof *stream);
  if (!stream) return RAISE(STATUS_INPUT, "no memory to stream the training images");
  stream->dataset = dataset;
  stream->ring = *ring;
  stream->row_bytes = (size_t)dataset->height * (size_t)dataset->width * (size_t)dataset->channels;
  pthread_mutex_init(&stream->lock, NULL);
  pthread_cond_init(&stream->changed, NULL);
  enum status status = allocate(stream);
  if (status == STATUS_OK) {
    stream->started = thread_start(&stream->thread, work, stream) == 0;
    if (!stream->started) status = RAISE(STATUS_INTERNAL, "the reading thread cannot be started");
  }
  if (status != STATUS_OK) {
    stream_destroy(stream);
    return status;
  }
  *created = stream;
  return STATUS_OK;
}

void stream_destroy(struct stream *stream) {
  if (!stream) return;
  if (stream->started) {
    pthread_mutex_lock(&stream->lock);
    stream->ended = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
  }
  pthread_cond_destroy(&stream->changed);
  pthread_mutex_destroy(&stream->lock);
  free(stream->group);
  free(stream->shard);
  free(stream->row);
  free(stream->planar);
  free(stream);
}

enum status stream_begin(struct stream *stream, struct sample *list, int64_t count) {
  if (count > stream->dataset->train.count)
    return RAISE(STATUS_INTERNAL, "%lld rows of %lld", (long long)count,
                 (long long)stream->dataset->train.count);
  pthread_mutex_lock(&stream->lock);
  stream->count = 0; /* nothing more of the earlier list */
  while (stream->busy) pthread_cond_wait(&stream->changed, &stream->lock);
  stream->filled = stream->released = 0;
  stream->count = count;
  for (int64_t i = 0; i < count; i++) {
    stream->row[i] = list[i].index;
    list[i].index = (uint32_t)(i % stream->ring.slots);
  }
  pthread_cond_broadcast(&stream->changed);
  pthread_mutex_unlock(&stream->lock);
  return STATUS_OK;
}

enum status stream_wait(struct stream *stream, int64_t end) {
  enum status status = STATUS_OK;
  pthread_mutex_lock(&stream->lock);
  if (end > stream->count || end > stream->released + stream->ring.slots - stream->ring.group)
    status = RAISE(STATUS_INTERNAL, "row %lld was waited for with %lld released", (long long)end,
                   (long long)stream->released);
  while (status == STATUS_OK && stream->filled < end && stream->status == STATUS_OK)
    pthread_cond_wait(&stream->changed, &stream->lock);
  if (status == STATUS_OK && stream->status != STATUS_OK)
    status = RAISE(stream->status, "%s", stream->message);
  pthread_mutex_unlock(&stream->lock);
  return status;
}

void stream_release(struct stream *stream, int64_t end) {
  pthread_mutex_lock(&stream->lock);
  if (end > stream->released) stream->released = end;
  pthread_cond_broadcast(&stream->changed);
  pthread_mutex_unlock(&stream->lock);
}
