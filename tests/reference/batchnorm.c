/* Definition of batchnorm (Ioffe and Szegedy, 2015); see op.h. */
#include "tests/reference/reference.h"

#include <math.h>

/* Mean and biased variance of channel c over N,H,W. */
static void moments(const double *in, int64_t rows, int64_t channels, int64_t c, double *mean,
                    double *variance) {
  *mean = *variance = 0;
  for (int64_t i = 0; i < rows; i++) *mean += in[i * channels + c] / (double)rows;
  for (int64_t i = 0; i < rows; i++) {
    double distance = in[i * channels + c] - *mean;
    *variance += distance * distance / (double)rows;
  }
}

void reference_batchnorm_forward(const struct op_desc *desc, const struct reference_io *io) {
  const int64_t *dim = desc->in[0].dim;
  int64_t rows = dim[0] * dim[1] * dim[2], channels = dim[3];
  for (int64_t c = 0; c < channels; c++) {
    double mean, variance;
    if (desc->training && !desc->attr.batchnorm.running) {
      moments(io->in[0], rows, channels, c, &mean, &variance);
      double share = (double)dim[0] * io->scale;
      double unbiased = variance * (double)rows / (double)(rows > 1 ? rows - 1 : 1);
      if (io->batch_statistic[0]) io->batch_statistic[0][c] = mean * share;
      if (io->batch_statistic[1]) io->batch_statistic[1][c] = unbiased * share;
    } else {
      mean = io->statistic[0][c];
      variance = io->statistic[1][c];
    }
    double factor = 1 / sqrt(variance + (double)desc->attr.batchnorm.epsilon);
    if (io->saved[0]) io->saved[0][c] = mean;
    if (io->saved[1]) io->saved[1][c] = factor;
    for (int64_t i = c; i < rows * channels; i += channels)
      io->out[i] = io->param[0][c] * (io->in[0][i] - mean) * factor + io->param[1][c];
  }
}

/* With u = (x - mean) factor: d_in = weight factor (d_out - mean(d_out) - u mean(d_out u)); without the means
 * where mean and factor are constants. */
void reference_batchnorm_backward(const struct op_desc *desc, const struct reference_io *io) {
  const int64_t *dim = desc->in[0].dim;
  int64_t rows = dim[0] * dim[1] * dim[2], channels = dim[3];
  for (int64_t c = 0; c < channels; c++) {
    double mean, variance, sum = 0, product = 0;
    bool running = desc->attr.batchnorm.running;
    if (running) {
      mean = io->statistic[0][c];
      variance = io->statistic[1][c];
    } else {
      moments(io->in[0], rows, channels, c, &mean, &variance);
    }
    double factor = 1 / sqrt(variance + (double)desc->attr.batchnorm.epsilon);
    for (int64_t i = c; i < rows * channels; i += channels) {
      sum += io->d_out[i];
      product += io->d_out[i] * (io->in[0][i] - mean) * factor;
    }
    if (io->d_param[0]) io->d_param[0][c] = product;
    if (io->d_param[1]) io->d_param[1][c] = sum;
    if (!io->d_in[0]) continue;
    for (int64_t i = c; i < rows * channels; i += channels) {
      double u = (io->in[0][i] - mean) * factor;
      double through = running ? 0 : sum / (double)rows + u * product / (double)rows;
      io->d_in[0][i] = io->param[0][c] * factor * (io->d_out[i] - through);
    }
  }
}
