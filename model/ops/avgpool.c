/* Shape rule of avgpool (over all of H and W); see op.h. */
#include "model/ops/op.h"

enum status avgpool_infer(const struct op_desc *desc, struct op_signature *signature) {
  const struct tensor *in = &desc->in[0];
  TRY(op_check_in_count(desc, 1, 1));
  TRY(op_check_in(desc, 0, 4, 4));
  signature->out = tensor_4d(in->dtype, in->dim[0], 1, 1, in->dim[3]);
  return STATUS_OK;
}
