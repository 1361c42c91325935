/* Shape rule of batchnorm; see op.h. */
#include "model/ops/op.h"

enum status batchnorm_infer(const struct op_desc *desc, struct op_signature *signature) {
  const struct tensor *in = &desc->in[0];
  float epsilon = desc->attr.batchnorm.epsilon;
  TRY(op_check_in_count(desc, 1, 1));
  TRY(op_check_in(desc, 0, 4, 4));
  if (!(epsilon > 0))
    return RAISE(STATUS_INPUT, "batchnorm: epsilon is %g, expected more than 0", (double)epsilon);

  struct tensor channels = tensor_1d(DTYPE_F32, in->dim[3]);
  signature->out = *in;
  signature->param_count = 2;
  signature->param[0] = (struct op_param){.name = "weight", .tensor = channels};
  signature->param[1] = (struct op_param){.name = "bias", .tensor = channels};
  signature->statistic_count = 2;
  signature->statistic[0] = signature->statistic[1] = channels;
  signature->fixed_statistic = desc->attr.batchnorm.running;
  if (!desc->training) return STATUS_OK;
  signature->keeps_in[0] = true;
  if (signature->fixed_statistic) return STATUS_OK;
  signature->saved_count = 2;
  signature->saved[0] = signature->saved[1] = channels;
  return STATUS_OK;
}
