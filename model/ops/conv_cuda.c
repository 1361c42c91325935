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

static enum status find_training(struct cuda_context *context, struct conv_problem problem,
                                 struct conv_products *products) {
  if (products->point) return STATUS_OK;
  problem.kind = CONV_BACKWARD_DATA;
  if (!products->stage && !products->half) {
    TRY(cudnn_plan_find(context, &problem, &products->data));
    problem.add = 1;
    TRY(cudnn_plan_find(context, &problem, &products->data_add));
  }
  if (products->data_add) {
    bool holds = false;
    TRY(add_is_sound(context, &problem, products, &holds));
    if (!holds || !add_pays(products)) products->data_add = NULL;
  }
  if (products->thin || products->own_filter) return STATUS_OK;
  problem.add = 0;
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

enum status conv_products_create(struct cuda_context *context, const struct tensor *in,
                                 const struct tensor *out, const struct conv2d_attr *attr, bool training,
                                 struct conv_products *products, size_t *workspace) {
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
  products->shape = (struct thin_args){.n = problem.n,
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
  products->thin = in->dtype == DTYPE_BF16 && kernel_thin_fits(&products->shape);
  products->stage = in->dtype == DTYPE_BF16 && kernel_stage_fits(&products->shape);
  products->half = in->dtype == DTYPE_BF16 && kernel_half_fits(&products->shape);
  products->own_filter = in->dtype == DTYPE_BF16 && kernel_filter_fits(&products->shape);
  products->point = in->dtype == DTYPE_BF16 && !products->thin && kernel_point_fits(&products->shape);
  *workspace = 0;
  if (!products->thin && !products->stage && !products->point)
    TRY(cudnn_plan_find(context, &problem, &products->forward));
  most(workspace, cudnn_plan_workspace(products->forward));
  if (!training) return STATUS_OK;
  TRY(find_training(context, problem, products));
  if (products->point) {
    most(workspace, kernel_point_workspace(&products->shape) * sizeof(float));
    return STATUS_OK;
  }
  most(workspace,
       cudnn_plan_workspace(products->data) +
           (products->data_add ? 0 : cuda_align((size_t)products->in_count * dtype_bytes(in->dtype))));
  most(workspace, cudnn_plan_workspace(products->data_add));
  if (products->own_filter) most(workspace, kernel_filter_workspace(&products->shape) * sizeof(float));
  if (products->thin) most(workspace, kernel_thin_workspace(&products->shape) * sizeof(float));
  most(workspace, cudnn_plan_workspace(products->filter));
  if (products->filter_low)
    most(workspace, cudnn_plan_workspace(products->filter_low) +
                        cuda_align((size_t)products->weight_count * dtype_bytes(in->dtype)));
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

int conv_parts(const struct conv_products *products) {
  return products->stage ? kernel_stage_parts(&products->shape) : 0;
}

enum status conv_forward(struct cuda_context *context, const struct conv_products *products, const void *in,
                         const void *weight, void *out, float *part, void *workspace) {
  if (products->stage) {
    TRY_CUDA(kernel_stage_forward(context->stream, &products->shape, in, weight, out, part));
    return STATUS_OK;
  }
  if (products->thin) {
    TRY_CUDA(kernel_thin_forward(context->stream, &products->shape, in, weight, out));
    return STATUS_OK;
  }
  if (products->point) {
    TRY_CUDA(kernel_point_forward(context->stream, &products->shape, in, weight, out));
    return STATUS_OK;
  }
  return cudnn_plan_run(context, products->forward, unconst(in), unconst(weight), out, workspace);
}

enum status conv_backward_data(struct cuda_context *context, const struct conv_products *products,
                               const void *d_out, const void *weight, void *d_in, bool add, void *workspace) {
  void *w = unconst(weight), *y = unconst(d_out);
  if (products->stage) {
    TRY_CUDA(kernel_stage_data(context->stream, &products->shape, d_out, weight, d_in, add));
    return STATUS_OK;
  }
  if (products->half) {
    TRY_CUDA(kernel_half_data(context->stream, &products->shape, d_out, weight, d_in, add));
    return STATUS_OK;
  }
  if (products->point) {
    TRY_CUDA(kernel_point_data(context->stream, &products->shape, d_out, weight, d_in, add));
    return STATUS_OK;
  }
  if (!add) return cudnn_plan_run(context, products->data, d_in, w, y, workspace);
  if (products->data_add) return cudnn_plan_run(context, products->data_add, d_in, w, y, workspace);
  void *rest = cuda_offset(workspace, cuda_align((size_t)products->in_count * dtype_bytes(products->dtype)));
  TRY(cudnn_plan_run(context, products->data, workspace, w, y, rest));
  TRY_CUDA(kernel_add(context->stream, products->dtype, d_in, workspace, d_in, products->in_count));
  return STATUS_OK;
}

enum status conv_backward_filter(struct cuda_context *context, const struct conv_products *products,
                                 const void *in, const void *d_out, float *d_weight, void *workspace) {
  void *x = unconst(in), *y = unconst(d_out);
  if (products->thin) {
    TRY_CUDA(kernel_thin_filter(context->stream, &products->shape, in, d_out, d_weight, workspace,
                                context->tickets));
    return STATUS_OK;
  }
  if (products->own_filter) {
    TRY_CUDA(kernel_filter(context->stream, &products->shape, in, d_out, d_weight, workspace));
    return STATUS_OK;
  }
  if (products->point) {
    TRY_CUDA(kernel_point_filter(context->stream, &products->shape, in, d_out, d_weight, workspace));
    return STATUS_OK;
  }
  if (products->filter) return cudnn_plan_run(context, products->filter, x, d_weight, y, workspace);
  void *rest =
      cuda_offset(workspace, cuda_align((size_t)products->weight_count * dtype_bytes(products->dtype)));
  TRY(cudnn_plan_run(context, products->filter_low, x, workspace, y, rest));
  TRY_CUDA(kernel_convert(context->stream, products->dtype, workspace, DTYPE_F32, d_weight,
                          products->weight_count));
  return STATUS_OK;
}
