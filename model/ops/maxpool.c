/* Shape rule of maxpool; see op.h. */
#include "model/ops/op.h"

enum { PLACES = 255 }; /* the place in the window is kept as a byte */

enum status maxpool_infer(const struct op_desc *desc, struct op_signature *signature) {
  const struct maxpool_attr *attr = &desc->attr.maxpool;
  const struct tensor *in = &desc->in[0];
  int64_t height, width;
  TRY(op_check_in_count(desc, 1, 1));
  TRY(op_check_in(desc, 0, 4, 4));
  TRY(op_check_window(desc, attr->kernel, attr->kernel, attr->stride, 0, &height, &width));
  if ((int64_t)attr->kernel * attr->kernel > PLACES)
    return RAISE(STATUS_INPUT,
                 "maxpool: a window of %dx%d is larger than the %d elements that can be told apart",
                 attr->kernel, attr->kernel, PLACES);

  signature->out = tensor_4d(in->dtype, in->dim[0], height, width, in->dim[3]);
  if (desc->training) {
    signature->saved_count = 1;
    signature->saved[0] = tensor_4d(DTYPE_U8, in->dim[0], height, width, in->dim[3]);
  }
  return STATUS_OK;
}
