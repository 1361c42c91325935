/* What an operation is: its attributes, its shape rule, and the functions by which a backend computes it.
 *
 * An op is described by a struct op_desc. op_infer gives its signature: the output, the parameters, what
 * forward saves for backward. A backend implements it as four functions (struct op_table), which get only
 * pointers: shapes are known at create, so algorithms are chosen and memory is sized before the first step.
 *
 * In training, forward is followed by backward with the same struct op_io pointers for in, out, param and
 * saved. */
#ifndef CONVOY_MODEL_OPS_OP_H
#define CONVOY_MODEL_OPS_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/base/error.h"
#include "model/base/tensor.h"

enum op_kind {
#define OP(NAME, name) OP_##NAME,
#include "model/ops/ops.def"
#undef OP
  OP_COUNT
};

enum {
  OP_MAX_IN = 2,
  OP_MAX_PARAM = 4,
  OP_MAX_STATISTIC = 2,
  OP_MAX_SAVED = 4,
};

/* y = x convolved with weight (K,R,S,C) + bias (K): out H = (H + 2 pad - R) / stride + 1. Cross-correlation,
 * as all frameworks define it. */
struct conv2d_attr {
  int filters, kernel_h, kernel_w, stride, pad;
  bool bias;
};

/* y = weight (x - mean) / sqrt(var + epsilon) + bias per channel (Ioffe and Szegedy, 2015). Training: the
 * batch's mean and biased variance; else the running ones. With `running` those in training, too, as
 * constants: a layer that is not trained any more. */
struct batchnorm_attr {
  float epsilon;
  bool running;
};

/* y = in[0] + scale in[1]. */
struct add_attr {
  float scale;
};

enum activation { ACTIVATION_NONE, ACTIVATION_RELU, ACTIVATION_GELU, ACTIVATION_SILU };

/* relu max(x, 0); gelu x Phi(x), exact (Hendrycks and Gimpel, 2016); silu x sigmoid(x) (Elfwing et al.,
 * 2018). */
struct activation_attr {
  enum activation kind;
};

/* Largest of each kernel x kernel window; windows that would reach past the edge are dropped (floor), no
 * padding. Of equal values the first in row order gets the gradient. */
struct maxpool_attr {
  int kernel, stride;
};

/* y = x weight^T + bias, x (N, inputs; any shape is read as N rows), weight (outputs, inputs). */
struct linear_attr {
  int outputs;
  bool bias;
};

/* in: logits (N, classes), labels int32 (N). out: float[2] = sum over the batch of
 * -sum_k t_k log softmax(x)_k, with t = (1 - smoothing) onehot + smoothing / classes (Szegedy et al., 2016);
 * and the count of rows whose first largest logit is the label's. d_in[0] is the gradient of the loss sum
 * times *scale. */
struct softmax_xent_attr {
  float smoothing;
};

/* activation(batchnorm(conv2d(in[0])) + in[1]): what graph_fuse makes of that chain; in[1] only if
 * desc.in_count is 2. The convolution has no bias. */
struct conv_bn_attr {
  struct conv2d_attr conv;
  struct batchnorm_attr batchnorm;
  enum activation activation;
};

/* maxpool(activation(conv2d(in[0]))): what graph_fuse makes of that chain. The activation is none or relu,
 * which keep the order of values: the pooled value is activation(the window's largest). */
struct conv_pool_attr {
  struct conv2d_attr conv;
  enum activation activation;
  struct maxpool_attr maxpool;
};

struct op_desc {
  enum op_kind kind;
  bool training; /* false: forward only, running statistics, nothing saved */
  int in_count;
  struct tensor in[OP_MAX_IN]; /* activations in the compute type (fp32 or bf16); dim[0] is the batch */
  bool fixed_in[OP_MAX_IN];    /* training: nothing before it learns, so its gradient is never wanted */
  union {
    struct conv2d_attr conv2d;
    struct batchnorm_attr batchnorm;
    struct activation_attr activation;
    struct add_attr add;
    struct maxpool_attr maxpool;
    struct linear_attr linear;
    struct softmax_xent_attr softmax_xent;
    struct conv_bn_attr conv_bn;
    struct conv_pool_attr conv_pool;
  } attr;
};

/* One learnable array. */
struct op_param {
  const char *name;     /* "weight" or "bias"; static */
  struct tensor tensor; /* typed as the op reads it: the compute type for filters and matrices, else fp32 */
  bool decayed;         /* weight decay applies (filters and matrices) */
};

/* What follows from a description. */
struct op_signature {
  struct tensor out;
  int param_count;
  struct op_param param[OP_MAX_PARAM];
  int statistic_count; /* 0, or 2: running mean and running variance, fp32 (C) each */
  struct tensor statistic[OP_MAX_STATISTIC];
  bool fixed_statistic; /* training reads the running ones and writes none */
  int saved_count;      /* kept from forward to backward */
  struct tensor saved[OP_MAX_SAVED];
  bool keeps_in[OP_MAX_IN]; /* backward reads in[i] */
  bool keeps_out;           /* backward reads out */
};

/* clang-format off */
/* The shape rule. STATUS_INPUT names the op and the shapes that do not fit; *signature is then untouched.
 *
 * op            param                                     saved (training)                          backward reads
 * conv2d        weight (K,R,S,C) [bias (K)]                                                         in[0]
 * batchnorm     weight (C), bias (C)                      mean (C), 1/sqrt(var + epsilon) (C)       in[0]
 * activation                                                                                        relu out, else in[0]
 * add
 * maxpool                                                 uint8, out's shape: maximum's place
 *                                                         in its window, in row order
 * avgpool       out is N,1,1,C
 * linear        weight (outputs, inputs) [bias (outputs)]                                           in[0]
 * softmax_xent  out is float[2]                           log-sum-exp of each row (N)               in[0], in[1]
 * conv_bn       conv's weight, batchnorm's weight, bias   conv's out, mean (K), 1/sqrt(.) (K)       in[0], relu out,
 *                                                                                                   gelu and silu in[1]
 * conv_pool     conv2d's                                  uint8, out's shape: the largest's place   in[0], relu out
 *                                                         in its window before the activation
 * With batchnorm's `running`, mean and 1/sqrt(.) are not saved.
 * Weights of conv2d, linear, conv_bn and conv_pool have the compute type (in[0]'s) and are decayed; all other
 * parameters, means and factors are fp32. linear reads an N,H,W,C input as N rows in H,W,C order. Without
 * training nothing is saved or kept. */
/* clang-format on */
enum status op_infer(const struct op_desc *desc, struct op_signature *signature);

/* For shape rules; each refusal (STATUS_INPUT) names the op and what was found. */
enum status op_check_in_count(const struct op_desc *desc, int min_count, int max_count);
/* in[i] is fp32 or bf16, has min_rank..max_rank dimensions, none below 1. */
enum status op_check_in(const struct op_desc *desc, int i, int min_rank, int max_rank);
/* in[i] has exactly this shape and type. */
enum status op_check_same(const struct op_desc *desc, int i, const struct tensor *expected);
/* The window fits into in[0] (N,H,W,C); gives the output's height and width. */
enum status op_check_window(const struct op_desc *desc, int kernel_h, int kernel_w, int stride, int pad,
                            int64_t *height, int64_t *width);

const char *op_name(enum op_kind kind);
const char *activation_name(enum activation kind);

/* Output height or width of a window that moves by `stride`; 0 or less: it does not fit. */
int64_t op_window(int64_t size, int kernel, int stride, int pad);

/* The pointers of one call; entries that the signature does not have are NULL. All but `workspace` lie in the
 * backend's memory for as long as the net lives. */
struct op_io {
  const void *in[OP_MAX_IN];
  void *out;
  const void *param[OP_MAX_PARAM];
  const float *statistic[OP_MAX_STATISTIC]; /* running values; read if not training, or fixed */
  /* Training forward writes this rank's batch mean and unbiased variance (over max(N H W - 1, 1)), each times
   * N * *scale: their sum over the ranks is the weighted mean. NULL where statistics are fixed. */
  float *batch_statistic[OP_MAX_STATISTIC];
  void *saved[OP_MAX_SAVED];
  void *workspace;    /* as many bytes as create asked for; shared by all ops, undefined between calls */
  const float *scale; /* 1 / samples in the global batch */
  /* backward only */
  const void *d_out;
  void *d_in[OP_MAX_IN];        /* NULL: not wanted; so always for a fixed_in */
  bool d_in_add[OP_MAX_IN];     /* add to what d_in holds; else overwrite */
  float *d_param[OP_MAX_PARAM]; /* fp32, overwritten; NULL: not wanted */
};

/* What every backend gives its ops; each backend's own context begins with it. */
struct op_context {
  enum dtype compute;     /* type of activations, filters and matrices: fp32 or bf16 */
  bool tf32;              /* fp32 products may be rounded to tf32 */
  bool deterministic;     /* only algorithms whose sums have a fixed order */
  size_t workspace_limit; /* bytes that one op may ask for */
};

/* How a backend computes one op. Calls only enqueue work: errors of the device may surface later. */
struct op_table {
  /* Chooses algorithms for these shapes. *state is owned by the caller until destroy; *workspace: bytes. */
  enum status (*create)(struct op_context *context, const struct op_desc *desc,
                        const struct op_signature *signature, void **state, size_t *workspace);
  enum status (*forward)(struct op_context *context, void *state, const struct op_io *io);
  enum status (*backward)(struct op_context *context, void *state, const struct op_io *io);
  void (*destroy)(struct op_context *context, void *state); /* NULL state: nothing */
};

#define OP(NAME, name) enum status name##_infer(const struct op_desc *desc, struct op_signature *signature);
#include "model/ops/ops.def"
#undef OP

#endif
