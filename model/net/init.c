/* Initial values: each array is a function of (seed, its name), and each element of it one of its place too,
 * so they do not depend on ranks, backend, order or the threads that draw them. */
#include "model/net/net_state.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "model/base/random.h"
#include "model/base/thread.h"

enum { PIECE = 1 << 16 /* elements; even, since normal numbers come in pairs */ };

struct work {
  const struct layout *layout;
  uint64_t seed;
  float *host;
  atomic_llong next; /* piece */
};

static void fill_normal(struct random_key key, double deviation, int64_t first, int64_t last, float *out) {
  for (int64_t i = first; i < last; i += 2) {
    double pair[2];
    random_normal_pair(key, (uint64_t)i, pair);
    out[i] = (float)(deviation * pair[0]);
    if (i + 1 < last) out[i + 1] = (float)(deviation * pair[1]);
  }
}

static void fill_uniform(struct random_key key, double bound, int64_t first, int64_t last, float *out) {
  for (int64_t i = first; i < last; i++) out[i] = (float)(bound * (2 * random_uniform(key, (uint64_t)i) - 1));
}

/* Elements [first, last) of an item. */
static void fill(const struct work *work, const struct layout_item *item, int64_t first, int64_t last) {
  struct random_key key = random_key(work->seed, RANDOM_INIT, random_stream(item->name));
  float *out = work->host + item->offset;
  switch (item->init) {
  case INIT_ZERO:
  case INIT_ONE:
    for (int64_t k = first; k < last; k++) out[k] = item->init == INIT_ONE ? 1.0f : 0.0f;
    break;
  case INIT_KAIMING_NORMAL:
    fill_normal(key, sqrt(2.0 / item->fan), first, last, out);
    break;
  case INIT_UNIFORM_FAN_IN:
    fill_uniform(key, 1 / sqrt((double)item->fan), first, last, out);
    break;
  }
}

/* Takes pieces, which are numbered over all items, until there are no more. */
static void *draw(void *argument) {
  struct work *work = argument;
  long long mine = atomic_fetch_add(&work->next, 1), before = 0;
  for (int i = 0; i < work->layout->item_count; i++) {
    const struct layout_item *item = &work->layout->item[i];
    int64_t count = tensor_count(&item->tensor);
    long long pieces = (count + PIECE - 1) / PIECE;
    for (; mine < before + pieces; mine = atomic_fetch_add(&work->next, 1)) {
      int64_t first = (mine - before) * PIECE;
      fill(work, item, first, first + PIECE < count ? first + PIECE : count);
    }
    before += pieces;
  }
  return NULL;
}

void init_params(const struct layout *layout, uint64_t seed, int threads, float *host) {
  struct work work = {.layout = layout, .seed = seed, .host = host};
  pthread_t thread[INIT_THREADS];
  int started = 0;
  while (started < threads - 1 && started < INIT_THREADS && thread_start(&thread[started], draw, &work) == 0)
    started++;
  draw(&work);
  while (started > 0) pthread_join(thread[--started], NULL);
}

enum status net_draw(const struct graph *graph, uint64_t seed, int threads, float **params) {
  struct layout layout;
  TRY(layout_create(graph, &layout));
  float *made = calloc((size_t)layout.all_count, sizeof *made);
  if (made) init_params(&layout, seed, threads, made);
  layout_destroy(&layout);
  *params = made;
  return made ? STATUS_OK : RAISE(STATUS_INPUT, "no memory for the initial parameters");
}
