/* Arrays of the tests; see arrays.h. */
#include "tests/reference/arrays.h"

#include <math.h>
#include <string.h>

#include "model/base/random.h"

double array_round(enum dtype dtype, double value) {
  switch (dtype) {
  case DTYPE_F32:
    return (double)(float)value;
  case DTYPE_BF16:
    return (double)bf16_to_float(bf16_from_float((float)value));
  default:
    return rint(value);
  }
}

void array_normal(double *value, int64_t count, enum dtype dtype, double mean, double deviation,
                  uint32_t stream) {
  struct random_key key = random_key(1, RANDOM_TEST, stream);
  for (int64_t i = 0; i < count; i++)
    value[i] = array_round(dtype, mean + deviation * random_normal(key, (uint64_t)i));
}

void array_below(double *value, int64_t count, uint32_t bound, uint32_t stream) {
  struct random_key key = random_key(1, RANDOM_TEST, stream);
  for (int64_t i = 0; i < count; i++) value[i] = (double)random_below(key, (uint64_t)i, bound);
}

void array_encode(void *bytes, enum dtype dtype, const double *value, int64_t count) {
  for (int64_t i = 0; i < count; i++) switch (dtype) {
    case DTYPE_F32:
      ((float *)bytes)[i] = (float)value[i];
      break;
    case DTYPE_BF16:
      ((uint16_t *)bytes)[i] = bf16_from_float((float)value[i]);
      break;
    case DTYPE_I32:
      ((int32_t *)bytes)[i] = (int32_t)value[i];
      break;
    case DTYPE_U8:
      ((uint8_t *)bytes)[i] = (uint8_t)value[i];
      break;
    }
}

void array_decode(double *value, enum dtype dtype, const void *bytes, int64_t count) {
  for (int64_t i = 0; i < count; i++) switch (dtype) {
    case DTYPE_F32:
      value[i] = (double)((const float *)bytes)[i];
      break;
    case DTYPE_BF16:
      value[i] = (double)bf16_to_float(((const uint16_t *)bytes)[i]);
      break;
    case DTYPE_I32:
      value[i] = (double)((const int32_t *)bytes)[i];
      break;
    case DTYPE_U8:
      value[i] = (double)((const uint8_t *)bytes)[i];
      break;
    }
}

struct deviation array_deviation(const double *found, const double *expected, int64_t count) {
  double error = 0, norm = 0, largest_error = 0, largest = 0;
  for (int64_t i = 0; i < count; i++) {
    double distance = fabs(found[i] - expected[i]);
    if (isnan(distance)) return (struct deviation){NAN, NAN};
    error += distance * distance;
    norm += expected[i] * expected[i];
    if (distance > largest_error) largest_error = distance;
    if (fabs(expected[i]) > largest) largest = fabs(expected[i]);
  }
  if (norm == 0) return (struct deviation){sqrt(error), largest_error};
  return (struct deviation){sqrt(error / norm), largest_error / largest};
}
