/* Shape rule of softmax_xent; see op.h. */
#include "model/ops/op.h"

enum status softmax_xent_infer(const struct op_desc *desc, struct op_signature *signature) {
  const struct tensor *in = &desc->in[0];
  float smoothing = desc->attr.softmax_xent.smoothing;
  TRY(op_check_in_count(desc, 2, 2));
  TRY(op_check_in(desc, 0, 2, 2));
  struct tensor labels = tensor_1d(DTYPE_I32, in->dim[0]);
  TRY(op_check_same(desc, 1, &labels));
  if (!(smoothing >= 0 && smoothing < 1))
    return RAISE(STATUS_INPUT, "softmax_xent: label smoothing is %g, expected 0 <= smoothing < 1",
                 (double)smoothing);

  signature->out = tensor_1d(DTYPE_F32, 2);
  if (desc->training) {
    signature->saved_count = 1;
    signature->saved[0] = tensor_1d(DTYPE_F32, in->dim[0]);
    signature->keeps_in[0] = signature->keeps_in[1] = true;
  }
  return STATUS_OK;
}
