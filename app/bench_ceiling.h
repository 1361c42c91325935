/* The device's measured ceilings, to compare a step with. */
#ifndef CONVOY_APP_BENCH_CEILING_H
#define CONVOY_APP_BENCH_CEILING_H

#include "model/backend/backend.h"

struct bench_ceiling {
  int64_t memory_elements; /* of each array that is added: a multiple of 1024, far above the caches */
  int64_t matrix_side;
  double bytes_per_s, operations_per_s; /* results, in the backend's precision */
};

/* Fills the results; the sizes are given. */
enum status bench_ceiling(struct backend *backend, struct bench_ceiling *ceiling);

#endif
