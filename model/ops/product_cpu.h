/* A convolution or matrix product by oneDNN, one object a pass. Activations are N,H,W,C and weights K,R,S,C
 * in memory; the weights are reordered through the workspace into the layout that oneDNN computes with. */
#ifndef CONVOY_MODEL_OPS_PRODUCT_CPU_H
#define CONVOY_MODEL_OPS_PRODUCT_CPU_H

#include "model/ops/op_cpu.h"

struct product_cpu;

enum product_cpu_pass {
  PRODUCT_INFERENCE, /* out = in * weight + bias */
  PRODUCT_FORWARD,   /* the same, backward follows */
  PRODUCT_DATA,      /* in = gradient of in, from out (its gradient) and weight */
  PRODUCT_WEIGHTS,   /* weight, bias = their gradients (fp32), from in and out (its gradient) */
};

struct product_cpu_shape {
  int64_t batch, in_h, in_w, in_c, out_h, out_w;
  struct conv2d_attr conv;
  bool matrix; /* (batch, in_c) times (filters, in_c) transposed; the spatial members are not used */
};

/* Arrays of one call, as the pass says; bias NULL without one. */
struct product_cpu_io {
  const void *in, *weight, *bias, *out;
};

/* *workspace is raised to what the object needs. STATUS_INTERNAL if oneDNN has only its reference
 * implementation for these shapes, which is hundreds of times slower. */
enum status product_cpu_create(const struct op_cpu_context *context, const struct product_cpu_shape *shape,
                               enum product_cpu_pass pass, struct product_cpu **product, size_t *workspace);
void product_cpu_destroy(struct product_cpu *product); /* NULL: nothing */

/* Computes the pass that the object was made for. STATUS_INTERNAL: oneDNN failed. */
enum status product_cpu_run(const struct op_cpu_context *context, const struct product_cpu *product,
                            const struct product_cpu_io *io, void *workspace);

#endif
