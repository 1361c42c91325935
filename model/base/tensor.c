/* Shapes and element types; see tensor.h. */
#include "model/base/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

size_t dtype_bytes(enum dtype dtype) {
  static const size_t bytes[] = {[DTYPE_F32] = 4, [DTYPE_BF16] = 2, [DTYPE_I32] = 4, [DTYPE_U8] = 1};
  return bytes[dtype];
}

const char *dtype_name(enum dtype dtype) {
  static const char *const name[] = {
      [DTYPE_F32] = "fp32", [DTYPE_BF16] = "bf16", [DTYPE_I32] = "int32", [DTYPE_U8] = "uint8"};
  return name[dtype];
}

struct tensor tensor_1d(enum dtype dtype, int64_t n) {
  return (struct tensor){.dtype = dtype, .rank = 1, .dim = {n}};
}

struct tensor tensor_2d(enum dtype dtype, int64_t rows, int64_t columns) {
  return (struct tensor){.dtype = dtype, .rank = 2, .dim = {rows, columns}};
}

struct tensor tensor_4d(enum dtype dtype, int64_t n, int64_t h, int64_t w, int64_t c) {
  return (struct tensor){.dtype = dtype, .rank = 4, .dim = {n, h, w, c}};
}

int64_t tensor_count(const struct tensor *tensor) {
  if (tensor->rank == 0) return 0;
  int64_t count = 1;
  for (int i = 0; i < tensor->rank; i++) count *= tensor->dim[i];
  return count;
}

size_t tensor_bytes(const struct tensor *tensor) {
  return (size_t)tensor_count(tensor) * dtype_bytes(tensor->dtype);
}

bool tensor_equal(const struct tensor *a, const struct tensor *b) {
  if (a->dtype != b->dtype || a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (a->dim[i] != b->dim[i]) return false;
  return true;
}

const char *tensor_text(const struct tensor *tensor, char *text, size_t capacity) {
  size_t used = 0;
  text[0] = '\0';
  for (int i = 0; i < tensor->rank && used < capacity; i++)
    used += (size_t)snprintf(text + used, capacity - used, "%s%" PRId64, i ? "x" : "", tensor->dim[i]);
  if (used < capacity) snprintf(text + used, capacity - used, " %s", dtype_name(tensor->dtype));
  return text;
}

uint16_t bf16_from_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return (uint16_t)(bits >> 16);
}

float bf16_to_float(uint16_t value) {
  uint32_t bits = (uint32_t)value << 16;
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}
