/* The three products of a layer with weights (forward, gradient of its input, gradient of its weights),
 * shared by conv2d, conv_bn and linear. */
#ifndef CONVOY_MODEL_OPS_FILTER_CPU_H
#define CONVOY_MODEL_OPS_FILTER_CPU_H

#include "model/ops/product_cpu.h"

struct filter_cpu;

/* *workspace is raised to what the calls below need. */
enum status filter_cpu_create(const struct op_cpu_context *context, const struct product_cpu_shape *shape,
                              bool training, struct filter_cpu **filter, size_t *workspace);
void filter_cpu_destroy(struct filter_cpu *filter); /* NULL: nothing */

/* out = in * weight + bias (NULL: none); in and out are N,H,W,C or rows,columns, weight is K,R,S,C, of the
 * sizes and the type that the object was made for. */
enum status filter_cpu_forward(const struct op_cpu_context *context, const struct filter_cpu *filter,
                               const void *in, const void *weight, const float *bias, void *out,
                               void *workspace);

struct filter_cpu_backward {
  const void *in, *weight, *d_out;
  float *d_weight, *d_bias; /* NULL: not wanted, or no bias */
  void *d_in;               /* NULL: not wanted */
  bool d_in_add;
};
/* The gradients that are wanted, of a filter that was made for training; d_in_add: added to d_in. */
enum status filter_cpu_backward(const struct op_cpu_context *context, const struct filter_cpu *filter,
                                const struct filter_cpu_backward *io, void *workspace);

/* The functions of an op that is such a layer and nothing else, as op.h describes them, from its shape on. */
enum status filter_cpu_op_create(struct op_context *context, const struct op_desc *desc,
                                 const struct product_cpu_shape *shape, void **state, size_t *workspace);
enum status filter_cpu_op_forward(struct op_context *context, void *state, const struct op_io *io);
enum status filter_cpu_op_backward(struct op_context *context, void *state, const struct op_io *io);

/* The shape of a convolution of desc's first input. */
struct product_cpu_shape filter_cpu_convolution(const struct op_desc *desc,
                                                const struct op_signature *signature,
                                                const struct conv2d_attr *conv);

#endif
