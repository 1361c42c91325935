/* Convolutions and matrix products by oneDNN 2.x or 3.x; their descriptors are made in
 * product_describe_cpu.c.
 */
#include <stdlib.h>
#include <string.h>

#include "model/ops/product_dnnl.h"

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

/* ---- creation ---- */

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
                                         const struct product_cpu_shape *shape,
                                         const struct product_layouts *layouts, dnnl_primitive_desc_t hint,
                                         dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *desc) {
  for (int skip = 0;; skip++) {
    dnnl_status_t result =
        product_describe(desc, context->engine, shape, product->pass, layouts, hint, attr, skip);
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
                                 dnnl_primitive_desc_t desc, const struct product_layouts *layouts,
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
                                    const struct product_cpu_shape *shape,
                                    const struct product_layouts *layouts, dnnl_primitive_attr_t attr,
                                    size_t *workspace) {
  enum status status = STATUS_OK;
  enum product_cpu_pass pass = product->pass;
  dnnl_primitive_desc_t hint = NULL, desc = NULL;
  if (pass == PRODUCT_DATA || pass == PRODUCT_WEIGHTS) {
    struct product_layouts forward = {0}; /* the forward pass has all its arrays in the compute type */
    dnnl_data_type_t type = context->base.compute == DTYPE_BF16 ? dnnl_bf16 : dnnl_f32;
    status = product_layouts_create(shape, type, false, &forward);
    dnnl_status_t result = dnnl_success;
    if (status == STATUS_OK)
      result = product_describe(&hint, context->engine, shape, PRODUCT_FORWARD, &forward, NULL, attr, 0);
    product_layouts_destroy(&forward);
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
  struct product_layouts layouts = {0};
  struct product_cpu *made = calloc(1, sizeof *made);
  if (!made) return RAISE(STATUS_INPUT, "out of memory");
  made->pass = pass;
  made->bias = shape->conv.bias && pass != PRODUCT_DATA;
  TRY_OUT(product_layouts_create(shape, type, pass == PRODUCT_WEIGHTS, &layouts));
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
  product_layouts_destroy(&layouts);
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

/* ---- execution ---- */

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
