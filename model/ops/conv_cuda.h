/* The three products of a convolution with the algorithms chosen for its shape; used by conv2d and conv_bn.
 */
#ifndef CONVOY_MODEL_OPS_CONV_CUDA_H
#define CONVOY_MODEL_OPS_CONV_CUDA_H

#include "model/ops/cudnn_plan_cuda.h"
#include "model/ops/kernels.h"
#include "model/ops/op.h"

/* Who makes a product: cuDNN by a plan, or own kernels (kernels.h). */
enum conv_maker { CONV_LIBRARY, CONV_THIN, CONV_STAGE, CONV_STRIDED, CONV_FILTER, CONV_POINT };

struct conv_products {
  enum dtype dtype;
  int64_t in_count, weight_count;
  struct conv_args shape;
  enum conv_maker forward_by, data_by, filter_by;
  /* CONV_LIBRARY's; else NULL: */
  const struct cudnn_plan *forward;
  const struct cudnn_plan *data;       /* where its product is wanted, as those below */
  const struct cudnn_plan *data_add;   /* NULL: `data` to workspace, then an addition */
  const struct cudnn_plan *filter;     /* to fp32 */
  const struct cudnn_plan *filter_low; /* if filter is NULL: to workspace in dtype, then converted */
};

/* Chooses plans for forward and, if wanted, for the gradients of filters and data; *workspace is the most
 * bytes that one of the calls below needs. */
enum status conv_products_create(struct cuda_context *context, const struct tensor *in,
                                 const struct tensor *out, const struct conv2d_attr *attr, bool filter,
                                 bool data, struct conv_products *products, size_t *workspace);

/* What conv_forward leaves in `part`. */
struct conv_moments conv_moments(const struct conv_products *products);

/* part: NULL if not wanted. */
enum status conv_forward(struct cuda_context *context, const struct conv_products *products, const void *in,
                         const void *weight, void *out, float *part, void *workspace);
enum status conv_backward_data(struct cuda_context *context, const struct conv_products *products,
                               const void *d_out, const void *weight, void *d_in, bool add, void *workspace);
enum status conv_backward_filter(struct cuda_context *context, const struct conv_products *products,
                                 const void *in, const void *d_out, float *d_weight, void *workspace);

/* Can conv_norm_filter make the filters' gradient, where d_in is not wanted? norm: as for
 * kernel_norm_backward. */
bool conv_norm_fits(const struct conv_products *products, const struct norm_args *norm);
size_t
conv_norm_workspace(const struct conv_products *products); /* bytes at norm->workspace; 0: never fits */
enum status conv_norm_filter(struct cuda_context *context, const struct conv_products *products,
                             const struct norm_args *norm, const void *in, float *d_weight);

#endif
