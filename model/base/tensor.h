/* The shape and element type of an array. Activations are N,H,W,C; filters K,R,S,C; matrices rows,columns. */
#ifndef CONVOY_MODEL_BASE_TENSOR_H
#define CONVOY_MODEL_BASE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_I32, DTYPE_U8 };

enum { TENSOR_MAX_RANK = 4 };

/* A dense array in row-major order; it describes memory and owns none. */
struct tensor {
  enum dtype dtype;
  int rank;                     /* dimensions in use, 1..TENSOR_MAX_RANK; 0: no tensor */
  int64_t dim[TENSOR_MAX_RANK]; /* the last one is contiguous */
};

size_t dtype_bytes(enum dtype dtype);
const char *dtype_name(enum dtype dtype);

struct tensor tensor_1d(enum dtype dtype, int64_t n);
struct tensor tensor_2d(enum dtype dtype, int64_t rows, int64_t columns);
struct tensor tensor_4d(enum dtype dtype, int64_t n, int64_t h, int64_t w, int64_t c);

int64_t tensor_count(const struct tensor *tensor); /* elements; 0 for no tensor */
size_t tensor_bytes(const struct tensor *tensor);
bool tensor_equal(const struct tensor *a, const struct tensor *b); /* same type and dimensions */

/* Writes e.g. "128x32x32x64 bf16" to text[capacity] and returns text. */
const char *tensor_text(const struct tensor *tensor, char *text, size_t capacity);

/* bfloat16 is the upper half of an IEEE single: round to nearest, ties to even; NaN stays NaN. */
uint16_t bf16_from_float(float value);
float bf16_to_float(uint16_t value);

#endif
