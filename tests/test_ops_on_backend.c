/* Every op on one backend, named by the argument, held to the reference in doubles: forward, what is saved,
 * batch statistics, all gradients, in training and evaluation, in each precision, on every shape of the case
 * table. With deterministic algorithms two runs must agree bit for bit. Exit 77 where the backend has no
 * device here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/reference/on_backend.h"
#include "tests/reference/trial.h"

enum { PRECISIONS = 3 };
static const enum op_kind kinds[] = {
#define OP(NAME, name) OP_##NAME,
#include "model/ops/ops.def"
#undef OP
};

/* One precision of the backend under test: with any algorithms, and with deterministic ones. */
struct bench {
  enum precision precision;
  struct backend *any, *deterministic; /* NULL: refused */
  int cases, refused;
};

/* What one test gets: an op in a precision. */
struct job {
  struct bench *bench;
  enum op_kind kind;
};

struct tolerance {
  double norm, largest;
};

/* Of results that are correct but for rounding. tf32 keeps 11 bits of each factor, bf16 8 bits of each value.
 */
static struct tolerance tolerance(const struct job *job, enum trial_role role, enum dtype dtype) {
  static const struct tolerance exact = {0, 0}, fp32 = {1e-5, 5e-5}, tf32 = {2e-3, 1e-2}, bf16 = {1e-2, 3e-2};
  enum op_kind kind = job->kind;
  bool product = kind == OP_CONV2D || kind == OP_LINEAR || kind == OP_CONV_BN || kind == OP_CONV_POOL;
  if ((dtype == DTYPE_U8 && !product) || (kind == OP_MAXPOOL && role == TRIAL_OUT)) return exact;
  if (job->bench->precision == PRECISION_TF32 && product) return tf32;
  if (dtype == DTYPE_BF16 || (job->bench->precision == PRECISION_BF16 && product)) return bf16;
  return fp32;
}

/* The worst deviation of each role over an op's cases. */
struct tally {
  struct deviation worst[TRIAL_ROLES];
  int compared[TRIAL_ROLES];
  int failures;
};

static void judge(const struct job *job, const struct trial *trial, enum trial_mode mode,
                  struct tally *tally) {
  char text[160];
  op_case_text(&trial->desc, text, sizeof text);
  for (int role = TRIAL_OUT; role < TRIAL_ROLES; role++)
    for (int i = 0; i < TRIAL_ARRAYS; i++) {
      struct deviation found;
      struct deviation *worst = &tally->worst[role];
      if (!trial_deviation(trial, (enum trial_role)role, i, mode, &found)) continue;
      struct tolerance limit = tolerance(job, (enum trial_role)role, trial->array[role][i].tensor.dtype);
      tally->compared[role]++;
      if (!(found.norm <= worst->norm)) worst->norm = found.norm;
      if (!(found.largest <= worst->largest)) worst->largest = found.largest;
      if (found.norm <= limit.norm && found.largest <= limit.largest) continue;
      tally->failures++;
      print_error("%s %s, %s, mode %d: %s %d is off by %.2g (largest %.2g), allowed %.2g (%.2g)\n",
                  op_name(job->kind), precision_name(job->bench->precision), text, (int)mode,
                  trial_role_name((enum trial_role)role), i, found.norm, found.largest, limit.norm,
                  limit.largest);
    }
  if (job->kind == OP_SOFTMAX_XENT &&
      trial->array[TRIAL_OUT][0].found[1] != trial->array[TRIAL_OUT][0].expected[1]) {
    tally->failures++;
    print_error("softmax_xent, %s: %g correct rows, expected %g\n", text, trial->array[TRIAL_OUT][0].found[1],
                trial->array[TRIAL_OUT][0].expected[1]);
  }
}

/* All results' bytes, one after the other; freed by the caller. */
static unsigned char *results(const struct trial *trial, size_t *bytes) {
  *bytes = 0;
  for (int role = TRIAL_OUT; role < TRIAL_ROLES; role++)
    for (int i = 0; i < TRIAL_ARRAYS; i++) *bytes += tensor_bytes(&trial->array[role][i].tensor);
  unsigned char *all = malloc(*bytes);
  assert_non_null(all);
  size_t used = 0;
  for (int role = TRIAL_OUT; role < TRIAL_ROLES; role++)
    for (int i = 0; i < TRIAL_ARRAYS; i++) {
      size_t part = tensor_bytes(&trial->array[role][i].tensor);
      if (part) memcpy(all + used, trial->array[role][i].bytes, part);
      used += part;
    }
  return all;
}

/* Runs the trial and judges it; false if it failed outright. */
static bool run(const struct job *job, struct trial *trial, struct backend *backend, enum trial_mode mode,
                struct tally *tally) {
  char text[160];
  if (trial_run(trial, backend, mode) == STATUS_OK) {
    judge(job, trial, mode, tally);
    return true;
  }
  tally->failures++;
  print_error("%s %s, %s, mode %d: %s\n", op_name(job->kind), precision_name(job->bench->precision),
              op_case_text(&trial->desc, text, sizeof text), (int)mode, error_message());
  return false;
}

static void run_twice(const struct job *job, struct trial *trial, struct tally *tally) {
  char text[160];
  size_t bytes;
  struct backend *backend = job->bench->deterministic;
  if (!run(job, trial, backend, TRIAL_OVERWRITE, tally)) return;
  unsigned char *first = results(trial, &bytes);
  bool ran = run(job, trial, backend, TRIAL_OVERWRITE, tally);
  unsigned char *second = results(trial, &bytes);
  if (ran && memcmp(first, second, bytes) != 0) {
    tally->failures++;
    print_error("%s %s, %s: two deterministic runs differ\n", op_name(job->kind),
                precision_name(job->bench->precision), op_case_text(&trial->desc, text, sizeof text));
  }
  free(first);
  free(second);
}

static void run_case(const struct job *job, const struct op_case *op_case, bool training,
                     struct tally *tally) {
  enum dtype compute = job->bench->precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32;
  struct trial trial;
  assert_int_equal(trial_create(op_case, job->kind, compute, training, &trial), STATUS_OK);
  bool ran = true;
  for (int mode = 0; mode < TRIAL_MODES && ran; mode++)
    if (trial_has_mode(&trial, (enum trial_mode)mode))
      ran = run(job, &trial, job->bench->any, (enum trial_mode)mode, tally);
  if (ran) run_twice(job, &trial, tally);
  trial_destroy(&trial);
}

static void op_is_the_reference(void **state) {
  const struct job *job = *state;
  struct op_cases cases = op_cases(job->kind);
  struct tally tally = {0};
  const char *precision = precision_name(job->bench->precision);
  if (!job->bench->any) {
    job->bench->refused += cases.count;
    print_message("%s %s: %d cases refused\n", op_name(job->kind), precision, cases.count);
    return;
  }
  assert_true(cases.count > 0);
  for (int i = 0; i < cases.count; i++) {
    run_case(job, &cases.item[i], true, &tally);
    run_case(job, &cases.item[i], false, &tally);
    job->bench->cases++;
  }
  print_message("%s %s: %d shapes; worst error (norm, largest):", op_name(job->kind), precision, cases.count);
  for (int role = TRIAL_OUT; role < TRIAL_ROLES; role++)
    if (tally.compared[role])
      print_message(" %s %.1e %.1e", trial_role_name((enum trial_role)role), tally.worst[role].norm,
                    tally.worst[role].largest);
  print_message("\n");
  fflush(stdout);
  if (tally.failures) fail_msg("%s %s: %d results are wrong", op_name(job->kind), precision, tally.failures);
}

/* A precision may be refused by name; anything else that fails to open is an error. */
static enum status bench_open(const struct backend_table *table, const struct world *world,
                              enum precision precision, struct bench *bench) {
  struct backend_options options = {.precision = precision, .init_timeout_seconds = 60};
  *bench = (struct bench){.precision = precision};
  enum status status = table->open(world, &options, &bench->any);
  if (status == STATUS_INPUT && precision != PRECISION_FP32) {
    print_message("%s: %s refused: %s\n", table->name, precision_name(precision), error_message());
    error_clear();
    return STATUS_OK;
  }
  TRY(status);
  options.deterministic = true;
  TRY(table->open(world, &options, &bench->deterministic));
  print_message("%s, %s\n", bench->any->description, precision_name(precision));
  return STATUS_OK;
}

static int run_all(struct bench *bench, int precisions) {
  struct CMUnitTest tests[PRECISIONS * OP_COUNT];
  struct job jobs[PRECISIONS * OP_COUNT];
  char names[PRECISIONS * OP_COUNT][64];
  size_t count = 0;
  memset(tests, 0, sizeof tests);
  for (int p = 0; p < precisions; p++)
    for (size_t k = 0; k < OP_COUNT; k++, count++) {
      jobs[count] = (struct job){&bench[p], kinds[k]};
      snprintf(names[count], sizeof names[count], "%s %s", op_name(kinds[k]),
               precision_name(bench[p].precision));
      tests[count] = (struct CMUnitTest){
          .name = names[count], .test_func = op_is_the_reference, .initial_state = &jobs[count]};
    }
  return _cmocka_run_group_tests("ops", tests, count, NULL, NULL);
}

int main(int argc, char **argv) {
  static const enum precision precisions[PRECISIONS] = {PRECISION_FP32, PRECISION_TF32, PRECISION_BF16};
  const struct backend_table *table;
  struct bench bench[PRECISIONS] = {0};
  struct world world;
  int failed = 1, cases = 0, refused = 0;
  int code = suite_open(argc, argv, &table, &world);
  if (code) return code;
  for (int p = 0; p < PRECISIONS; p++) {
    if (bench_open(table, &world, precisions[p], &bench[p]) == STATUS_OK) continue;
    error_print(stderr);
    goto out;
  }
  failed = run_all(bench, PRECISIONS);
  for (int p = 0; p < PRECISIONS; p++) {
    cases += bench[p].cases;
    refused += bench[p].refused;
  }
  printf("%s: %d ops, %d cases compared in training and evaluation, %d refused, %d ops failed\n", argv[1],
         (int)OP_COUNT, cases, refused, failed);
  if (failed) failed = 1;
out:
  for (int p = 0; p < PRECISIONS; p++) {
    table->close(bench[p].any);
    table->close(bench[p].deterministic);
  }
  world_close(&world);
  return failed;
}
