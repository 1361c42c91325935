/* Shape rule of activation; see op.h. */
#include "model/ops/op.h"

enum status activation_infer(const struct op_desc *desc, struct op_signature *signature) {
  enum activation kind = desc->attr.activation.kind;
  TRY(op_check_in_count(desc, 1, 1));
  TRY(op_check_in(desc, 0, 1, TENSOR_MAX_RANK));
  if (kind != ACTIVATION_RELU && kind != ACTIVATION_GELU && kind != ACTIVATION_SILU)
    return RAISE(STATUS_INPUT, "activation: kind %s, expected relu, gelu or silu", activation_name(kind));

  signature->out = desc->in[0];
  signature->keeps_out = desc->training && kind == ACTIVATION_RELU;
  signature->keeps_in[0] = desc->training && kind != ACTIVATION_RELU;
  return STATUS_OK;
}
