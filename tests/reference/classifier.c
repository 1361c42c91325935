/* Definitions of linear and softmax_xent; see op.h. */
#include "tests/reference/reference.h"

#include <math.h>

void reference_linear_forward(const struct op_desc *desc, const struct reference_io *io) {
  int64_t rows = desc->in[0].dim[0], inputs = tensor_count(&desc->in[0]) / rows;
  int64_t outputs = desc->attr.linear.outputs;
  for (int64_t n = 0; n < rows; n++)
    for (int64_t k = 0; k < outputs; k++) {
      double sum = desc->attr.linear.bias ? io->param[1][k] : 0;
      for (int64_t i = 0; i < inputs; i++) sum += io->in[0][n * inputs + i] * io->param[0][k * inputs + i];
      io->out[n * outputs + k] = sum;
    }
}

void reference_linear_backward(const struct op_desc *desc, const struct reference_io *io) {
  int64_t rows = desc->in[0].dim[0], inputs = tensor_count(&desc->in[0]) / rows;
  int64_t outputs = desc->attr.linear.outputs;
  if (io->d_in[0])
    for (int64_t at = 0; at < rows * inputs; at++) {
      io->d_in[0][at] = 0;
      for (int64_t k = 0; k < outputs; k++)
        io->d_in[0][at] += io->d_out[at / inputs * outputs + k] * io->param[0][k * inputs + at % inputs];
    }
  if (io->d_param[0])
    for (int64_t at = 0; at < outputs * inputs; at++) {
      io->d_param[0][at] = 0;
      for (int64_t n = 0; n < rows; n++)
        io->d_param[0][at] += io->d_out[n * outputs + at / inputs] * io->in[0][n * inputs + at % inputs];
    }
  if (io->d_param[1])
    for (int64_t k = 0; k < outputs; k++) {
      io->d_param[1][k] = 0;
      for (int64_t n = 0; n < rows; n++) io->d_param[1][k] += io->d_out[n * outputs + k];
    }
}

static double log_sum_exp(const double *x, int64_t count) {
  double largest = x[0], sum = 0;
  for (int64_t k = 0; k < count; k++) largest = x[k] > largest ? x[k] : largest;
  for (int64_t k = 0; k < count; k++) sum += exp(x[k] - largest);
  return largest + log(sum);
}

static double target(const struct op_desc *desc, int64_t k, int64_t label) {
  double smoothing = (double)desc->attr.softmax_xent.smoothing;
  return smoothing / (double)desc->in[0].dim[1] + (k == label ? 1 - smoothing : 0);
}

void reference_softmax_xent_forward(const struct op_desc *desc, const struct reference_io *io) {
  int64_t rows = desc->in[0].dim[0], classes = desc->in[0].dim[1];
  io->out[0] = io->out[1] = 0;
  for (int64_t n = 0; n < rows; n++) {
    const double *x = io->in[0] + n * classes;
    int64_t label = (int64_t)io->in[1][n], first = 0;
    double all = log_sum_exp(x, classes);
    for (int64_t k = 0; k < classes; k++) {
      io->out[0] -= target(desc, k, label) * (x[k] - all);
      if (x[k] > x[first]) first = k;
    }
    io->out[1] += first == label;
    if (io->saved[0]) io->saved[0][n] = all;
  }
}

void reference_softmax_xent_backward(const struct op_desc *desc, const struct reference_io *io) {
  int64_t rows = desc->in[0].dim[0], classes = desc->in[0].dim[1];
  for (int64_t n = 0; n < rows; n++) {
    const double *x = io->in[0] + n * classes;
    double all = log_sum_exp(x, classes);
    for (int64_t k = 0; k < classes; k++)
      io->d_in[0][n * classes + k] = (exp(x[k] - all) - target(desc, k, (int64_t)io->in[1][n])) * io->scale;
  }
}
