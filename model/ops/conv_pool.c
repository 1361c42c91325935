/* Shape rule of conv_pool, composed of conv2d's and maxpool's; see op.h. */
#include "model/ops/op.h"

enum status conv_pool_infer(const struct op_desc *desc, struct op_signature *signature) {
  const struct conv_pool_attr *attr = &desc->attr.conv_pool;
  struct op_desc part = {.kind = OP_CONV2D, .training = desc->training, .in_count = 1, .in = {desc->in[0]}};
  struct op_signature conv = {0}, pool = {0};
  TRY(op_check_in_count(desc, 1, 1));
  if (attr->activation != ACTIVATION_NONE && attr->activation != ACTIVATION_RELU)
    return RAISE(STATUS_INPUT, "conv_pool: activation %s, expected none or relu",
                 activation_name(attr->activation));
  part.attr.conv2d = attr->conv;
  TRY(conv2d_infer(&part, &conv));
  part.kind = OP_MAXPOOL;
  part.in[0] = conv.out;
  part.attr.maxpool = attr->maxpool;
  TRY(maxpool_infer(&part, &pool));

  signature->out = pool.out;
  signature->param_count = conv.param_count;
  for (int i = 0; i < conv.param_count; i++) signature->param[i] = conv.param[i];
  signature->saved_count = pool.saved_count;
  signature->saved[0] = pool.saved[0];
  signature->keeps_in[0] = desc->training;
  signature->keeps_out = desc->training && attr->activation == ACTIVATION_RELU;
  return STATUS_OK;
}
