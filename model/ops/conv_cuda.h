/* The three products of a convolution with the algorithms chosen for its shape; used by conv2d and conv_bn.
 */
#ifndef CONVOY_MODEL_OPS_CONV_CUDA_H
#define CONVOY_MODEL_OPS_CONV_CUDA_H

#include "model/ops/cudnn_plan_cuda.h"
#include "model/ops/kernels.h"
#include "model/ops/op.h"

struct conv_products {
  enum dtype dtype;
  int64_t in_count, weight_count;
  /* By own kernels, then the plans are NULL: */
  bool thin;       /* forward and filter */
  bool stage;      /* forward and data */
  bool half;       /* data */
  bool own_filter; /* filter */
  bool point;      /* all three */
  struct thin_args shape;
  const struct cudnn_plan *forward;
  const struct cudnn_plan *data;       /* training only, as those below */
  const struct cudnn_plan *data_add;   /* NULL: `data` to workspace, then an addition */
  const struct cudnn_plan *filter;     /* to fp32 */
  const struct cudnn_plan *filter_low; /* if filter is NULL: to workspace in dtype, then converted */
};

/* Chooses plans; *workspace is the most bytes that one of the calls below needs. */
enum status conv_products_create(struct cuda_context *context, const struct tensor *in,
                                 const struct tensor *out, const struct conv2d_attr *attr, bool training,
                                 struct conv_products *products, size_t *workspace);

/* Parts of the moments that conv_forward leaves in `part`, two floats a filter each: for kernel_norm_forward.
 * 0: this convolution leaves none. */
int conv_parts(const struct conv_products *products);

/* part: NULL if not wanted. */
enum status conv_forward(struct cuda_context *context, const struct conv_products *products, const void *in,
                         const void *weight, void *out, float *part, void *workspace);
enum status conv_backward_data(struct cuda_context *context, const struct conv_products *products,
                               const void *d_out, const void *weight, void *d_in, bool add, void *workspace);
enum status conv_backward_filter(struct cuda_context *context, const struct conv_products *products,
                                 const void *in, const void *d_out, float *d_weight, void *workspace);

#endif
