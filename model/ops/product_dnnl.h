/* What the two parts of product share, model/ops/product*_cpu.c only: oneDNN's descriptors, which 2.x has by
 * value and 3.x behind pointers. */
#ifndef CONVOY_MODEL_OPS_PRODUCT_DNNL_H
#define CONVOY_MODEL_OPS_PRODUCT_DNNL_H

#include <dnnl.h>

#include "model/ops/product_cpu.h"

#define TRY_DNNL(call)                                                                                       \
  do {                                                                                                       \
    dnnl_status_t dnnl_result = (call);                                                                      \
    if (dnnl_result != dnnl_success)                                                                         \
      return RAISE(dnnl_result == dnnl_out_of_memory ? STATUS_INPUT : STATUS_INTERNAL,                       \
                   "oneDNN: %s failed with status %d", #call, (int)dnnl_result);                             \
  } while (0)

/* in, weight as `any`, weight as K,R,S,C, bias, out */
struct product_layouts {
  dnnl_memory_desc_t in, any, plain, bias, out;
};

#if DNNL_VERSION_MAJOR >= 3
#define LAYOUT(desc) (desc)
#define LAYOUT_VIEW const_dnnl_memory_desc_t
#else
#define LAYOUT(desc) (&(desc))
#define LAYOUT_VIEW const dnnl_memory_desc_t *
#endif

/* The arrays of a product in the compute type, the weights in fp32 if `weights_f32`. What is made before a
 * failure is destroyed with the rest. */
enum status product_layouts_create(const struct product_cpu_shape *shape, dnnl_data_type_t type,
                                   bool weights_f32, struct product_layouts *layouts);
void product_layouts_destroy(struct product_layouts *layouts); /* also a zeroed one */

/* oneDNN's implementation number `skip` for a pass, in its order of preference; the caller destroys it. */
dnnl_status_t product_describe(dnnl_primitive_desc_t *desc, dnnl_engine_t engine,
                               const struct product_cpu_shape *shape, enum product_cpu_pass pass,
                               const struct product_layouts *layouts, dnnl_primitive_desc_t hint,
                               dnnl_primitive_attr_t attr, int skip);

#endif
