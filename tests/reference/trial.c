/* Drawing and judging a trial; see trial.h. Running it: trial_run.c. */
#include "tests/reference/trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *trial_role_name(enum trial_role role) {
  static const char *const name[] = {"in",    "param", "statistic", "d_out", "out", "batch_statistic",
                                     "saved", "d_in",  "d_param"};
  return name[role];
}

static void set_tensors(struct trial *trial) {
  const struct op_desc *desc = &trial->desc;
  const struct op_signature *signature = &trial->signature;
  struct trial_array(*array)[TRIAL_ARRAYS] = trial->array;
  bool training = desc->training;
  array[TRIAL_OUT][0].tensor = signature->out;
  if (training && desc->kind != OP_SOFTMAX_XENT) array[TRIAL_D_OUT][0].tensor = signature->out;
  for (int i = 0; i < desc->in_count; i++) {
    array[TRIAL_IN][i].tensor = desc->in[i];
    if (training && desc->in[i].dtype != DTYPE_I32) array[TRIAL_D_IN][i].tensor = desc->in[i];
  }
  for (int i = 0; i < signature->param_count; i++) {
    array[TRIAL_PARAM][i].tensor = signature->param[i].tensor;
    if (!training) continue;
    array[TRIAL_D_PARAM][i].tensor = signature->param[i].tensor;
    array[TRIAL_D_PARAM][i].tensor.dtype = DTYPE_F32;
  }
  for (int i = 0; i < signature->statistic_count; i++) {
    array[TRIAL_STATISTIC][i].tensor = signature->statistic[i];
    if (training && !signature->fixed_statistic)
      array[TRIAL_BATCH_STATISTIC][i].tensor = signature->statistic[i];
  }
  for (int i = 0; i < signature->saved_count; i++) array[TRIAL_SAVED][i].tensor = signature->saved[i];
}

/* Mean and deviation of an input array that is not in[0]. */
static void spread(const struct trial *trial, enum trial_role role, int i, double *mean, double *deviation) {
  const struct tensor *tensor = &trial->array[role][i].tensor;
  *mean = 0;
  *deviation = 1;
  if (role != TRIAL_PARAM) return;
  bool norm_weight =
      (trial->desc.kind == OP_BATCHNORM && i == 0) || (trial->desc.kind == OP_CONV_BN && i == 1);
  if (trial->signature.param[i].decayed)
    *deviation = sqrt((double)tensor->dim[0] / (double)tensor_count(tensor)); /* outputs of variance 1 */
  else
    *deviation = 0.3;
  if (norm_weight) *mean = 1;
}

static void draw(struct trial *trial, const struct op_case *op_case, enum trial_role role, int i) {
  struct trial_array *array = &trial->array[role][i];
  int64_t count = tensor_count(&array->tensor);
  enum dtype dtype = array->tensor.dtype;
  uint32_t stream = 1000u * (uint32_t)trial->desc.kind + 16u * (uint32_t)role + (uint32_t)i;
  if (role == TRIAL_STATISTIC) { /* in training they must not be read, unless they are fixed */
    array_normal(array->given, count, dtype, 0, 0.3, stream);
    for (int64_t c = 0; c < count; c++)
      array->given[c] = trial->desc.training && !trial->signature.fixed_statistic
                            ? NAN
                            : (i == 1 ? array_round(dtype, 0.5 + fabs(array->given[c])) : array->given[c]);
  } else if (dtype == DTYPE_I32) {
    array_below(array->given, count, (uint32_t)trial->desc.in[0].dim[1], stream);
  } else if (role == TRIAL_IN && i == 0 && op_case->levels > 0) {
    array_below(array->given, count, (uint32_t)op_case->levels, stream);
  } else {
    double mean, deviation;
    spread(trial, role, i, &mean, &deviation);
    if (role == TRIAL_IN && i == 0) mean = op_case->offset;
    array_normal(array->given, count, dtype, mean, deviation, stream);
  }
}

static struct reference_io reference_pointers(const struct trial *trial) {
  struct reference_io io = {.scale = (double)trial->scale,
                            .out = trial->array[TRIAL_OUT][0].expected,
                            .d_out = trial->array[TRIAL_D_OUT][0].given};
  for (int i = 0; i < OP_MAX_IN; i++) {
    io.in[i] = trial->array[TRIAL_IN][i].given;
    io.d_in[i] = trial->array[TRIAL_D_IN][i].expected;
  }
  for (int i = 0; i < OP_MAX_PARAM; i++) {
    io.param[i] = trial->array[TRIAL_PARAM][i].given;
    io.d_param[i] = trial->array[TRIAL_D_PARAM][i].expected;
  }
  for (int i = 0; i < OP_MAX_STATISTIC; i++) {
    io.statistic[i] = trial->array[TRIAL_STATISTIC][i].given;
    io.batch_statistic[i] = trial->array[TRIAL_BATCH_STATISTIC][i].expected;
  }
  for (int i = 0; i < OP_MAX_SAVED; i++) io.saved[i] = trial->array[TRIAL_SAVED][i].expected;
  return io;
}

enum status trial_create(const struct op_case *op_case, enum op_kind kind, enum dtype compute, bool training,
                         struct trial *trial) {
  memset(trial, 0, sizeof *trial);
  trial->desc = op_case_desc(op_case, kind, compute, training);
  TRY(op_infer(&trial->desc, &trial->signature));
  trial->scale = 1.0f / (float)(2 * trial->desc.in[0].dim[0] + 1); /* as if other ranks had samples too */
  set_tensors(trial);
  for (int role = 0; role < TRIAL_ROLES; role++)
    for (int i = 0; i < TRIAL_ARRAYS; i++) {
      struct trial_array *array = &trial->array[role][i];
      int64_t count = tensor_count(&array->tensor);
      if (count == 0) continue;
      if (role < TRIAL_OUT || role == TRIAL_D_IN) {
        array->given = reference_array(count);
        draw(trial, op_case, (enum trial_role)role, i);
      }
      if (role < TRIAL_OUT) continue;
      array->expected = reference_array(count);
      array->found = reference_array(count);
      array->bytes = (unsigned char *)reference_array(count);
    }
  struct reference_io io = reference_pointers(trial);
  reference_forward(&trial->desc, &io);
  return STATUS_OK;
}

void trial_destroy(struct trial *trial) {
  for (int role = 0; role < TRIAL_ROLES; role++)
    for (int i = 0; i < TRIAL_ARRAYS; i++) {
      struct trial_array *array = &trial->array[role][i];
      free(array->given);
      free(array->expected);
      free(array->found);
      free(array->bytes);
    }
  memset(trial, 0, sizeof *trial);
}

bool trial_wants_param(enum trial_mode mode, int i) {
  return mode != TRIAL_NO_D_PARAM && !(mode == TRIAL_NO_D_FIRST && i == 0);
}

bool trial_has_mode(const struct trial *trial, enum trial_mode mode) {
  bool second = trial->array[TRIAL_D_IN][1].tensor.rank > 0;
  if (!trial->desc.training) return mode == TRIAL_OVERWRITE;
  switch (mode) {
  case TRIAL_ADD_SECOND:
  case TRIAL_ADD_BOTH:
    return second;
  case TRIAL_NO_D_IN:
  case TRIAL_NO_D_PARAM:
    return trial->signature.param_count > 0;
  case TRIAL_NO_D_FIRST:
    return trial->signature.param_count > 1;
  default:
    return true;
  }
}

/* FNV-1a of what the backend found, continued from `digest`. */
static uint64_t found_digest(const struct trial_array *array, uint64_t digest) {
  for (size_t i = 0; i < tensor_bytes(&array->tensor); i++)
    digest = (digest ^ array->bytes[i]) * 1099511628211u;
  return digest;
}

void trial_reference_backward(struct trial *trial) {
  const struct trial_array *out = &trial->array[TRIAL_OUT][0], *saved = &trial->array[TRIAL_SAVED][0];
  bool places = trial->desc.kind == OP_CONV_POOL;
  uint64_t mask = 14695981039346656037u;
  if (trial->signature.keeps_out) mask = found_digest(out, mask);
  if (places) mask = found_digest(saved, mask);
  if (trial->backward_known && mask == trial->mask) return;
  trial->mask = mask;
  struct reference_io io = reference_pointers(trial);
  if (trial->signature.keeps_out) io.out = out->found;
  if (places) io.saved[0] = saved->found;
  reference_backward(&trial->desc, &io);
  trial->backward_known = true;
}

/* A mean may be near zero, and rounding moves it on the scale of what it is the mean of: its error counts
 * against sqrt(mean^2 + variance). Returns the factor that makes it so, 1 for all arrays but means. */
static double mean_scale(const struct trial *trial, enum trial_role role, int i) {
  int mean =
      trial->desc.kind == OP_CONV_BN ? 1 : 0; /* its place in saved; 1/sqrt(variance + epsilon) follows */
  if (trial->desc.kind != OP_CONV_BN && trial->desc.kind != OP_BATCHNORM) return 1;
  if (!(role == TRIAL_SAVED && i == mean) && !(role == TRIAL_BATCH_STATISTIC && i == 0)) return 1;
  const struct trial_array *saved = &trial->array[TRIAL_SAVED][mean], *factor = saved + 1;
  double square = 0, variance = 0;
  for (int64_t c = 0; c < tensor_count(&saved->tensor); c++) {
    square += saved->expected[c] * saved->expected[c];
    variance += 1 / (factor->expected[c] * factor->expected[c]);
  }
  return sqrt(square / (square + variance));
}

/* Places are held to each other by the values found there. */
static void place_deviation(const struct trial *trial, struct deviation *deviation) {
  const struct trial_array *array = &trial->array[TRIAL_SAVED][0];
  int64_t count = tensor_count(&array->tensor);
  double *expected = reference_array(count), *found = reference_array(count);
  struct reference_io io = reference_pointers(trial);
  reference_conv_pool_chosen(&trial->desc, &io, array->expected, expected);
  reference_conv_pool_chosen(&trial->desc, &io, array->found, found);
  *deviation = array_deviation(found, expected, count);
  free(expected);
  free(found);
}

bool trial_deviation(const struct trial *trial, enum trial_role role, int i, enum trial_mode mode,
                     struct deviation *deviation) {
  const struct trial_array *array = &trial->array[role][i];
  int64_t count = tensor_count(&array->tensor);
  if (count == 0 || (role == TRIAL_D_IN && mode == TRIAL_NO_D_IN)) return false;
  if (role == TRIAL_D_PARAM && !trial_wants_param(mode, i)) return false;
  if (trial->desc.kind == OP_CONV_POOL && role == TRIAL_SAVED) {
    place_deviation(trial, deviation);
    return true;
  }
  bool add = role == TRIAL_D_IN && (mode == TRIAL_ADD_BOTH || (mode == TRIAL_ADD_FIRST && i == 0) ||
                                    (mode == TRIAL_ADD_SECOND && i == 1));
  double *sum = reference_array(count);
  for (int64_t at = 0; at < count; at++) sum[at] = array->expected[at] + (add ? array->given[at] : 0);
  *deviation = array_deviation(array->found, sum, count);
  free(sum);
  double scale = mean_scale(trial, role, i);
  deviation->norm *= scale;
  deviation->largest *= scale;
  return true;
}
