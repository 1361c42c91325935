/* Convolutions and matrix products by oneDNN 2.x or 3.x; the two differ in how descriptors are made (first
 * part). */
#include "model/ops/product_cpu.h"

#include <dnnl.h>
#include <stdlib.h>
#include <string.h>

#define TRY_DNNL(call)                                                                                       \
  do {                                                                                                       \
    dnnl_status_t dnnl_result = (call);                                                                      \
    if (dnnl_result != dnnl_success)                                                                         \
      return RAISE(dnnl_result == dnnl_out_of_memory ? STATUS_INPUT : STATUS_INTERNAL,                       \
                   "oneDNN: %s failed with status %d", #call, (int)dnnl_result);                             \
  } while (0)

enum { SLOT_IN, SLOT_WEIGHT, SLOT_PLAIN, SLOT_BIAS, SLOT_OUT, SLOT_SCRATCH, SLOT_COUNT };

struct product_cpu {
  enum product_cpu_pass pass;
  bool bias;
  dnnl_primitive_t primitive;
  dnnl_primitive_t reorder;         /* of the weights, NULL: not needed */
  dnnl_memory_t memory[SLOT_COUNT]; /* SLOT_PLAIN: the weights as K,R,S,C, if they are reordered */
  size_t weight_bytes;              /* of the reordered weights, at the start of the workspace */
  const char *name;
};

/* ---- descriptors: oneDNN 2.x has them by value, 3.x behind pointers
 * ---------------------------------------------- */

/* in, weight as `any`, weight as K,R,S,C, bias, out */
struct layouts {
  dnnl_memory_desc_t in, any, plain, bias, out;
};

#if DNNL_VERSION_MAJOR >= 3
#define LAYOUT(desc) (desc)
#define LAYOUT_VIEW const_dnnl_memory_desc_t
#define layout_tag dnnl_memory_desc_create_with_tag
#define layout_strides dnnl_memory_desc_create_with_strides
#else
#define LAYOUT(desc) (&(desc))
#define LAYOUT_VIEW const dnnl_memory_desc_t *
#define layout_tag dnnl_memory_desc_init_by_tag
#define layout_strides dnnl_memory_desc_init_by_strides
#endif

static void layouts_destroy(struct layouts *layouts) {
#if DNNL_VERSION_MAJOR >= 3
  dnnl_memory_desc_t all[] = {layouts->in, layouts->any, layouts->plain, layouts->bias, layouts->out};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (all[i]) dnnl_memory_desc_destroy(all[i]);
#else
  (void)layouts;
#endif
}

static enum status layouts_create(const struct product_cpu_shape *shape, dnnl_data_type_t type,
                                  bool weights_f32, struct layouts *layouts) {
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

/* describe: oneDNN's implementation number `skip` for a pass, in its order of preference. */
#if DNNL_VERSION_MAJOR >= 3
static dnnl_status_t describe_first(dnnl_primitive_desc_t *desc, dnnl_engine_t engine,
                                    const struct product_cpu_shape *shape, enum product_cpu_pass pass,
                                    const struct layouts *l, dnnl_primitive_desc_t hint,
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

static dnnl_status_t describe(dnnl_primitive_desc_t *desc, dnnl_engine_t engine,
                              const struct product_cpu_shape *shape, enum product_cpu_pass pass,
                              const struct layouts *l, dnnl_primitive_desc_t hint, dnnl_primitive_attr_t attr,
                              int skip) {
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
                                     const struct layouts *l, const dnnl_memory_desc_t *bias) {
  if (pass == PRODUCT_DATA) return dnnl_inner_product_backward_data_desc_init(op, &l->in, &l->any, &l->out);
  if (pass == PRODUCT_WEIGHTS)
    return dnnl_inner_product_backward_weights_desc_init(op, &l->in, &l->any, bias, &l->out);
  return dnnl_inner_product_forward_desc_init(op, prop_kind(pass), &l->in, &l->any, bias, &l->out);
}

static dnnl_status_t describe_convolution(dnnl_convolution_desc_t *op, enum product_cpu_pass pass,
                                          const struct layouts *l, const dnnl_memory_desc_t *bias,
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

static dnnl_status_t describe(dnnl_primitive_desc_t *desc, dnnl_engine_t engine,
                              const struct product_cpu_shape *shape, enum product_cpu_pass pass,
                              const struct layouts *l, dnnl_primitive_desc_t hint, dnnl_primitive_attr_t attr,
                              int skip) {
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

/* ---- creation
 * ---------------------------------------------------------------------------------------------------- */

static const char *pass_name(enum product_cpu_pass pass) {
  static const char *const names[] = {"inference", "forward", "backward of data", "backward of weights"};
  return names[pass];
}

/* oneDNN 2.6's bf16 1x1 convolution gives wrong gradients of data for an odd number of filters, depending on
 * the number of pixels (60: wrong, 50: right). */
static bool known_wrong(const char *name, const struct product_cpu_shape *shape, enum product_cpu_pass pass) {
  return pass == PRODUCT_DATA && shape->conv.filters % 2 == 1 && strncmp(name, "jit_bf16_1x1", 12) == 0;
}

/* The first implementation that is not known to be wrong; the reference implementation is refused. */
static enum status choose_implementation(const struct op_cpu_context *context, struct product_cpu *product,
                                         const struct product_cpu_shape *shape, const struct layouts *layouts,
                                         dnnl_primitive_desc_t hint, dnnl_primitive_attr_t attr,
                                         dnnl_primitive_desc_t *desc) {
  for (int skip = 0;; skip++) {
    dnnl_status_t result = describe(desc, context->engine, shape, product->pass, layouts, hint, attr, skip);
    if (result != dnnl_success)
      return RAISE(STATUS_INTERNAL, "oneDNN has no %s for this shape and type (status %d)",
                   pass_name(product->pass), (int)result);
    TRY_DNNL(dnnl_primitive_desc_query(*desc, dnnl_query_impl_info_str, 0, &product->name));
    if (!known_wrong(product->name, shape, product->pass)) break;
    dnnl_primitive_desc_destroy(*desc);
    *desc = NULL;
  }
  if (strncmp(product->name, "ref", 3) == 0)
    return RAISE(STATUS_INTERNAL,
                 "oneDNN has only its reference implementation '%s' for the %s of a %s of "
                 "%lldx%lldx%lldx%lld, %d filters %dx%d; it would be hundreds of times slower",
                 product->name, pass_name(product->pass), shape->matrix ? "matrix product" : "convolution",
                 (long long)shape->batch, (long long)shape->in_h, (long long)shape->in_w,
                 (long long)shape->in_c, shape->conv.filters, shape->conv.kernel_h, shape->conv.kernel_w);
  return STATUS_OK;
}

/* The reorder between the weights' two layouts, if the primitive chose another than K,R,S,C. */
static enum status create_reorder(const struct op_cpu_context *context, struct product_cpu *product,
                                  LAYOUT_VIEW chosen, LAYOUT_VIEW plain) {
  if (dnnl_memory_desc_equal(chosen, plain)) return STATUS_OK;
  bool out = product->pass == PRODUCT_WEIGHTS;
  dnnl_engine_t engine = context->engine;
  dnnl_primitive_desc_t desc;
  TRY_DNNL(dnnl_memory_create(&product->memory[SLOT_PLAIN], plain, engine, DNNL_MEMORY_NONE));
  TRY_DNNL(dnnl_reorder_primitive_desc_create(&desc, out ? chosen : plain, engine, out ? plain : chosen,
                                              engine, NULL));
  dnnl_status_t status = dnnl_primitive_create(&product->reorder, desc);
  dnnl_primitive_desc_destroy(desc);
  TRY_DNNL(status);
  product->weight_bytes = op_cpu_align(dnnl_memory_desc_get_size(chosen));
  return STATUS_OK;
}

static enum status create_memory(const struct op_cpu_context *context, struct product_cpu *product,
                                 dnnl_primitive_desc_t desc, const struct layouts *layouts,
                                 size_t *workspace) {
  dnnl_query_t query = product->pass == PRODUCT_WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
  LAYOUT_VIEW chosen = dnnl_primitive_desc_query_md(desc, query, 0);
  LAYOUT_VIEW scratch = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
  dnnl_engine_t engine = context->engine;
  TRY_DNNL(dnnl_memory_create(&product->memory[SLOT_IN], LAYOUT(layouts->in), engine, DNNL_MEMORY_NONE));
  TRY_DNNL(dnnl_memory_create(&product->memory[SLOT_OUT], LAYOUT(layouts->out), engine, DNNL_MEMORY_NONE));
  TRY_DNNL(dnnl_memory_create(&product->memory[SLOT_BIAS], LAYOUT(layouts->bias), engine, DNNL_MEMORY_NONE));
  TRY_DNNL(dnnl_memory_create(&product->memory[SLOT_WEIGHT], chosen, engine, DNNL_MEMORY_NONE));
  TRY_DNNL(dnnl_memory_create(&product->memory[SLOT_SCRATCH], scratch, engine, DNNL_MEMORY_NONE));
  TRY(create_reorder(context, product, chosen, LAYOUT(layouts->plain)));
  size_t bytes = product->weight_bytes + dnnl_memory_desc_get_size(scratch);
  if (bytes > *workspace) *workspace = bytes;
  return STATUS_OK;
}

static enum status create_primitive(const struct op_cpu_context *context, struct product_cpu *product,
                                    const struct product_cpu_shape *shape, const struct layouts *layouts,
                                    dnnl_primitive_attr_t attr, size_t *workspace) {
  enum status status = STATUS_OK;
  enum product_cpu_pass pass = product->pass;
  dnnl_primitive_desc_t hint = NULL, desc = NULL;
  if (pass == PRODUCT_DATA || pass == PRODUCT_WEIGHTS) {
    struct layouts forward = {0}; /* the forward pass has all its arrays in the compute type */
    dnnl_data_type_t type = context->base.compute == DTYPE_BF16 ? dnnl_bf16 : dnnl_f32;
    status = layouts_create(shape, type, false, &forward);
    dnnl_status_t result = dnnl_success;
    if (status == STATUS_OK)
      result = describe(&hint, context->engine, shape, PRODUCT_FORWARD, &forward, NULL, attr, 0);
    layouts_destroy(&forward);
    TRY(status);
    TRY_DNNL(result);
  }
  TRY_OUT(choose_implementation(context, product, shape, layouts, hint, attr, &desc));
  if (dnnl_primitive_create(&product->primitive, desc) != dnnl_success) {
    status = RAISE(STATUS_INTERNAL, "oneDNN cannot create the primitive '%s'", product->name);
    goto out;
  }
  TRY_OUT(create_memory(context, product, desc, layouts, workspace));
out:
  if (desc) dnnl_primitive_desc_destroy(desc);
  if (hint) dnnl_primitive_desc_destroy(hint);
  return status;
}

enum status product_cpu_create(const struct op_cpu_context *context, const struct product_cpu_shape *shape,
                               enum product_cpu_pass pass, struct product_cpu **product, size_t *workspace) {
  enum status status = STATUS_OK;
  dnnl_data_type_t type = context->base.compute == DTYPE_BF16 ? dnnl_bf16 : dnnl_f32;
  dnnl_primitive_attr_t attr = NULL;
  struct layouts layouts = {0};
  struct product_cpu *made = calloc(1, sizeof *made);
  if (!made) return RAISE(STATUS_INPUT, "out of memory");
  made->pass = pass;
  made->bias = shape->conv.bias && pass != PRODUCT_DATA;
  TRY_OUT(layouts_create(shape, type, pass == PRODUCT_WEIGHTS, &layouts));
  if (dnnl_primitive_attr_create(&attr) != dnnl_success ||
      dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) != dnnl_success) {
    status = RAISE(STATUS_INTERNAL, "oneDNN cannot create primitive attributes");
    goto out;
  }
  TRY_OUT(create_primitive(context, made, shape, &layouts, attr, workspace));
  *product = made;
  made = NULL;
out:
  if (attr) dnnl_primitive_attr_destroy(attr);
  layouts_destroy(&layouts);
  product_cpu_destroy(made);
  return status;
}

void product_cpu_destroy(struct product_cpu *product) {
  if (!product) return;
  if (product->primitive) dnnl_primitive_destroy(product->primitive);
  if (product->reorder) dnnl_primitive_destroy(product->reorder);
  for (int i = 0; i < SLOT_COUNT; i++)
    if (product->memory[i]) dnnl_memory_destroy(product->memory[i]);
  free(product);
}

const char *product_cpu_name(const struct product_cpu *product) {
  return product->name;
}

/* ---- execution
 * --------------------------------------------------------------------------------------------------- */

static enum status set(const struct product_cpu *product, int slot, const void *data) {
  TRY_DNNL(dnnl_memory_set_data_handle(product->memory[slot], (void *)data));
  return STATUS_OK;
}

static enum status run_reorder(const struct op_cpu_context *context, const struct product_cpu *product,
                               int from, int to) {
  dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, product->memory[from]}, {DNNL_ARG_TO, product->memory[to]}};
  TRY_DNNL(dnnl_primitive_execute(product->reorder, context->stream, 2, args));
  return STATUS_OK;
}

enum status product_cpu_run(const struct op_cpu_context *context, const struct product_cpu *product,
                            const struct product_cpu_io *io, void *workspace) {
  /* oneDNN's argument numbers of in, weight, out, bias in each pass */
  static const int numbers[][4] = {
      [PRODUCT_INFERENCE] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
      [PRODUCT_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
      [PRODUCT_DATA] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST, 0},
      [PRODUCT_WEIGHTS] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_BIAS},
  };
  const int *number = numbers[product->pass];
  bool reads_weight = product->pass != PRODUCT_WEIGHTS;
  TRY(set(product, SLOT_IN, io->in));
  TRY(set(product, SLOT_OUT, io->out));
  TRY(set(product, SLOT_WEIGHT, product->reorder ? workspace : io->weight));
  TRY(set(product, SLOT_SCRATCH, (char *)workspace + product->weight_bytes));
  if (product->bias) TRY(set(product, SLOT_BIAS, io->bias));
  if (product->reorder) TRY(set(product, SLOT_PLAIN, io->weight));
  if (product->reorder && reads_weight) TRY(run_reorder(context, product, SLOT_PLAIN, SLOT_WEIGHT));
  dnnl_exec_arg_t args[] = {
      {number[0], product->memory[SLOT_IN]},   {number[1], product->memory[SLOT_WEIGHT]},
      {number[2], product->memory[SLOT_OUT]},  {DNNL_ARG_SCRATCHPAD, product->memory[SLOT_SCRATCH]},
      {number[3], product->memory[SLOT_BIAS]},
  };
  TRY_DNNL(dnnl_primitive_execute(product->primitive, context->stream, product->bias ? 5 : 4, args));
  if (product->reorder && !reads_weight) TRY(run_reorder(context, product, SLOT_WEIGHT, SLOT_PLAIN));
  return STATUS_OK;
}
