/* A batch that repeats a few images: what each of them gives is worked out once, however large the batch.
 * Include after cmocka.h. */
#ifndef CONVOY_TESTS_REFERENCE_BATCH_H
#define CONVOY_TESTS_REFERENCE_BATCH_H

#include "tests/reference/arrays.h"

/* Each of the DISTINCT images, then any: a mistake by whatever number of places meets another image. */
enum { DISTINCT = 5, BATCH_MOST = 512 };
struct batch {
  int n, image[BATCH_MOST], times[DISTINCT]; /* which image a place has, how often each is there */
  char what[64];                             /* for messages */
};

static inline void batch_add(struct batch *batch, int image) {
  batch->image[batch->n++] = image;
  batch->times[image]++;
}

/* Fewer than DISTINCT: the first of them. */
static inline struct batch batch_of(int n) {
  struct batch batch = {0};
  double any[BATCH_MOST];
  assert_in_range(n, 1, BATCH_MOST);
  array_below(any, n, DISTINCT, 1);
  for (int i = 0; i < n; i++) batch_add(&batch, i < DISTINCT ? i : (int)any[i]);
  return batch;
}

#endif
