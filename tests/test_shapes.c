/* The ops' shape rules: what follows from a description, and that a description that does not fit is refused
 * by name, with *signature untouched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/reference/cases.h"

/* Every case of the table has a signature; without training nothing is saved or kept, and out is the same. */
static void evaluation_keeps_nothing(void **state) {
  (void)state;
  for (int kind = 0; kind < OP_COUNT; kind++) {
    struct op_cases cases = op_cases((enum op_kind)kind);
    for (int i = 0; i < cases.count; i++) {
      struct op_signature training, evaluation;
      struct op_desc desc = op_case_desc(&cases.item[i], (enum op_kind)kind, DTYPE_BF16, true);
      assert_int_equal(op_infer(&desc, &training), STATUS_OK);
      desc.training = false;
      assert_int_equal(op_infer(&desc, &evaluation), STATUS_OK);
      assert_true(tensor_equal(&training.out, &evaluation.out));
      assert_int_equal(training.param_count, evaluation.param_count);
      assert_int_equal(training.statistic_count, evaluation.statistic_count);
      assert_int_equal(evaluation.saved_count, 0);
      assert_false(evaluation.keeps_in[0] || evaluation.keeps_in[1] || evaluation.keeps_out);
      for (int p = 0; p < training.param_count; p++)
        assert_int_equal(training.param[p].tensor.dtype, training.param[p].decayed ? DTYPE_BF16 : DTYPE_F32);
    }
  }
}

static void assert_shape(const struct tensor *tensor, const char *expected) {
  char text[96];
  assert_string_equal(tensor_text(tensor, text, sizeof text), expected);
}

static void fused_signature(void **state) {
  (void)state;
  struct op_signature s;
  struct op_desc desc = {.kind = OP_CONV_BN,
                         .training = true,
                         .in_count = 2,
                         .in = {tensor_4d(DTYPE_BF16, 2, 9, 7, 3), tensor_4d(DTYPE_BF16, 2, 5, 4, 16)}};
  desc.attr.conv_bn = (struct conv_bn_attr){{16, 3, 3, 2, 1, false}, {1e-5f, false}, ACTIVATION_RELU};
  assert_int_equal(op_infer(&desc, &s), STATUS_OK);
  assert_shape(&s.out, "2x5x4x16 bf16");
  assert_shape(&s.param[0].tensor, "16x3x3x3 bf16");
  assert_shape(&s.param[1].tensor, "16 fp32");
  assert_string_equal(s.param[2].name, "bias");
  assert_shape(&s.saved[0], "2x5x4x16 bf16");
  assert_shape(&s.saved[2], "16 fp32");
  assert_true(s.keeps_in[0] && !s.keeps_in[1] && s.keeps_out);
  desc.attr.conv_bn.activation = ACTIVATION_SILU;
  assert_int_equal(op_infer(&desc, &s), STATUS_OK);
  assert_true(s.keeps_in[0] && s.keeps_in[1] && !s.keeps_out);
  desc.attr.conv_bn.activation = ACTIVATION_NONE;
  assert_int_equal(op_infer(&desc, &s), STATUS_OK);
  assert_true(s.keeps_in[0] && !s.keeps_in[1] && !s.keeps_out);
}

static void pooled_signature(void **state) {
  (void)state;
  struct op_signature s;
  struct op_desc desc = {
      .kind = OP_CONV_POOL, .training = true, .in_count = 1, .in = {tensor_4d(DTYPE_BF16, 2, 9, 8, 3)}};
  desc.attr.conv_pool = (struct conv_pool_attr){{16, 3, 3, 1, 0, true}, ACTIVATION_RELU, {2, 2}};
  assert_int_equal(op_infer(&desc, &s), STATUS_OK);
  assert_shape(&s.out, "2x3x3x16 bf16");
  assert_int_equal(s.param_count, 2);
  assert_shape(&s.param[0].tensor, "16x3x3x3 bf16");
  assert_shape(&s.param[1].tensor, "16 fp32");
  assert_int_equal(s.saved_count, 1);
  assert_int_equal(s.saved[0].dtype, DTYPE_U8);
  assert_true(s.keeps_in[0] && s.keeps_out);
  desc.attr.conv_pool.activation = ACTIVATION_NONE;
  assert_int_equal(op_infer(&desc, &s), STATUS_OK);
  assert_true(s.keeps_in[0] && !s.keeps_out);
}

static void windows(void **state) {
  (void)state;
  assert_int_equal(op_window(32, 3, 1, 1), 32);
  assert_int_equal(op_window(32, 3, 2, 1), 16);
  assert_int_equal(op_window(7, 2, 2, 0), 3);
  assert_int_equal(op_window(3, 3, 5, 0), 1);
  assert_true(op_window(2, 3, 1, 0) <= 0);
  assert_true(op_window(2, 4, 2, 0) <= 0);
}

/* What is refused, and a part of the message. */
static void refused(const struct op_desc *desc, const char *expected) {
  struct op_signature signature, before;
  memset(&signature, 0x5a, sizeof signature);
  before = signature;
  error_clear();
  assert_int_equal(op_infer(desc, &signature), STATUS_INPUT);
  assert_memory_equal(&signature, &before, sizeof signature);
  if (!strstr(error_message(), expected)) fail_msg("'%s' does not say '%s'", error_message(), expected);
  if (strncmp(error_message(), op_name(desc->kind), strlen(op_name(desc->kind))) != 0)
    fail_msg("'%s' does not begin with the op", error_message());
  error_clear();
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  struct tensor image = tensor_4d(DTYPE_F32, 2, 4, 4, 3), other = tensor_4d(DTYPE_F32, 2, 4, 4, 5);
  struct op_desc conv = {.kind = OP_CONV2D, .in_count = 1, .in = {image}};
  conv.attr.conv2d = (struct conv2d_attr){8, 5, 5, 1, 0, false};
  refused(&conv, "2x4x4x3 fp32");
  conv.attr.conv2d = (struct conv2d_attr){8, 3, 3, 0, 0, false};
  refused(&conv, "stride 0");
  conv.attr.conv2d = (struct conv2d_attr){0, 3, 3, 1, 0, false};
  refused(&conv, "0 filters");
  conv.attr.conv2d = (struct conv2d_attr){8, 3, 3, 1, -1, false};
  refused(&conv, "pad -1");
  conv.attr.conv2d = (struct conv2d_attr){8, 3, 3, 1, 0, false};
  conv.in[0] = tensor_2d(DTYPE_F32, 4, 4);
  refused(&conv, "2 dimensions");
  conv.in[0] = tensor_4d(DTYPE_U8, 2, 4, 4, 3);
  refused(&conv, "uint8");
  conv.in[0] = tensor_4d(DTYPE_F32, 0, 4, 4, 3);
  refused(&conv, "at least 1");
  conv.in_count = 2;
  refused(&conv, "2 inputs");

  struct op_desc add = {.kind = OP_ADD, .in_count = 2, .in = {image, other}};
  refused(&add, "input 1 is 2x4x4x5 fp32, expected 2x4x4x3 fp32");
  add.in[1] = image;
  refused(&add, "scale is 0");
  struct op_desc norm = {.kind = OP_BATCHNORM, .in_count = 1, .in = {image}};
  refused(&norm, "epsilon");
  struct op_desc act = {.kind = OP_ACTIVATION, .in_count = 1, .in = {image}};
  refused(&act, "none");
  act.attr.activation.kind = (enum activation)77;
  refused(&act, "unknown");
  struct op_desc pool = {.kind = OP_MAXPOOL, .in_count = 1, .in = {tensor_4d(DTYPE_F32, 1, 64, 64, 1)}};
  pool.attr.maxpool = (struct maxpool_attr){16, 1};
  refused(&pool, "16x16");
  struct op_desc linear = {.kind = OP_LINEAR, .in_count = 1, .in = {image}};
  refused(&linear, "0 outputs");
  struct op_desc loss = {
      .kind = OP_SOFTMAX_XENT, .in_count = 2, .in = {tensor_2d(DTYPE_F32, 3, 10), tensor_1d(DTYPE_I32, 4)}};
  refused(&loss, "4 int32, expected 3 int32");
  loss.in[1] = tensor_1d(DTYPE_I32, 3);
  loss.attr.softmax_xent.smoothing = 1;
  refused(&loss, "smoothing is 1");
  struct op_desc fused = {.kind = OP_CONV_BN, .in_count = 2, .in = {image, other}};
  fused.attr.conv_bn = (struct conv_bn_attr){{8, 3, 3, 1, 1, false}, {1e-5f, false}, ACTIVATION_RELU};
  refused(&fused, "2x4x4x5 fp32, expected 2x4x4x8 fp32");
  fused.attr.conv_bn.conv.bias = true;
  refused(&fused, "bias");
  struct op_desc pooled = {.kind = OP_CONV_POOL, .in_count = 1, .in = {image}};
  pooled.attr.conv_pool = (struct conv_pool_attr){{8, 3, 3, 1, 1, true}, ACTIVATION_GELU, {2, 2}};
  refused(&pooled, "gelu");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(evaluation_keeps_nothing),
      cmocka_unit_test(fused_signature),
      cmocka_unit_test(pooled_signature),
      cmocka_unit_test(windows),
      cmocka_unit_test(what_does_not_fit_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
