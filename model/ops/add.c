/* Shape rule of add; see op.h. */
#include <math.h>

#include "model/ops/op.h"

enum status add_infer(const struct op_desc *desc, struct op_signature *signature) {
  TRY(op_check_in_count(desc, 2, 2));
  TRY(op_check_in(desc, 0, 1, TENSOR_MAX_RANK));
  TRY(op_check_same(desc, 1, &desc->in[0]));
  float scale = desc->attr.add.scale;
  if (!isfinite(scale) || scale == 0)
    return RAISE(STATUS_INPUT, "add: scale is %g, expected a number that is not 0", (double)scale);
  signature->out = desc->in[0];
  return STATUS_OK;
}
