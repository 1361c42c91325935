/* Arrays of the tests: random values, their bytes in an element type, and how far two arrays lie apart. */
#ifndef CONVOY_TESTS_REFERENCE_ARRAYS_H
#define CONVOY_TESTS_REFERENCE_ARRAYS_H

#include <stdint.h>

#include "model/base/tensor.h"

/* The nearest value that the type holds. */
double array_round(enum dtype dtype, double value);

/* value[count] = mean + deviation * normal numbers of sequence `stream`, rounded to the type. */
void array_normal(double *value, int64_t count, enum dtype dtype, double mean, double deviation,
                  uint32_t stream);
/* The same, whole numbers in 0..bound-1. */
void array_below(double *value, int64_t count, uint32_t bound, uint32_t stream);

void array_encode(void *bytes, enum dtype dtype, const double *value, int64_t count);
void array_decode(double *value, enum dtype dtype, const void *bytes, int64_t count);

/* norm = ||found - expected|| / ||expected||, largest = max |found - expected| / max |expected|; where
 * expected is all zero they are not divided. NaN if found has one. */
struct deviation {
  double norm, largest;
};
struct deviation array_deviation(const double *found, const double *expected, int64_t count);

#endif
