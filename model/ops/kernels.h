/* Our own CUDA kernels that compute ops, as C functions that only enqueue on `stream`. Each returns a
 * cudaError_t as int, 0 for success. Sums have a fixed order: nothing depends on which block or thread comes
 * first. `dtype` is the activations' type, fp32 or bf16; arithmetic is fp32. Activations are N,H,W,C; "rows"
 * are N*H*W. Pointers are device memory, aligned to 16 bytes for the fast paths; what is not, or a channel
 * count that does not fit, takes a slower path of the same result; convolutions need aligned pointers. */
#ifndef CONVOY_MODEL_OPS_KERNELS_H
#define CONVOY_MODEL_OPS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/ops/op.h"

struct CUstream_st; /* cudaStream_t is a pointer to it */

/* ---- elementwise (pointwise.cu) ---- */

/* data[count] = numbers in (-1, 1), a function of their index only. */
int kernel_random(struct CUstream_st *stream, enum dtype dtype, void *data, int64_t count);

/* out[count] = from[count] rounded to out_dtype; count elements of fp32 or bf16. */
int kernel_convert(struct CUstream_st *stream, enum dtype from_dtype, const void *from, enum dtype out_dtype,
                   void *out, int64_t count);

/* out = a + b, or a + scale b, elementwise; out may be a or b. */
int kernel_add(struct CUstream_st *stream, enum dtype dtype, const void *a, const void *b, void *out,
               int64_t count);
int kernel_add_scaled(struct CUstream_st *stream, enum dtype dtype, const void *a, const void *b, float scale,
                      void *out, int64_t count);

/* d_in[0] = d_out and d_in[1] = scale d_out, added to if add[i]; NULL: not wanted. */
int kernel_add_backward(struct CUstream_st *stream, enum dtype dtype, const void *d_out, float scale,
                        void *const d_in[2], const bool add[2], int64_t count);

int kernel_activation(struct CUstream_st *stream, enum dtype dtype, enum activation kind, const void *in,
                      void *out, int64_t count);

/* kept: out for relu, in for gelu and silu. */
int kernel_activation_backward(struct CUstream_st *stream, enum dtype dtype, enum activation kind,
                               const void *kept, const void *d_out, void *d_in, bool add, int64_t count);

/* ---- channels (batchnorm.cu, batchnorm_backward.cu, bias.cu) ---- */

/* Floats of workspace that the reductions below need for these rows and channels. */
size_t kernel_channel_workspace(enum dtype dtype, int64_t rows, int64_t channels);

/* data (rows, channels) += bias (channels), in place. */
int kernel_bias_add(struct CUstream_st *stream, enum dtype dtype, void *data, const float *bias, int64_t rows,
                    int64_t channels);

/* sum (channels) = column sums of data (rows, channels). */
int kernel_column_sum(struct CUstream_st *stream, enum dtype dtype, const void *data, float *sum,
                      int64_t rows, int64_t channels, float *workspace, uint32_t *tickets);

struct norm_args {
  enum dtype dtype;
  enum activation activation; /* applied after the residual */
  int64_t rows, channels;
  float epsilon;
  const void *in;       /* rows, channels */
  const void *residual; /* rows, channels or NULL */
  void *out;            /* rows, channels; in backward what forward wrote (read for relu with a residual) */
  const float *weight, *bias; /* channels */
  float *mean, *invstd;       /* channels; of the batch; backward: NULL: the running ones, as constants */
  const float *running_mean, *running_var; /* channels; of kernel_norm_apply */
  /* kernel_norm_forward; NULL: not wanted. Batch mean and unbiased variance, each times batch * *scale. */
  float *batch_mean, *batch_var;
  const float *scale;
  float batch;
  /* backward */
  const void *d_out;
  void *d_in;       /* rows, channels; added to if d_in_add */
  void *d_residual; /* rows, channels; NULL: not wanted; added to if d_residual_add */
  bool d_in_add, d_residual_add;
  float *d_weight, *d_bias; /* channels; NULL: not wanted */
  float *workspace;         /* kernel_channel_workspace */
  /* kernel_norm_forward: moments of parts of the rows if they are known; NULL: they are not. Of `pieces`
   * equal pieces of the rows the part i of p has i, i + p, i + 2 p, … part (parts,channels,2): mean, and sum
   * of the squared differences from it. */
  const float *part;
  int parts;
  int64_t pieces;
  uint32_t *tickets;
};

/* Training: mean, invstd = 1/sqrt(var + epsilon) with the biased variance, batch_mean, batch_var, and
 * out = activation((in - mean) * invstd * weight + bias + residual). */
int kernel_norm_forward(struct CUstream_st *stream, const struct norm_args *args);

/* Evaluation: the same out with the running mean and variance. out may be in. */
int kernel_norm_apply(struct CUstream_st *stream, const struct norm_args *args);

/* d_weight and d_bias (Ioffe and Szegedy, 2015), the activation's gradient applied first; d_in (NULL: not
 * wanted) and d_residual. */
int kernel_norm_backward(struct CUstream_st *stream, const struct norm_args *args);

/* ---- convolutions of bf16: in (n,h,w,c), weight (filters,kernel_h,kernel_w,c), out (n,out_h,out_w,filters);
 * sums are fp32 ---- */

struct conv_args {
  int64_t n, h, w, c, filters, kernel_h, kernel_w, out_h, out_w, stride, pad;
};

/* Moments that a forward leaves for kernel_norm_forward: norm_args' parts and pieces. parts 0: it leaves
 * none.
 */
struct conv_moments {
  int parts;
  int64_t pieces;
};

/* ---- of few taps (conv_thin.cu) ---- */

/* Is the shape one of these? At most 32 taps, filters in groups of 64, a row of the image in shared memory.
 */
bool kernel_thin_fits(const struct conv_args *args);
size_t kernel_thin_workspace(const struct conv_args *args); /* floats, of kernel_thin_filter */
struct conv_moments kernel_thin_moments(const struct conv_args *args);
/* part: norm_args' or NULL: not wanted. */
int kernel_thin_forward(struct CUstream_st *stream, const struct conv_args *args, const void *in,
                        const void *weight, void *out, float *part);
int kernel_thin_filter(struct CUstream_st *stream, const struct conv_args *args, const void *in,
                       const void *d_out, float *d_weight, float *workspace, uint32_t *tickets);

/* The filters' gradient through batch normalisation with the batch's statistics and, if it is there, relu
 * (conv_thin_norm.cu): d_weight from norm->d_out and norm->in, the convolution's result, with norm->d_weight
 * and d_bias as of kernel_norm_backward. norm->d_in, the convolution's gradient, is not made.
 * norm->workspace: kernel_thin_norm_workspace floats. */
bool kernel_thin_norm_fits(const struct conv_args *args, const struct norm_args *norm);
size_t kernel_thin_norm_workspace(const struct conv_args *args);
int kernel_thin_norm_filter(struct CUstream_st *stream, const struct conv_args *args,
                            const struct norm_args *norm, const void *in, float *d_weight);

/* ---- 3x3, stride 1 unless said, pad 1, on Hopper's tensor cores. On other devices, and in builds without
 * code for Hopper, nothing fits. ---- */

/* 64 to 64 channels on 32x32 images (conv_stage.cu), or 128 to 128 on 16x16 (conv_stage2.cu), then at most
 * one image a multiprocessor, or 512 to 512 on 4x4 (conv_stage4.cu), then at most 128 images? */
bool kernel_stage_fits(const struct conv_args *args);
struct conv_moments kernel_stage_moments(const struct conv_args *args);
int kernel_stage_forward(struct CUstream_st *stream, const struct conv_args *args, const void *in,
                         const void *weight, void *out, float *part);
int kernel_stage_data(struct CUstream_st *stream, const struct conv_args *args, const void *d_out,
                      const void *weight, void *d_in, bool add);

/* Filter gradients where that pays (conv_filter.cu): channels and filters in groups of 64, images 8, 16 or
 * 32 wide, a batch that is not too large. */
bool kernel_filter_fits(const struct conv_args *args);
size_t kernel_filter_workspace(const struct conv_args *args); /* floats */
int kernel_filter(struct CUstream_st *stream, const struct conv_args *args, const void *in, const void *d_out,
                  float *d_weight, float *workspace);

/* Data gradients with stride 2 (conv_strided.cu): 64 to 128 channels on 32x32 images, any batch; 128 to 256
 * on 16x16 or 256 to 512 on 8x8, then at most 132 images. */
bool kernel_strided_fits(const struct conv_args *args);
int kernel_strided_data(struct CUstream_st *stream, const struct conv_args *args, const void *d_out,
                        const void *weight, void *d_in, bool add);

/* ---- 1x1 with a stride (conv_point.cu) ---- */

/* Channels and filters in groups of 64, no padding? */
bool kernel_point_fits(const struct conv_args *args);
size_t kernel_point_workspace(const struct conv_args *args); /* floats, of kernel_point_filter */
int kernel_point_forward(struct CUstream_st *stream, const struct conv_args *args, const void *in,
                         const void *weight, void *out);
int kernel_point_data(struct CUstream_st *stream, const struct conv_args *args, const void *d_out,
                      const void *weight, void *d_in, bool add);
int kernel_point_filter(struct CUstream_st *stream, const struct conv_args *args, const void *in,
                        const void *d_out, float *d_weight, float *workspace);

/* out[count] = the sum of parts (splits,count), in order; count is a multiple of 4 (parts.cu). */
int kernel_sum_parts(struct CUstream_st *stream, const float *parts, float *out, int64_t count, int splits);

/* ---- pools (pool.cu) ---- */

struct pool_args {
  enum dtype dtype;
  int64_t n, h, w, c, out_h, out_w;
  int kernel, stride;
};

/* out (n,out_h,out_w,c); index (same shape, NULL: not wanted): place in the window, row * kernel + column. */
int kernel_maxpool(struct CUstream_st *stream, const struct pool_args *args, const void *in, void *out,
                   uint8_t *index);
int kernel_maxpool_backward(struct CUstream_st *stream, const struct pool_args *args, const void *d_out,
                            const uint8_t *index, void *d_in, bool add);

/* out (n,c) = mean over h,w; args' out_h, out_w, kernel and stride are not read. */
int kernel_avgpool(struct CUstream_st *stream, const struct pool_args *args, const void *in, void *out);
int kernel_avgpool_backward(struct CUstream_st *stream, const struct pool_args *args, const void *d_out,
                            void *d_in, bool add);

/* ---- convolution + bias + relu + maxpool of filters with few taps (conv_pool*.cu) ---- */

struct conv_pool_args {
  enum dtype dtype;
  int64_t n;
  int h, w, c, out_h, out_w; /* in (n,h,w,c); out (n,out_h,out_w,filters) */
  int filters, kernel_h, kernel_w, stride, pad;
  int pool, pool_stride;
  bool relu;
  const void *in, *weight; /* weight (filters,kernel_h,kernel_w,c) */
  const float *bias;       /* filters; NULL: none */
  void *out;               /* backward reads it for relu */
  uint8_t *place;          /* out's shape, as kernel_maxpool's index; NULL: not wanted */
  /* backward */
  const void *d_out;
  float *d_weight, *d_bias; /* NULL: not wanted */
  void *d_in;               /* added to if d_in_add */
  bool d_in_add;
  float *workspace; /* kernel_conv_pool_workspace */
  uint32_t *tickets;
};

/* Are there kernels for this shape? */
bool kernel_conv_pool_fits(const struct conv_pool_args *args);
size_t kernel_conv_pool_workspace(const struct conv_pool_args *args); /* floats */
int kernel_conv_pool(struct CUstream_st *stream, const struct conv_pool_args *args);
/* d_weight and d_bias. */
int kernel_conv_pool_backward_filter(struct CUstream_st *stream, const struct conv_pool_args *args);
/* d_in: simple, not fast; a first layer does not want it. */
int kernel_conv_pool_backward_data(struct CUstream_st *stream, const struct conv_pool_args *args);

/* ---- loss (loss.cu) ---- */

/* Floats of workspace of kernel_softmax_xent. */
size_t kernel_softmax_xent_workspace(int64_t rows);

/* See op.h: out[0] = loss sum, out[1] = correct; log_sum_exp (rows) or NULL. */
int kernel_softmax_xent(struct CUstream_st *stream, enum dtype dtype, const void *logits,
                        const int32_t *labels, int64_t rows, int64_t classes, float smoothing, float *out,
                        float *log_sum_exp, float *workspace, uint32_t *tickets);
int kernel_softmax_xent_backward(struct CUstream_st *stream, enum dtype dtype, const void *logits,
                                 const int32_t *labels, const float *log_sum_exp, int64_t rows,
                                 int64_t classes, float smoothing, const float *scale, void *d_logits,
                                 bool add);

/* ---- linear layers with few outputs (linear.cu): fp32 products and sums whatever the type ---- */

enum { KERNEL_LINEAR_OUTPUTS = 16 }; /* at most */

struct linear_args {
  enum dtype dtype;
  int64_t rows, inputs, outputs; /* in (rows, inputs), weight (outputs, inputs), out (rows, outputs) */
};

size_t kernel_linear_workspace(const struct linear_args *args); /* floats, for forward or backward */
/* bias NULL: none. */
int kernel_linear(struct CUstream_st *stream, const struct linear_args *args, const void *in,
                  const void *weight, const float *bias, void *out, float *workspace, uint32_t *tickets);
/* Gradients that are NULL are not wanted. */
int kernel_linear_backward(struct CUstream_st *stream, const struct linear_args *args, const void *in,
                           const void *weight, const void *d_out, void *d_in, bool add, float *d_weight,
                           float *d_bias, float *workspace, uint32_t *tickets);

/* out (rows, columns) = in fp32 + bias (NULL: none), rounded to dtype. */
int kernel_bias_convert(struct CUstream_st *stream, enum dtype dtype, const float *in, const float *bias,
                        void *out, int64_t rows, int64_t columns);

#endif
