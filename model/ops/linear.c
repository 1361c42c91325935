/* Shape rule of linear; see op.h. */
#include "model/ops/op.h"

enum status linear_infer(const struct op_desc *desc, struct op_signature *signature) {
  const struct tensor *in = &desc->in[0];
  int outputs = desc->attr.linear.outputs;
  TRY(op_check_in_count(desc, 1, 1));
  TRY(op_check_in(desc, 0, 2, TENSOR_MAX_RANK));
  if (outputs < 1) return RAISE(STATUS_INPUT, "linear: %d outputs, expected at least 1", outputs);

  int64_t inputs = tensor_count(in) / in->dim[0];
  signature->out = tensor_2d(in->dtype, in->dim[0], outputs);
  signature->param_count = desc->attr.linear.bias ? 2 : 1;
  signature->param[0] =
      (struct op_param){.name = "weight", .tensor = tensor_2d(in->dtype, outputs, inputs), .decayed = true};
  if (desc->attr.linear.bias)
    signature->param[1] = (struct op_param){.name = "bias", .tensor = tensor_1d(DTYPE_F32, outputs)};
  signature->keeps_in[0] = desc->training;
  return STATUS_OK;
}
