/* oneDNN's descriptors of convolutions and matrix products; see product_dnnl.h. 2.x and 3.x differ in how
 * they are made. */
#include "model/ops/product_dnnl.h"

#if DNNL_VERSION_MAJOR >= 3
#define layout_tag dnnl_memory_desc_create_with_tag
#define layout_strides dnnl_memory_desc_create_with_strides
#else
#define layout_tag dnnl_memory_desc_init_by_tag
#define layout_strides dnnl_memory_desc_init_by_strides
#endif

void product_layouts_destroy(struct product_layouts *layouts) {
#if DNNL_VERSION_MAJOR >= 3
  dnnl_memory_desc_t all[] = {layouts->in, layouts->any, layouts->plain, layouts->bias, layouts->out};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (all[i]) dnnl_memory_desc_destroy(all[i]);
#else
  (void)layouts;
#endif
}

enum status product_layouts_create(const struct product_cpu_shape *shape, dnnl_data_type_t type,
                                   bool weights_f32, struct product_layouts *layouts) {
  const struct conv2d_attr *conv = &shape->conv;
  dnnl_data_type_t weight_type = weights_f32 ? dnnl_f32 : type;
  dnnl_dims_t bias = {conv->filters};
  TRY_DNNL(layout_tag(&layouts->bias, 1, bias, dnnl_f32, dnnl_a));
  if (shape->matrix) {
    dnnl_dims_t in = {shape->batch, shape->in_c}, weight = {conv->filters, shape->in_c};
    dnnl_dims_t out = {shape->batch, conv->filters};
    TRY_DNNL(layout_tag(&layouts->in, 2, in, type, dnnl_ab));
    TRY_DNNL(layout_tag(&layouts->any, 2, weight, weight_type, dnnl_format_tag_any));
    TRY_DNNL(layout_tag(&layouts->plain, 2, weight, weight_type, dnnl_ab));
    TRY_DNNL(layout_tag(&layouts->out, 2, out, type, dnnl_ab));
    return STATUS_OK;
  }
  int64_t c = shape->in_c, s = conv->kernel_w, r = conv->kernel_h;
  dnnl_dims_t in = {shape->batch, c, shape->in_h, shape->in_w}, weight = {conv->filters, c, r, s};
  dnnl_dims_t out = {shape->batch, conv->filters, shape->out_h, shape->out_w};
  dnnl_dims_t krsc = {r * s * c, 1, s * c, c};
  TRY_DNNL(layout_tag(&layouts->in, 4, in, type, dnnl_nhwc));
  TRY_DNNL(layout_tag(&layouts->any, 4, weight, weight_type, dnnl_format_tag_any));
  TRY_DNNL(layout_strides(&layouts->plain, 4, weight, weight_type, krsc));
  TRY_DNNL(layout_tag(&layouts->out, 4, out, type, dnnl_nhwc));
  return STATUS_OK;
}

static dnnl_prop_kind_t prop_kind(enum product_cpu_pass pass) {
  return pass == PRODUCT_INFERENCE ? dnnl_forward_inference : dnnl_forward_training;
}

/* Strides, dilation and padding of a convolution; the right and lower padding may differ from `pad`, since a
 * last row that no window reaches is cut off. */
struct windows {
  dnnl_dims_t stride, dilation, left, right;
};
static struct windows windows(const struct product_cpu_shape *shape) {
  const struct conv2d_attr *conv = &shape->conv;
  int64_t right_h = (shape->out_h - 1) * conv->stride + conv->kernel_h - shape->in_h - conv->pad;
  int64_t right_w = (shape->out_w - 1) * conv->stride + conv->kernel_w - shape->in_w - conv->pad;
  return (struct windows){
      .stride = {conv->stride, conv->stride}, .left = {conv->pad, conv->pad}, .right = {right_h, right_w}};
}

#if DNNL_VERSION_MAJOR >= 3
static dnnl_status_t describe_first(dnnl_primitive_desc_t *desc, dnnl_engine_t engine,
                                    const struct product_cpu_shape *shape, enum product_cpu_pass pass,
                                    const struct product_layouts *l, dnnl_primitive_desc_t hint,
                                    dnnl_primitive_attr_t attr) {
  struct windows w = windows(shape);
  dnnl_alg_kind_t direct = dnnl_convolution_direct;
  dnnl_memory_desc_t bias = shape->conv.bias ? l->bias : NULL;
  switch (pass) {
  case PRODUCT_DATA:
    return shape->matrix
               ? dnnl_inner_product_backward_data_primitive_desc_create(desc, engine, l->in, l->any, l->out,
                                                                        hint, attr)
               : dnnl_convolution_backward_data_primitive_desc_create(desc, engine, direct, l->in, l->any,
                                                                      l->out, w.stride, w.dilation, w.left,
                                                                      w.right, hint, attr);
  case PRODUCT_WEIGHTS:
    return shape->matrix
               ? dnnl_inner_product_backward_weights_primitive_desc_create(desc, engine, l->in, l->any, bias,
                                                                           l->out, hint, attr)
               : dnnl_convolution_backward_weights_primitive_desc_create(desc, engine, direct, l->in, l->any,
                                                                         bias, l->out, w.stride, w.dilation,
                                                                         w.left, w.right, hint, attr);
  default:
    return shape->matrix
               ? dnnl_inner_product_forward_primitive_desc_create(desc, engine, prop_kind(pass), l->in,
                                                                  l->any, bias, l->out, attr)
               : dnnl_convolution_forward_primitive_desc_create(desc, engine, prop_kind(pass), direct, l->in,
                                                                l->any, bias, l->out, w.stride, w.dilation,
                                                                w.left, w.right, attr);
  }
}

dnnl_status_t product_describe(dnnl_primitive_desc_t *desc, dnnl_engine_t engine,
                               const struct product_cpu_shape *shape, enum product_cpu_pass pass,
                               const struct product_layouts *l, dnnl_primitive_desc_t hint,
                               dnnl_primitive_attr_t attr, int skip) {
  dnnl_status_t status = describe_first(desc, engine, shape, pass, l, hint, attr);
  for (; skip > 0 && status == dnnl_success; skip--) status = dnnl_primitive_desc_next_impl(*desc);
  return status;
}
#else
static dnnl_status_t choose(dnnl_primitive_desc_t *desc, const void *op, dnnl_engine_t engine,
                            dnnl_primitive_desc_t hint, dnnl_primitive_attr_t attr, int skip) {
  dnnl_primitive_desc_iterator_t iterator;
  dnnl_status_t status = dnnl_primitive_desc_iterator_create(&iterator, op, attr, engine, hint);
  if (status != dnnl_success) return status;
  for (; skip > 0 && status == dnnl_success; skip--) status = dnnl_primitive_desc_iterator_next(iterator);
  if (status == dnnl_success) {
    *desc = dnnl_primitive_desc_iterator_fetch(iterator);
    if (!*desc) status = dnnl_unimplemented;
  }
  dnnl_primitive_desc_iterator_destroy(iterator);
  return status;
}

static dnnl_status_t describe_matrix(dnnl_inner_product_desc_t *op, enum product_cpu_pass pass,
                                     const struct product_layouts *l, const dnnl_memory_desc_t *bias) {
  if (pass == PRODUCT_DATA) return dnnl_inner_product_backward_data_desc_init(op, &l->in, &l->any, &l->out);
  if (pass == PRODUCT_WEIGHTS)
    return dnnl_inner_product_backward_weights_desc_init(op, &l->in, &l->any, bias, &l->out);
  return dnnl_inner_product_forward_desc_init(op, prop_kind(pass), &l->in, &l->any, bias, &l->out);
}

static dnnl_status_t describe_convolution(dnnl_convolution_desc_t *op, enum product_cpu_pass pass,
                                          const struct product_layouts *l, const dnnl_memory_desc_t *bias,
                                          const struct windows *w) {
  dnnl_alg_kind_t direct = dnnl_convolution_direct;
  if (pass == PRODUCT_DATA)
    return dnnl_convolution_backward_data_desc_init(op, direct, &l->in, &l->any, &l->out, w->stride, w->left,
                                                    w->right);
  if (pass == PRODUCT_WEIGHTS)
    return dnnl_convolution_backward_weights_desc_init(op, direct, &l->in, &l->any, bias, &l->out, w->stride,
                                                       w->left, w->right);
  return dnnl_convolution_forward_desc_init(op, prop_kind(pass), direct, &l->in, &l->any, bias, &l->out,
                                            w->stride, w->left, w->right);
}

dnnl_status_t product_describe(dnnl_primitive_desc_t *desc, dnnl_engine_t engine,
                               const struct product_cpu_shape *shape, enum product_cpu_pass pass,
                               const struct product_layouts *l, dnnl_primitive_desc_t hint,
                               dnnl_primitive_attr_t attr, int skip) {
  const dnnl_memory_desc_t *bias = shape->conv.bias ? &l->bias : NULL;
  if (shape->matrix) {
    dnnl_inner_product_desc_t op;
    dnnl_status_t status = describe_matrix(&op, pass, l, bias);
    return status ? status : choose(desc, &op, engine, hint, attr, skip);
  }
  struct windows w = windows(shape);
  dnnl_convolution_desc_t op;
  dnnl_status_t status = describe_convolution(&op, pass, l, bias, &w);
  return status ? status : choose(desc, &op, engine, hint, attr, skip);
}
#endif
