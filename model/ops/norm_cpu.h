/* The passes over memory of batch normalisation with an optional addend and activation, shared by batchnorm
 * and conv_bn: one that reads for the statistics, one that normalises, adds and activates; backward one that
 * reads for the two sums, one that writes the gradients. x is (rows, channels) in the compute type. */
#ifndef CONVOY_MODEL_OPS_NORM_CPU_H
#define CONVOY_MODEL_OPS_NORM_CPU_H

#include "model/ops/op_cpu.h"

struct norm_cpu {
  int64_t rows, channels, batch;
  bool bf16;
  float epsilon;
  enum activation activation;
  bool running; /* training takes the running statistics, as constants */
  int threads;
};

/* For values `x` normalised over all but the last dimension. */
struct norm_cpu norm_cpu(const struct op_cpu_context *context, const struct tensor *x,
                         const struct batchnorm_attr *attr, enum activation activation);

/* Bytes of workspace that each of the functions below needs. */
size_t norm_cpu_workspace(const struct norm_cpu *norm);

/* The arrays of the forward pass: out = activation((x - mean) * invstd * weight + bias + addend). */
struct norm_cpu_forward {
  const void *x, *addend; /* addend NULL: none */
  const float *mean, *invstd, *weight, *bias;
  void *out; /* may be x */
};

/* Training: computes mean and invstd = 1 / sqrt(biased variance + epsilon) of arrays->x into io->saved[first]
 * and saved[first + 1], gives them to arrays, and writes io->batch_statistic. The variance is summed around a
 * running mean (Chan, Golub and LeVeque, 1983), so a large mean costs no digits. */
void norm_cpu_statistics(const struct norm_cpu *norm, const struct op_io *io, int first,
                         struct norm_cpu_forward *arrays);

/* Gives the running mean, and the running variance's invstd, which lies in io->workspace. */
void norm_cpu_running(const struct norm_cpu *norm, const struct op_io *io, const float **mean,
                      const float **invstd);

/* One pass: normalises, adds, activates. */
void norm_cpu_forward(const struct norm_cpu *norm, const struct norm_cpu_forward *io, void *workspace);

/* The arrays of the backward pass. */
struct norm_cpu_backward {
  const void *x, *addend; /* as in forward; addend is read for gelu and silu only */
  const void *out;        /* read for relu only */
  const void *d_out;
  const float *mean, *invstd, *weight, *bias;
  float *d_weight, *d_bias; /* NULL: not wanted */
  void *d_x;                /* NULL: not wanted */
  void *d_addend;           /* NULL: not wanted */
  bool d_x_add, d_addend_add;
};
/* One pass for the sums, d_weight and d_bias, where they are needed; one for d_x and d_addend, added to what
 * is there where _add says so. */
void norm_cpu_backward(const struct norm_cpu *norm, const struct norm_cpu_backward *io, void *workspace);

#endif
