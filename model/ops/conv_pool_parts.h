/* conv_pool as a chain of a backend's own conv2d, maxpool and activation: for every shape. */
#ifndef CONVOY_MODEL_OPS_CONV_POOL_PARTS_H
#define CONVOY_MODEL_OPS_CONV_POOL_PARTS_H

#include "model/ops/op.h"

struct conv_pool_parts;

/* How the backend computes the parts. */
struct conv_pool_tables {
  struct op_table conv2d, maxpool, activation;
};

/* Calls as in struct op_table; `tables` must outlive the parts. The convolution's result and its gradient lie
 * in the workspace. The activation follows the pooling, on fewer elements: the same values, as it is
 * monotonic. */
enum status conv_pool_parts_create(struct op_context *context, const struct conv_pool_tables *tables,
                                   const struct op_desc *desc, const struct op_signature *signature,
                                   struct conv_pool_parts **parts, size_t *workspace);
enum status conv_pool_parts_forward(struct op_context *context, const struct conv_pool_parts *parts,
                                    const struct op_io *io);
enum status conv_pool_parts_backward(struct op_context *context, const struct conv_pool_parts *parts,
                                     const struct op_io *io);
void conv_pool_parts_destroy(struct op_context *context, struct conv_pool_parts *parts); /* NULL: nothing */

#endif
