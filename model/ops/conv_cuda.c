/* Convolution products; see conv_cuda.h. */
#include "model/ops/conv_cuda.h"

#include <math.h>
#include <string.h>

#include "model/ops/kernels.h"
#include "model/ops/op_cuda.h"

static void most(size_t *bytes, size_t other) {
  if (other > *bytes) *bytes = other;
}

enum { SAMPLE = 4096 };

static float element(enum dtype dtype, const void *data, int64_t i) {
  return dtype == DTYPE_BF16 ? bf16_to_float(((const uint16_t *)data)[i]) : ((const float *)data)[i];
}

/* Does the adding plan add? An engine that overlooks the sum it was asked for would be wrong in silence, so
 * the first elements are compared: what it leaves of the old values in the difference to their true sum,
 * which is all or nothing of them. */
static enum status add_holds(struct cuda_context *context, const struct conv_problem *problem,
                             const struct conv_products *products, bool *holds) {
  const size_t size = dtype_bytes(products->dtype), x = cuda_align((size_t)products->in_count * size);
  const size_t w = cuda_align((size_t)products->weight_count * size);
  const size_t y =
      cuda_align((size_t)(problem->n * problem->out_h * problem->out_w * problem->filters) * size);
  const size_t rest = cudnn_plan_workspace(products->data) > cudnn_plan_workspace(products->data_add)
                          ? cudnn_plan_workspace(products->data)
                          : cudnn_plan_workspace(products->data_add);
  const int64_t count = products->in_count < SAMPLE ? products->in_count : SAMPLE;
  float old[SAMPLE], sum[SAMPLE], plain[SAMPLE]; /* of fp32's size: also large enough for bf16 */
  void *d_in;
  TRY(cuda_scratch(context, products->dtype, 2 * x + w + y + rest, &d_in));
  void *other = cuda_offset(d_in, x), *weight = cuda_offset(other, x), *d_out = cuda_offset(weight, w);
  void *workspace = cuda_offset(d_out, y);
  TRY_CUDA(cudaMemcpyAsync(old, d_in, (size_t)count * size, cudaMemcpyDeviceToHost, context->stream));
  TRY(cudnn_plan_run(context, products->data, other, weight, d_out, workspace));
  TRY(cudnn_plan_run(context, products->data_add, d_in, weight, d_out, workspace));
  TRY_CUDA(cudaMemcpyAsync(sum, d_in, (size_t)count * size, cudaMemcpyDeviceToHost, context->stream));
  TRY_CUDA(cudaMemcpyAsync(plain, other, (size_t)count * size, cudaMemcpyDeviceToHost, context->stream));
  TRY_CUDA(cudaStreamSynchronize(context->stream));
  double left = 0, whole = 0;
  for (int64_t i = 0; i < count; i++) {
    double before = (double)element(products->dtype, old, i);
    left += before *
            ((double)element(products->dtype, sum, i) - before - (double)element(products->dtype, plain, i));
    whole += before * before;
  }
  *holds = fabs(left) < 0.1 * whole; /* false for NaN */
  return STATUS_OK;
}

/* The same, asked once of plans that are kept. */
static enum status add_is_sound(struct cuda_context *context, const struct conv_problem *problem,
                                const struct conv_products *products, bool *holds) {
  struct choice_key key = {.kind = CUDA_CHOICE_ADDS, .data = problem, .bytes = sizeof *problem};
  size_t bytes;
  const uint64_t *known = choices_find(&context->choices, key, &bytes);
  if (known && bytes == sizeof *known && cudnn_plan_kept(products->data) &&
      cudnn_plan_kept(products->data_add)) {
    *holds = *known == 1;
    return STATUS_OK;
  }
  TRY(add_holds(context, problem, products, holds));
  uint64_t value = *holds;
  if (known || context->op.deterministic) return STATUS_OK;
  return choices_add(&context->choices, key, &value, sizeof value, NULL, 0);
}

/* An adding plan is worth it unless it is slower than the plain one and an addition (three passes over d_in
 * at about 3 TB/s) are together. */
static bool add_pays(const struct conv_products *products) {
  float pass = 3.0f * (float)products->in_count * (float)dtype_bytes(products->dtype) / 3e9f + 0.003f;
  return cudnn_plan_milliseconds(products->data_add) <= cudnn_plan_milliseconds(products->data) + pass;
}

static const float CONVERSION = 0.003f; /* milliseconds to convert a filter's gradient */

static void choose_makers(struct conv_products *products) {
  const struct conv_args *shape = &products->shape;
  if (products->dtype != DTYPE_BF16) return;
  if (kernel_thin_fits(shape)) {
    products->forward_by = products->filter_by = CONV_THIN;
  } else if (kernel_point_fits(shape)) {
    products->forward_by = products->data_by = products->filter_by = CONV_POINT;
  } else {
    if (kernel_stage_fits(shape)) products->forward_by = products->data_by = CONV_STAGE;
    if (kernel_strided_fits(shape)) products->data_by = CONV_STRIDED;
    if (kernel_filter_fits(shape)) products->filter_by = CONV_FILTER;
  }
}

static enum status find_data(struct cuda_context *context, struct conv_problem problem,
                             struct conv_products *products) {
  problem.kind = CONV_BACKWARD_DATA;
  TRY(cudnn_plan_find(context, &problem, &products->data));
  problem.add = 1;
  TRY(cudnn_plan_find(context, &problem, &products->data_add));
  if (!products->data_add) return STATUS_OK;
  bool holds = false;
  TRY(add_is_sound(context, &problem, products, &holds));
  if (!holds || !add_pays(products)) products->data_add = NULL;
  return STATUS_OK;
}

static enum status find_filter(struct cuda_context *context, struct conv_problem problem,
                               struct conv_products *products) {
  problem.kind = CONV_BACKWARD_FILTER;
  problem.result = DTYPE_F32;
  TRY(cudnn_plan_find(context, &problem, &products->filter));
  if (problem.dtype == DTYPE_F32) return STATUS_OK;
  problem.result = problem.dtype;
  TRY(cudnn_plan_find(context, &problem, &products->filter_low));
  /* Rounding costs accuracy: fp32 unless it is slower than rounding and conversion. */
  if (products->filter &&
      cudnn_plan_milliseconds(products->filter) > cudnn_plan_milliseconds(products->filter_low) + CONVERSION)
    products->filter = NULL;
  if (products->filter) products->filter_low = NULL;
  return STATUS_OK;
}

/* Bytes that an array in `dtype` in front of a plan's own workspace takes. */
static size_t array_bytes(const struct conv_products *products, int64_t count) {
  return cuda_align((size_t)count * dtype_bytes(products->dtype));
}

static size_t data_workspace(const struct conv_products *products) {
  if (products->data_by != CONV_LIBRARY) return 0;
  size_t bytes = cudnn_plan_workspace(products->data_add);
  most(&bytes, cudnn_plan_workspace(products->data) +
                   (products->data_add ? 0 : array_bytes(products, products->in_count)));
  return bytes;
}

static size_t filter_workspace(const struct conv_products *products) {
  const struct conv_args *shape = &products->shape;
  switch (products->filter_by) {
  case CONV_THIN:
    return kernel_thin_workspace(shape) * sizeof(float);
  case CONV_FILTER:
    return kernel_filter_workspace(shape) * sizeof(float);
  case CONV_POINT:
    return kernel_point_workspace(shape) * sizeof(float);
  default:
    return products->filter
               ? cudnn_plan_workspace(products->filter)
               : cudnn_plan_workspace(products->filter_low) + array_bytes(products, products->weight_count);
  }
}

enum status conv_products_create(struct cuda_context *context, const struct tensor *in,
                                 const struct tensor *out, const struct conv2d_attr *attr, bool filter,
                                 bool data, struct conv_products *products, size_t *workspace) {
  struct conv_problem problem;
  memset(&problem, 0, sizeof problem); /* padding too: problems are compared as bytes */
  problem.kind = CONV_FORWARD;
  problem.dtype = problem.result = (int32_t)in->dtype;
  problem.n = in->dim[0];
  problem.h = in->dim[1];
  problem.w = in->dim[2];
  problem.c = in->dim[3];
  problem.filters = attr->filters;
  problem.kernel_h = attr->kernel_h;
  problem.kernel_w = attr->kernel_w;
  problem.out_h = out->dim[1];
  problem.out_w = out->dim[2];
  problem.stride = attr->stride;
  problem.pad = attr->pad;
  *products = (struct conv_products){.dtype = in->dtype,
                                     .in_count = tensor_count(in),
                                     .weight_count = (int64_t)attr->filters * attr->kernel_h *
                                                     attr->kernel_w * in->dim[3]};
  products->shape = (struct conv_args){.n = problem.n,
                                       .h = problem.h,
                                       .w = problem.w,
                                       .c = problem.c,
                                       .filters = problem.filters,
                                       .kernel_h = problem.kernel_h,
                                       .kernel_w = problem.kernel_w,
                                       .out_h = problem.out_h,
                                       .out_w = problem.out_w,
                                       .stride = problem.stride,
                                       .pad = problem.pad};
  choose_makers(products);
  if (products->forward_by == CONV_LIBRARY) TRY(cudnn_plan_find(context, &problem, &products->forward));
  *workspace = cudnn_plan_workspace(products->forward);
  if (data && products->data_by == CONV_LIBRARY) TRY(find_data(context, problem, products));
  if (data) most(workspace, data_workspace(products));
  if (filter && products->filter_by == CONV_LIBRARY) TRY(find_filter(context, problem, products));
  if (filter) most(workspace, filter_workspace(products));
  return STATUS_OK;
}

/* cuDNN takes pointers to what it only reads as void * too. */
static void *unconst(const void *pointer) {
  union {
    const void *in;
    void *out;
  } same = {.in = pointer};
  return same.out;
}

struct conv_moments conv_moments(const struct conv_products *products) {
  struct conv_moments none = {0, 0};
  if (products->forward_by == CONV_THIN) return kernel_thin_moments(&products->shape);
  return products->forward_by == CONV_STAGE ? kernel_stage_moments(&products->shape) : none;
}

enum status conv_forward(struct cuda_context *context, const struct conv_products *products, const void *in,
                         const void *weight, void *out, float *part, void *workspace) {
  const struct conv_args *shape = &products->shape;
  switch (products->forward_by) {
  case CONV_THIN:
    TRY_CUDA(kernel_thin_forward(context->stream, shape, in, weight, out, part));
    return STATUS_OK;
  case CONV_STAGE:
    TRY_CUDA(kernel_stage_forward(context->stream, shape, in, weight, out, part));
    return STATUS_OK;
  case CONV_POINT:
    TRY_CUDA(kernel_point_forward(context->stream, shape, in, weight, out));
    return STATUS_OK;
  default:
    return cudnn_plan_run(context, products->forward, unconst(in), unconst(weight), out, workspace);
  }
}

/* To workspace, and from there added. */
static enum status add_data(struct cuda_context *context, const struct conv_products *products, void *d_out,
                            void *weight, void *d_in, void *workspace) {
  void *rest = cuda_offset(workspace, array_bytes(products, products->in_count));
  TRY(cudnn_plan_run(context, products->data, workspace, weight, d_out, rest));
  TRY_CUDA(kernel_add(context->stream, products->dtype, d_in, workspace, d_in, products->in_count));
  return STATUS_OK;
}

enum status conv_backward_data(struct cuda_context *context, const struct conv_products *products,
                               const void *d_out, const void *weight, void *d_in, bool add, void *workspace) {
  const struct conv_args *shape = &products->shape;
  void *w = unconst(weight), *y = unconst(d_out);
  switch (products->data_by) {
  case CONV_STAGE:
    TRY_CUDA(kernel_stage_data(context->stream, shape, d_out, weight, d_in, add));
    return STATUS_OK;
  case CONV_STRIDED:
    TRY_CUDA(kernel_strided_data(context->stream, shape, d_out, weight, d_in, add));
    return STATUS_OK;
  case CONV_POINT:
    TRY_CUDA(kernel_point_data(context->stream, shape, d_out, weight, d_in, add));
    return STATUS_OK;
  default:
    if (!add) return cudnn_plan_run(context, products->data, d_in, w, y, workspace);
    if (!products->data_add) return add_data(context, products, y, w, d_in, workspace);
    return cudnn_plan_run(context, products->data_add, d_in, w, y, workspace);
  }
}

/* Rounded to workspace, and from there converted. */
static enum status convert_filter(struct cuda_context *context, const struct conv_products *products,
                                  void *in, void *d_out, float *d_weight, void *workspace) {
  void *rest = cuda_offset(workspace, array_bytes(products, products->weight_count));
  TRY(cudnn_plan_run(context, products->filter_low, in, workspace, d_out, rest));
  TRY_CUDA(kernel_convert(context->stream, products->dtype, workspace, DTYPE_F32, d_weight,
                          products->weight_count));
  return STATUS_OK;
}

enum status conv_backward_filter(struct cuda_context *context, const struct conv_products *products,
                                 const void *in, const void *d_out, float *d_weight, void *workspace) {
  const struct conv_args *shape = &products->shape;
  void *x = unconst(in), *y = unconst(d_out);
  switch (products->filter_by) {
  case CONV_THIN:
    TRY_CUDA(kernel_thin_filter(context->stream, shape, in, d_out, d_weight, workspace, context->tickets));
    return STATUS_OK;
  case CONV_FILTER:
    TRY_CUDA(kernel_filter(context->stream, shape, in, d_out, d_weight, workspace));
    return STATUS_OK;
  case CONV_POINT:
    TRY_CUDA(kernel_point_filter(context->stream, shape, in, d_out, d_weight, workspace));
    return STATUS_OK;
  default:
    if (!products->filter) return convert_filter(context, products, x, y, d_weight, workspace);
    return cudnn_plan_run(context, products->filter, x, d_weight, y, workspace);
  }
}

bool conv_norm_fits(const struct conv_products *products, const struct norm_args *norm) {
  return products->filter_by == CONV_THIN && kernel_thin_norm_fits(&products->shape, norm);
}

size_t conv_norm_workspace(const struct conv_products *products) {
  return products->filter_by == CONV_THIN ? kernel_thin_norm_workspace(&products->shape) * sizeof(float) : 0;
}

enum status conv_norm_filter(struct cuda_context *context, const struct conv_products *products,
                             const struct norm_args *norm, const void *in, float *d_weight) {
  TRY_CUDA(kernel_thin_norm_filter(context->stream, &products->shape, norm, in, d_weight));
  return STATUS_OK;
}
