/* Definitions of the element-wise ops: activation and add; see op.h. */
#include "tests/reference/reference.h"

#include <math.h>
#include <stddef.h>

static double normal_cdf(double x) {
  return 0.5 * erfc(-x * sqrt(0.5));
}
static double normal_density(double x) {
  return exp(-0.5 * x * x) / sqrt(2 * acos(-1.0));
}
static double sigmoid(double x) {
  return 1 / (1 + exp(-x));
}

double reference_activation(enum activation kind, double x) {
  switch (kind) {
  case ACTIVATION_RELU:
    return x > 0 ? x : 0;
  case ACTIVATION_GELU:
    return x * normal_cdf(x);
  case ACTIVATION_SILU:
    return x * sigmoid(x);
  default:
    return x;
  }
}

double reference_activation_derivative(enum activation kind, double x) {
  switch (kind) {
  case ACTIVATION_GELU:
    return normal_cdf(x) + x * normal_density(x);
  case ACTIVATION_SILU:
    return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
  default:
    return 1;
  }
}

void reference_activation_forward(const struct op_desc *desc, const struct reference_io *io) {
  int64_t count = tensor_count(&desc->in[0]);
  for (int64_t i = 0; i < count; i++)
    io->out[i] = reference_activation(desc->attr.activation.kind, io->in[0][i]);
}

void reference_activation_backward(const struct op_desc *desc, const struct reference_io *io) {
  enum activation kind = desc->attr.activation.kind;
  int64_t count = tensor_count(&desc->in[0]);
  for (int64_t i = 0; i < count; i++) {
    double slope = kind == ACTIVATION_RELU ? (io->out[i] > 0 ? 1 : 0)
                                           : reference_activation_derivative(kind, io->in[0][i]);
    io->d_in[0][i] = io->d_out[i] * slope;
  }
}

void reference_add_forward(const struct op_desc *desc, const struct reference_io *io) {
  int64_t count = tensor_count(&desc->in[0]);
  for (int64_t i = 0; i < count; i++) io->out[i] = io->in[0][i] + (double)desc->attr.add.scale * io->in[1][i];
}

void reference_add_backward(const struct op_desc *desc, const struct reference_io *io) {
  int64_t count = tensor_count(&desc->in[0]);
  const double factor[] = {1, (double)desc->attr.add.scale};
  for (int input = 0; input < 2; input++)
    for (int64_t i = 0; io->d_in[input] && i < count; i++) io->d_in[input][i] = factor[input] * io->d_out[i];
}
