/* Activation functions on one float, written so that loops over them vectorise. Errors are below 1e-6. */
#ifndef CONVOY_MODEL_OPS_ACTIVATION_CPU_H
#define CONVOY_MODEL_OPS_ACTIVATION_CPU_H

#include "model/ops/op_cpu.h"

/* e^x: 2^n times a polynomial (Cephes' expf), x clamped to +-87. */
OP_CPU_INLINE float activation_cpu_exp(float x) {
  float clamped = x < -87.0f ? -87.0f : (x > 87.0f ? 87.0f : x);
  float shifted = clamped * 1.44269504088896341f + 12582912.0f; /* 1.5 * 2^23: rounds to an integer */
  float n = shifted - 12582912.0f;
  float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  union {
    int32_t bits;
    float value;
  } power = {.bits = ((int32_t)n + 127) * (1 << 23)};
  return p * power.value;
}

/* erf(x): a rational function of x on [-4, 4], +-1 outside. */
OP_CPU_INLINE float activation_cpu_erf(float x) {
  float c = x < -4.0f ? -4.0f : (x > 4.0f ? 4.0f : x);
  float s = c * c;
  float p = -2.72614225801306e-10f;
  p = p * s + 2.77068142495902e-08f;
  p = p * s - 2.10102402082508e-06f;
  p = p * s - 5.69250639462346e-05f;
  p = p * s - 7.34990630326855e-04f;
  p = p * s - 2.95459980854025e-03f;
  p = p * s - 1.60960333262415e-02f;
  float q = -1.45660718464996e-05f;
  q = q * s - 2.13374055278905e-04f;
  q = q * s - 1.68282697438203e-03f;
  q = q * s - 7.37332916720468e-03f;
  q = q * s - 1.42647390514189e-02f;
  return c * p / q;
}

/* activation(x); a NaN stays one, for the loss must show it. */
OP_CPU_INLINE float activation_cpu_value(enum activation kind, float x) {
  switch (kind) {
  case ACTIVATION_RELU:
    return x < 0.0f ? 0.0f : x;
  case ACTIVATION_GELU:
    return 0.5f * x * (1.0f + activation_cpu_erf(x * 0.70710678118654752f));
  case ACTIVATION_SILU:
    return x / (1.0f + activation_cpu_exp(-x));
  default:
    return x;
  }
}

/* d activation / dx times d. `kept` is the activation's input; for relu its output serves as well. */
OP_CPU_INLINE float activation_cpu_gradient(enum activation kind, float kept, float d) {
  switch (kind) {
  case ACTIVATION_RELU:
    return kept > 0.0f ? d : 0.0f;
  case ACTIVATION_GELU: {
    float phi = 0.5f * (1.0f + activation_cpu_erf(kept * 0.70710678118654752f));
    return d * (phi + kept * 0.39894228040143268f * activation_cpu_exp(-0.5f * kept * kept));
  }
  case ACTIVATION_SILU: {
    float sigmoid = 1.0f / (1.0f + activation_cpu_exp(-kept));
    return d * sigmoid * (1.0f + kept * (1.0f - sigmoid));
  }
  default:
    return d;
  }
}

/* Calls FUNCTION(bf16, kind, ...) with constants for the first two, so that each case is compiled on its own.
 */
#define ACTIVATION_CPU_CASE(FUNCTION, bf16, kind, ...)                                                       \
  case kind:                                                                                                 \
    FUNCTION(bf16, kind, __VA_ARGS__);                                                                       \
    break;
#define ACTIVATION_CPU_CASES(FUNCTION, bf16, kind, ...)                                                      \
  switch (kind) {                                                                                            \
    ACTIVATION_CPU_CASE(FUNCTION, bf16, ACTIVATION_NONE, __VA_ARGS__)                                        \
    ACTIVATION_CPU_CASE(FUNCTION, bf16, ACTIVATION_RELU, __VA_ARGS__)                                        \
    ACTIVATION_CPU_CASE(FUNCTION, bf16, ACTIVATION_GELU, __VA_ARGS__)                                        \
    ACTIVATION_CPU_CASE(FUNCTION, bf16, ACTIVATION_SILU, __VA_ARGS__)                                        \
  }
#define ACTIVATION_CPU_DISPATCH(FUNCTION, bf16, kind, ...)                                                   \
  do {                                                                                                       \
    if (bf16)                                                                                                \
      ACTIVATION_CPU_CASES(FUNCTION, true, kind, __VA_ARGS__)                                                \
    else                                                                                                     \
      ACTIVATION_CPU_CASES(FUNCTION, false, kind, __VA_ARGS__)                                               \
  } while (0)

#endif
