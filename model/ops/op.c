/* The table of shape rules, and the checks that they share; see op.h. */
#include "model/ops/op.h"

enum { SHAPE_TEXT = 96 };

const char *op_name(enum op_kind kind) {
  static const char *const name[] = {
#define OP(NAME, name) [OP_##NAME] = #name,
#include "model/ops/ops.def"
#undef OP
  };
  return (unsigned)kind < OP_COUNT ? name[kind] : "unknown op";
}

const char *activation_name(enum activation kind) {
  static const char *const name[] = {[ACTIVATION_NONE] = "none",
                                     [ACTIVATION_RELU] = "relu",
                                     [ACTIVATION_GELU] = "gelu",
                                     [ACTIVATION_SILU] = "silu"};
  return (unsigned)kind < sizeof name / sizeof *name ? name[kind] : "unknown activation";
}

int64_t op_window(int64_t size, int kernel, int stride, int pad) {
  int64_t span = size + 2 * (int64_t)pad - kernel;
  return span < 0 ? 0 : span / stride + 1;
}

enum status op_infer(const struct op_desc *desc, struct op_signature *signature) {
  static enum status (*const infer[])(const struct op_desc *, struct op_signature *) = {
#define OP(NAME, name) [OP_##NAME] = name##_infer,
#include "model/ops/ops.def"
#undef OP
  };
  if ((unsigned)desc->kind >= OP_COUNT)
    return RAISE(STATUS_INTERNAL, "op kind %d does not exist", (int)desc->kind);
  struct op_signature found = {0};
  TRY(infer[desc->kind](desc, &found));
  *signature = found;
  return STATUS_OK;
}

enum status op_check_in(const struct op_desc *desc, int i, int min_rank, int max_rank) {
  const char *name = op_name(desc->kind);
  const struct tensor *in = &desc->in[i];
  char text[SHAPE_TEXT];
  tensor_text(in, text, sizeof text);
  if (in->rank < min_rank || in->rank > max_rank)
    return RAISE(STATUS_INPUT, "%s: input %d is %s: it has %d dimensions, expected %d to %d", name, i, text,
                 in->rank, min_rank, max_rank);
  for (int d = 0; d < in->rank; d++)
    if (in->dim[d] < 1)
      return RAISE(STATUS_INPUT, "%s: input %d is %s: every dimension must be at least 1", name, i, text);
  if (in->dtype != DTYPE_F32 && in->dtype != DTYPE_BF16)
    return RAISE(STATUS_INPUT, "%s: input %d is %s: expected fp32 or bf16", name, i, text);
  return STATUS_OK;
}

enum status op_check_in_count(const struct op_desc *desc, int min_count, int max_count) {
  if (desc->in_count >= min_count && desc->in_count <= max_count) return STATUS_OK;
  return RAISE(STATUS_INPUT, "%s: %d inputs, expected %d to %d", op_name(desc->kind), desc->in_count,
               min_count, max_count);
}

enum status op_check_same(const struct op_desc *desc, int i, const struct tensor *expected) {
  char found[SHAPE_TEXT], wanted[SHAPE_TEXT];
  if (tensor_equal(&desc->in[i], expected)) return STATUS_OK;
  return RAISE(STATUS_INPUT, "%s: input %d is %s, expected %s", op_name(desc->kind), i,
               tensor_text(&desc->in[i], found, sizeof found), tensor_text(expected, wanted, sizeof wanted));
}

enum status op_check_window(const struct op_desc *desc, int kernel_h, int kernel_w, int stride, int pad,
                            int64_t *height, int64_t *width) {
  const struct tensor *in = &desc->in[0];
  char text[SHAPE_TEXT];
  tensor_text(in, text, sizeof text);
  if (kernel_h < 1 || kernel_w < 1 || stride < 1 || pad < 0)
    return RAISE(STATUS_INPUT,
                 "%s: window %dx%d, stride %d, pad %d: window and stride must be at least 1, pad 0",
                 op_name(desc->kind), kernel_h, kernel_w, stride, pad);
  *height = op_window(in->dim[1], kernel_h, stride, pad);
  *width = op_window(in->dim[2], kernel_w, stride, pad);
  if (*height < 1 || *width < 1)
    return RAISE(
        STATUS_INPUT,
        "%s: a window of %dx%d, pad %d, does not fit into input %s (N,H,W,C): the images are too small "
        "for this model",
        op_name(desc->kind), kernel_h, kernel_w, pad, text);
  return STATUS_OK;
}
