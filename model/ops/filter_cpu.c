/* The three products of a layer with weights; see filter_cpu.h. */
#include "model/ops/filter_cpu.h"

#include <stdlib.h>

struct filter_cpu {
  struct product_cpu *forward, *data, *weights;
  int64_t in_count, weight_count;
  bool bias;
  size_t product_bytes; /* of workspace, before the part that holds a gradient that is to be added, or those
                           of the parameters that are not wanted */
};

/* The data gradient's shape. oneDNN 2.6's bf16 1x1 kernel (jit_bf16_1x1) gives wrong gradients for an odd
 * number of filters at stride 1; there the convolution is a product of matrices, and is computed as one. */
static struct product_cpu_shape data_shape(const struct op_cpu_context *context,
                                           const struct product_cpu_shape *shape) {
  const struct conv2d_attr *conv = &shape->conv;
  bool pointwise = conv->kernel_h == 1 && conv->kernel_w == 1 && conv->stride == 1 && conv->pad == 0;
  struct product_cpu_shape data = *shape;
  if (shape->matrix || !pointwise || conv->filters % 2 == 0 || context->base.compute != DTYPE_BF16)
    return data;
  data.matrix = true;
  data.batch = shape->batch * shape->in_h * shape->in_w;
  return data;
}

enum status filter_cpu_create(const struct op_cpu_context *context, const struct product_cpu_shape *shape,
                              bool training, struct filter_cpu **filter, size_t *workspace) {
  enum status status = STATUS_OK;
  struct filter_cpu *made = calloc(1, sizeof *made);
  if (!made) return RAISE(STATUS_INPUT, "out of memory");
  made->in_count = shape->batch * shape->in_c * (shape->matrix ? 1 : shape->in_h * shape->in_w);
  int64_t window = shape->matrix ? 1 : (int64_t)shape->conv.kernel_h * shape->conv.kernel_w;
  made->weight_count = shape->conv.filters * window * shape->in_c;
  made->bias = shape->conv.bias;
  size_t bytes = 0;
  TRY_OUT(product_cpu_create(context, shape, training ? PRODUCT_FORWARD : PRODUCT_INFERENCE, &made->forward,
                             &bytes));
  if (training) {
    struct product_cpu_shape data = data_shape(context, shape);
    TRY_OUT(product_cpu_create(context, &data, PRODUCT_DATA, &made->data, &bytes));
    TRY_OUT(product_cpu_create(context, shape, PRODUCT_WEIGHTS, &made->weights, &bytes));
    made->product_bytes = op_cpu_align(bytes);
    size_t d_in = (size_t)made->in_count * dtype_bytes(context->base.compute);
    size_t d_params = (size_t)(made->weight_count + shape->conv.filters) * sizeof(float);
    bytes = made->product_bytes + (d_in > d_params ? d_in : d_params);
  }
  if (bytes > *workspace) *workspace = bytes;
  *filter = made;
  made = NULL;
out:
  filter_cpu_destroy(made);
  return status;
}

void filter_cpu_destroy(struct filter_cpu *filter) {
  if (!filter) return;
  product_cpu_destroy(filter->forward);
  product_cpu_destroy(filter->data);
  product_cpu_destroy(filter->weights);
  free(filter);
}

enum status filter_cpu_forward(const struct op_cpu_context *context, const struct filter_cpu *filter,
                               const void *in, const void *weight, const float *bias, void *out,
                               void *workspace) {
  struct product_cpu_io io = {.in = in, .weight = weight, .bias = bias, .out = out};
  TRY(product_cpu_run(context, filter->forward, &io, workspace));
  return STATUS_OK;
}

enum status filter_cpu_backward(const struct op_cpu_context *context, const struct filter_cpu *filter,
                                const struct filter_cpu_backward *io, void *workspace) {
  if (io->d_weight || io->d_bias) {
    float *unwanted = (float *)(void *)((char *)workspace + filter->product_bytes);
    float *d_bias = io->d_bias ? io->d_bias : unwanted + filter->weight_count;
    struct product_cpu_io weights = {.in = io->in,
                                     .weight = io->d_weight ? io->d_weight : unwanted,
                                     .bias = filter->bias ? d_bias : NULL,
                                     .out = io->d_out};
    TRY(product_cpu_run(context, filter->weights, &weights, workspace));
  }
  if (!io->d_in) return STATUS_OK;
  void *d_in = io->d_in_add ? (char *)workspace + filter->product_bytes : io->d_in;
  struct product_cpu_io data = {.in = d_in, .weight = io->weight, .out = io->d_out};
  TRY(product_cpu_run(context, filter->data, &data, workspace));
  if (io->d_in_add) op_cpu_add(context, io->d_in, d_in, 1, io->d_in, filter->in_count);
  return STATUS_OK;
}

struct product_cpu_shape filter_cpu_convolution(const struct op_desc *desc,
                                                const struct op_signature *signature,
                                                const struct conv2d_attr *conv) {
  const int64_t *in = desc->in[0].dim, *out = signature->out.dim;
  return (struct product_cpu_shape){.batch = in[0],
                                    .in_h = in[1],
                                    .in_w = in[2],
                                    .in_c = in[3],
                                    .out_h = out[1],
                                    .out_w = out[2],
                                    .conv = *conv};
}

enum status filter_cpu_op_create(struct op_context *context, const struct op_desc *desc,
                                 const struct product_cpu_shape *shape, void **state, size_t *workspace) {
  struct filter_cpu *filter = NULL;
  *workspace = 0;
  TRY(filter_cpu_create(op_cpu(context), shape, desc->training, &filter, workspace));
  *state = filter;
  return STATUS_OK;
}

enum status filter_cpu_op_forward(struct op_context *context, void *state, const struct op_io *io) {
  TRY(filter_cpu_forward(op_cpu(context), state, io->in[0], io->param[0], io->param[1], io->out,
                         io->workspace));
  return STATUS_OK;
}

enum status filter_cpu_op_backward(struct op_context *context, void *state, const struct op_io *io) {
  struct filter_cpu_backward arrays = {.in = io->in[0],
                                       .weight = io->param[0],
                                       .d_out = io->d_out,
                                       .d_weight = io->d_param[0],
                                       .d_bias = io->d_param[1],
                                       .d_in = io->d_in[0],
                                       .d_in_add = io->d_in_add[0]};
  TRY(filter_cpu_backward(op_cpu(context), state, &arrays, io->workspace));
  return STATUS_OK;
}
