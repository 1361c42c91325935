/* Ascending order. */
#ifndef CONVOY_MODEL_BASE_SORT_H
#define CONVOY_MODEL_BASE_SORT_H

#include <stddef.h>

void sort_doubles(double *values, size_t count);

#endif
