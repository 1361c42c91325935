/* Shape rule of conv2d; see op.h. */
#include "model/ops/op.h"

enum status conv2d_infer(const struct op_desc *desc, struct op_signature *signature) {
  const struct conv2d_attr *attr = &desc->attr.conv2d;
  const struct tensor *in = &desc->in[0];
  int64_t height, width;
  TRY(op_check_in_count(desc, 1, 1));
  TRY(op_check_in(desc, 0, 4, 4));
  TRY(op_check_window(desc, attr->kernel_h, attr->kernel_w, attr->stride, attr->pad, &height, &width));
  if (attr->filters < 1) return RAISE(STATUS_INPUT, "conv2d: %d filters, expected at least 1", attr->filters);

  signature->out = tensor_4d(in->dtype, in->dim[0], height, width, attr->filters);
  signature->param_count = attr->bias ? 2 : 1;
  signature->param[0] = (struct op_param){
      .name = "weight",
      .tensor = tensor_4d(in->dtype, attr->filters, attr->kernel_h, attr->kernel_w, in->dim[3]),
      .decayed = true};
  if (attr->bias)
    signature->param[1] = (struct op_param){.name = "bias", .tensor = tensor_1d(DTYPE_F32, attr->filters)};
  signature->keeps_in[0] = desc->training;
  return STATUS_OK;
}
