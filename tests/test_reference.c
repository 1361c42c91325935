/* Holds the reference to values worked out by hand, and each of its backwards to central finite differences
 * of its forward, on the small shapes of the case table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <math.h>

#include "tests/reference/arrays.h"
#include "tests/reference/cases.h"
#include "tests/reference/reference.h"

enum {
  SMALL = 5000,        /* elements of in[0]: larger cases are for the backends only */
  SMALL_WORK = 100000, /* elements of in[0] times filters */
  SAMPLED = 40,        /* elements of each array that are moved */
};
static const double step = 1e-5, tolerance = 1e-7;

/* One case in doubles. `learn` lists the arrays that have a gradient. */
struct problem {
  struct op_desc desc;
  struct op_signature signature;
  struct reference_io io;
  double *statistic[OP_MAX_STATISTIC]; /* NULL: not read */
  double *weight;                      /* of each output in the scalar whose gradient is taken: d_out */
  int learned;
  struct {
    double *value, *gradient;
    int64_t count;
  } learn[OP_MAX_IN + OP_MAX_PARAM];
};

static double *drawn(const struct tensor *tensor, double mean, uint32_t stream) {
  int64_t count = tensor_count(tensor);
  double *value = reference_array(count);
  array_normal(value, count, DTYPE_F32, mean, 1, stream);
  return value;
}

static void learn(struct problem *problem, double *value, double *gradient, int64_t count) {
  problem->learn[problem->learned].value = value;
  problem->learn[problem->learned].gradient = gradient;
  problem->learn[problem->learned++].count = count;
}

static void problem_create(const struct op_case *op_case, enum op_kind kind, struct problem *problem) {
  *problem = (struct problem){.desc = op_case_desc(op_case, kind, DTYPE_F32, true)};
  struct op_desc *desc = &problem->desc;
  assert_int_equal(op_infer(desc, &problem->signature), STATUS_OK);
  for (int i = 0; i < desc->in_count; i++) {
    int64_t count = tensor_count(&desc->in[i]);
    double *value = drawn(&desc->in[i], i == 0 ? op_case->offset : 0, (uint32_t)i);
    problem->io.in[i] = value;
    if (desc->in[i].dtype == DTYPE_I32) {
      array_below(value, count, (uint32_t)desc->in[0].dim[1], (uint32_t)i);
      continue;
    }
    problem->io.d_in[i] = reference_array(count);
    learn(problem, value, problem->io.d_in[i], count);
  }
  for (int i = 0; i < problem->signature.param_count; i++) {
    const struct tensor *tensor = &problem->signature.param[i].tensor;
    double *value = drawn(tensor, 0.2, (uint32_t)(10 + i));
    problem->io.param[i] = value;
    problem->io.d_param[i] = reference_array(tensor_count(tensor));
    learn(problem, value, problem->io.d_param[i], tensor_count(tensor));
  }
  for (int i = 0; problem->signature.fixed_statistic && i < problem->signature.statistic_count; i++) {
    int64_t count = tensor_count(&problem->signature.statistic[i]);
    double *value = drawn(&problem->signature.statistic[i], 0, (uint32_t)(30 + i));
    for (int64_t c = 0; i == 1 && c < count; c++) value[c] = 0.5 + fabs(value[c]);
    problem->io.statistic[i] = problem->statistic[i] = value;
  }
  problem->io.scale = 0.25;
  problem->io.out = reference_array(tensor_count(&problem->signature.out));
  problem->weight = drawn(&problem->signature.out, 0, 20);
  problem->io.d_out = problem->weight;
}

static void problem_destroy(struct problem *problem) {
  for (int i = 0; i < problem->learned; i++) {
    free(problem->learn[i].value);
    free(problem->learn[i].gradient);
  }
  if (problem->desc.kind == OP_SOFTMAX_XENT) free((void *)(uintptr_t)problem->io.in[1]);
  for (int i = 0; i < OP_MAX_STATISTIC; i++) free(problem->statistic[i]);
  free(problem->weight);
  free(problem->io.out);
}

/* The scalar: sum of weight * out; of softmax_xent the loss times scale. */
static double scalar(const struct problem *problem) {
  double sum = 0;
  reference_forward(&problem->desc, &problem->io);
  if (problem->desc.kind == OP_SOFTMAX_XENT) return problem->io.out[0] * problem->io.scale;
  for (int64_t i = 0; i < tensor_count(&problem->signature.out); i++)
    sum += problem->weight[i] * problem->io.out[i];
  return sum;
}

static double moved(const struct problem *problem, double *value, double by) {
  double before = *value;
  *value = before + by;
  double result = scalar(problem);
  *value = before;
  return result;
}

/* Largest distance between gradient and difference quotient, relative to the largest gradient of the array.
 */
static double check_array(const struct problem *problem, double *value, const double *gradient,
                          int64_t count) {
  double worst = 0, largest = 1e-3;
  int64_t stride = count <= SAMPLED ? 1 : count / SAMPLED + 1;
  for (int64_t i = 0; i < count; i++) largest = fabs(gradient[i]) > largest ? fabs(gradient[i]) : largest;
  for (int64_t i = 0; i < count; i += stride) {
    double quotient = (moved(problem, &value[i], step) - moved(problem, &value[i], -step)) / (2 * step);
    double distance = fabs(quotient - gradient[i]) / largest;
    if (!(distance <= worst)) worst = distance;
  }
  return worst;
}

static void backward_is_the_gradient(void **state) {
  enum op_kind kind = *(const enum op_kind *)*state;
  struct op_cases cases = op_cases(kind);
  int checked = 0;
  double worst = 0;
  for (int i = 0; i < cases.count; i++) {
    const struct tensor *in = &cases.item[i].desc.in[0];
    struct problem problem;
    if (tensor_count(in) > SMALL) continue;
    problem_create(&cases.item[i], kind, &problem);
    if (tensor_count(in) * problem.signature.out.dim[problem.signature.out.rank - 1] <= SMALL_WORK) {
      checked++;
      scalar(&problem);
      reference_backward(&problem.desc, &problem.io);
      for (int a = 0; a < problem.learned; a++) {
        double error =
            check_array(&problem, problem.learn[a].value, problem.learn[a].gradient, problem.learn[a].count);
        if (!(error <= worst)) worst = error;
        char text[160];
        if (!(error <= tolerance))
          print_error("%s, %s, array %d: %g from the difference quotient\n", op_name(kind),
                      op_case_text(&problem.desc, text, sizeof text), a, error);
      }
    }
    problem_destroy(&problem);
  }
  print_message("%s: %d shapes against finite differences, worst %.2g\n", op_name(kind), checked, worst);
  assert_true(checked >= 3);
  assert_true(worst <= tolerance);
}

static void near(double found, double expected) {
  if (!(fabs(found - expected) <= 1e-12 * (1 + fabs(expected))))
    fail_msg("%.15g, expected %.15g", found, expected);
}

/* 3x3 image 1..9, 2x2 filter 1 2 3 4: cross-correlation, so the filter is not mirrored. */
static void conv2d_by_hand(void **state) {
  (void)state;
  double in[9], weight[] = {1, 2, 3, 4}, bias[] = {10}, out[16];
  for (int i = 0; i < 9; i++) in[i] = i + 1;
  struct op_desc desc = {.kind = OP_CONV2D, .in_count = 1, .in = {tensor_4d(DTYPE_F32, 1, 3, 3, 1)}};
  desc.attr.conv2d = (struct conv2d_attr){1, 2, 2, 1, 0, true};
  struct reference_io io = {.in = {in}, .param = {weight, bias}, .out = out};
  reference_forward(&desc, &io);
  near(out[0], 47); /* 1 + 4 + 12 + 20 + 10 */
  near(out[3], 87);
  desc.attr.conv2d = (struct conv2d_attr){1, 2, 2, 2, 1, false}; /* stride 2, pad 1: 2x2 outputs */
  reference_forward(&desc, &io);
  near(out[0], 4);
  near(out[1], 3 * 2 + 4 * 3);
  near(out[3], 77);
}

static void batchnorm_by_hand(void **state) {
  (void)state;
  double in[] = {1, 2, 3, 6}, weight[] = {2}, bias[] = {-1}, out[4], mean[1], variance[1], running[] = {1, 4};
  struct op_desc desc = {
      .kind = OP_BATCHNORM, .training = true, .in_count = 1, .in = {tensor_4d(DTYPE_F32, 2, 2, 1, 1)}};
  desc.attr.batchnorm.epsilon = 0.5f;
  struct reference_io io = {
      .in = {in}, .param = {weight, bias}, .out = out, .scale = 0.25, .batch_statistic = {mean, variance}};
  reference_forward(&desc, &io); /* mean 3, variance 3.5, unbiased 14 / 3 */
  near(out[0], 2 * (1 - 3) / 2.0 - 1);
  near(out[3], 2 * (6 - 3) / 2.0 - 1);
  near(mean[0], 3 * 0.5);
  near(variance[0], 14 / 3.0 * 0.5);
  desc.training = false;
  io.statistic[0] = &running[0];
  io.statistic[1] = &running[1];
  reference_forward(&desc, &io);
  near(out[3], 2 * (6 - 1) / sqrt(4.5) - 1);
  desc.training = desc.attr.batchnorm.running = true;
  out[3] = 0;
  reference_forward(&desc, &io);
  near(out[3], 2 * (6 - 1) / sqrt(4.5) - 1);
}

static void activation_by_hand(void **state) {
  (void)state;
  near(reference_activation(ACTIVATION_RELU, -3), 0);
  near(reference_activation(ACTIVATION_RELU, 3), 3);
  near(reference_activation(ACTIVATION_GELU, 1), 0.841344746068542948585);
  near(reference_activation(ACTIVATION_GELU, -2), -2 * 0.0227501319481792072);
  near(reference_activation(ACTIVATION_SILU, 1), 0.731058578630004879251);
  near(reference_activation(ACTIVATION_NONE, -3), -3);
}

static void pool_by_hand(void **state) {
  (void)state;
  double in[] = {1, 5, 5, 2, 3, 0, 7, 7, 7}, out[4], place[4], d_out[] = {1, 10, 100, 1000}, d_in[9];
  struct op_desc desc = {
      .kind = OP_MAXPOOL, .training = true, .in_count = 1, .in = {tensor_4d(DTYPE_F32, 1, 3, 3, 1)}};
  desc.attr.maxpool = (struct maxpool_attr){.kernel = 2, .stride = 1};
  struct reference_io io = {.in = {in}, .out = out, .saved = {place}, .d_out = d_out, .d_in = {d_in}};
  reference_forward(&desc, &io);
  reference_backward(&desc, &io);
  const double expected_place[] = {1, 0, 2, 2}, expected_d_in[] = {0, 11, 0, 0, 0, 0, 100, 1000, 0};
  for (int i = 0; i < 4; i++) near(place[i], expected_place[i]);
  for (int i = 0; i < 9; i++) near(d_in[i], expected_d_in[i]);
  desc.kind = OP_AVGPOOL;
  reference_forward(&desc, &io);
  near(out[0], 37 / 9.0);
}

static void classifier_by_hand(void **state) {
  (void)state;
  double x[] = {1, 2, 3, 4}, weight[] = {1, 0, -1, 2, 2, 2}, bias[] = {0.5, 0, -1}, logits[6], loss[2];
  struct op_desc desc = {.kind = OP_LINEAR, .in_count = 1, .in = {tensor_2d(DTYPE_F32, 2, 2)}};
  desc.attr.linear = (struct linear_attr){.outputs = 3, .bias = true};
  struct reference_io io = {.in = {x}, .param = {weight, bias}, .out = logits};
  reference_forward(&desc, &io);
  const double expected[] = {1.5, 3, 5, 3.5, 5, 13};
  for (int i = 0; i < 6; i++) near(logits[i], expected[i]);
  desc.attr.linear.bias = false;
  reference_forward(&desc, &io);
  for (int i = 0; i < 6; i++) near(logits[i], expected[i] - bias[i % 3]);

  double labels[] = {1, 2}, even[] = {0, 0, 0, log(2), log(2), log(4)};
  struct op_desc loss_desc = {
      .kind = OP_SOFTMAX_XENT, .in_count = 2, .in = {tensor_2d(DTYPE_F32, 2, 3), tensor_1d(DTYPE_I32, 2)}};
  struct reference_io loss_io = {.in = {even, labels}, .out = loss};
  reference_forward(&loss_desc, &loss_io);
  near(loss[0], log(3) + log(2)); /* 4 of 8 */
  near(loss[1], 1);               /* of equal logits the first one counts: class 0, not 1 */
  loss_desc.attr.softmax_xent.smoothing = 0.75f;
  reference_forward(&loss_desc, &loss_io);
  near(loss[0], log(3) + 0.5 * log(2) + 0.25 * 2 * log(4)); /* targets 1/4, 1/4, 1/2 */
}

static void optimizers_by_hand(void **state) {
  (void)state;
  struct update_desc desc = {.kind = OPTIMIZER_SGD,
                             .momentum = 0.5f,
                             .weight_decay = 0.25f,
                             .decay_count = 1,
                             .parameter_count = 2,
                             .total_count = 3,
                             .statistic_momentum = 0.25f};
  struct step_row row = {.learning_rate = 0.5f, .correction1 = 0.5f, .correction2 = 0.75f};
  double w[] = {4, 4, 8}, d[] = {1, 1, 4}, m[] = {2, 2}, v[] = {3, 3};
  reference_update(&desc, &row, w, d, m, NULL); /* m = 1 + 2, 1 + 1 */
  near(w[0], 2.5);
  near(w[1], 3);
  near(w[2], 7);
  desc.nesterov = true;
  reference_update(&desc, &row, w, d, m, NULL); /* d = 1.625, 1; m = 3.125, 2 */
  near(w[0], 2.5 - 0.5 * (1.625 + 0.5 * 3.125));
  near(w[1], 3 - 0.5 * (1 + 0.5 * 2));

  desc.kind = OPTIMIZER_ADAMW;
  desc.beta1 = 0.5f;
  desc.beta2 = 0.25f;
  double u[] = {4, 4, 8}, m1[] = {2, 2};
  reference_update(&desc, &row, u, d, m1, v); /* m = 1.5, v = 1.5; corrected 3 and 2 */
  near(u[0], 3.5 - 0.5 * 3 / sqrt(2));
  near(u[1], 4 - 0.5 * 3 / sqrt(2));
}

int main(void) {
  static const enum op_kind kind[] = {
#define OP(NAME, name) OP_##NAME,
#include "model/ops/ops.def"
#undef OP
  };
#define OP(NAME, op)                                                                                         \
  {.name = #op " backward",                                                                                  \
   .test_func = backward_is_the_gradient,                                                                    \
   .initial_state = (void *)(uintptr_t)&kind[OP_##NAME]},
  const struct CMUnitTest tests[] = {
#include "model/ops/ops.def"
      cmocka_unit_test(conv2d_by_hand),     cmocka_unit_test(batchnorm_by_hand),
      cmocka_unit_test(activation_by_hand), cmocka_unit_test(pool_by_hand),
      cmocka_unit_test(classifier_by_hand), cmocka_unit_test(optimizers_by_hand),
  };
#undef OP
  return cmocka_run_group_tests(tests, NULL, NULL);
}
