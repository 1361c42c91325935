/* Shape rule of conv_bn, composed of conv2d's and batchnorm's; see op.h. */
#include "model/ops/op.h"

enum status conv_bn_infer(const struct op_desc *desc, struct op_signature *signature) {
  const struct conv_bn_attr *attr = &desc->attr.conv_bn;
  struct op_desc part = {.kind = OP_CONV2D, .training = desc->training, .in_count = 1, .in = {desc->in[0]}};
  struct op_signature conv = {0}, norm = {0};
  TRY(op_check_in_count(desc, 1, 2));
  if (attr->conv.bias) return RAISE(STATUS_INPUT, "conv_bn: the convolution has a bias, expected none");
  if (attr->activation < ACTIVATION_NONE || attr->activation > ACTIVATION_SILU)
    return RAISE(STATUS_INPUT, "conv_bn: activation %d, expected none, relu, gelu or silu",
                 (int)attr->activation);
  part.attr.conv2d = attr->conv;
  TRY(conv2d_infer(&part, &conv));
  part.kind = OP_BATCHNORM;
  part.in[0] = conv.out;
  part.attr.batchnorm = attr->batchnorm;
  TRY(batchnorm_infer(&part, &norm));
  if (desc->in_count == 2) TRY(op_check_same(desc, 1, &conv.out));

  signature->out = conv.out;
  signature->param_count = 3;
  signature->param[0] = conv.param[0];
  signature->param[1] = norm.param[0];
  signature->param[2] = norm.param[1];
  signature->statistic_count = 2;
  for (int i = 0; i < 2; i++) signature->statistic[i] = norm.statistic[i];
  signature->fixed_statistic = norm.fixed_statistic;
  if (!desc->training) return STATUS_OK;

  signature->saved[0] = conv.out;
  for (int i = 0; i < norm.saved_count; i++) signature->saved[1 + i] = norm.saved[i];
  signature->saved_count = 1 + norm.saved_count;
  signature->keeps_in[0] = true;
  signature->keeps_out = attr->activation == ACTIVATION_RELU;
  signature->keeps_in[1] =
      desc->in_count == 2 && (attr->activation == ACTIVATION_GELU || attr->activation == ACTIVATION_SILU);
  return STATUS_OK;
}
