/* Losses against PyTorch's: the same initial weights and batches (tests/golden/make_golden.py), step by step,
 * in single precision. Usage: test_golden_on_backend cpu|cuda; exits 77 where there is no such device. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/backend/backend.h"
#include "model/base/random.h"
#include "model/base/world.h"
#include "model/net/adapt.h"
#include "model/net/graph.h"
#include "model/net/net.h"
#include "model/zoo/zoo.h"

enum { STEPS = 20, EVALS = 2, EVAL_COUNT = 128, SIDE = 32, CHANNELS = 3, CLASSES = 10, SKIPPED = 77 };

/* What a golden file says. */
struct golden {
  double loss[STEPS];
  int eval_after[EVALS], eval_correct[EVALS];
  double eval_loss[EVALS];
};

struct golden_case {
  const char *file, *model;
  int lora; /* the adapters' rank; 0: none */
  float lora_alpha;
  int64_t batch;
  struct net_options options;
  float learning_rate;
  double gain; /* filters begin uniform in +-sqrt(gain / inputs) */
  float mean[4], std[4];
  int tight_steps;        /* the first steps are held to 1e-4 relative, */
  double later_tolerance; /* the others to this */
};

static const struct golden_case cases[] = {
    {.file = "simplecnn",
     .model = "simplecnn",
     .batch = 128,
     .options = {.optimizer = OPTIMIZER_ADAM, .beta1 = 0.9F, .beta2 = 0.999F, .epsilon = 1e-8F},
     .learning_rate = 1e-3F,
     .gain = 1,
     .mean = {0.5F, 0.5F, 0.5F},
     .std = {0.5F, 0.5F, 0.5F},
     .tight_steps = STEPS},
    {.file = "resnet18",
     .model = "resnet18",
     .batch = 32,
     .options = {.optimizer = OPTIMIZER_SGD, .momentum = 0.9F, .nesterov = true, .weight_decay = 0.1F},
     .learning_rate = 0.002F,
     .gain = 6,
     .mean = {0.4914F, 0.4822F, 0.4465F},
     .std = {0.2470F, 0.2435F, 0.2616F},
     .tight_steps = 5,
     .later_tolerance = 1e-2},
    {.file = "resnet20_lora",
     .model = "resnet20",
     .lora = 4,
     .lora_alpha = 2,
     .batch = 32,
     .options = {.optimizer = OPTIMIZER_SGD, .momentum = 0.9F, .nesterov = true, .weight_decay = 0.1F},
     .learning_rate = 0.002F,
     .gain = 2,
     .mean = {0.5F, 0.5F, 0.5F},
     .std = {0.25F, 0.25F, 0.25F},
     .tight_steps = STEPS},
};

static struct world world;
static const struct backend_table *table;

static void must(enum status status) {
  if (status == STATUS_OK) return;
  error_print(stderr);
  fail();
}

/* ---- what make_golden.py computes, again ---- */

static uint32_t word_at(uint32_t base, int64_t index) {
  uint32_t h = base + (uint32_t)index * 0x9E3779B9U;
  h = (h ^ (h >> 16)) * 0x85EBCA6BU;
  h = (h ^ (h >> 13)) * 0xC2B2AE35U;
  return h ^ (h >> 16);
}

static float uniform_at(uint32_t base, int64_t index) {
  return (float)((int32_t)(word_at(base, index) >> 8) - (1 << 23)) / (float)(1 << 23);
}

static void fill_images(int64_t count, uint8_t *images, int32_t *labels) {
  uint32_t noise = random_stream("images"), pattern = random_stream("patterns"),
           label = random_stream("labels");
  for (int64_t i = 0; i < count; i++) {
    labels[i] = (int32_t)(word_at(label, i) % CLASSES);
    for (int y = 0; y < SIDE; y++)
      for (int x = 0; x < SIDE; x++)
        for (int c = 0; c < CHANNELS; c++) {
          int64_t at = ((i * SIDE + y) * SIDE + x) * CHANNELS + c;
          int64_t cell = ((labels[i] * 4 + y / 8) * 4 + x / 8) * CHANNELS + c;
          images[at] = (uint8_t)((word_at(noise, at) >> 25) + (word_at(pattern, cell) >> 27));
        }
  }
}

static bool ends_with(const char *text, const char *end) {
  size_t a = strlen(text), b = strlen(end);
  return a >= b && strcmp(text + a - b, end) == 0;
}

/* The inputs of the filter or matrix that `name`, a weight or its bias, belongs to; 0: a batchnorm's. */
static int64_t inputs_of(const struct net *net, const char *name) {
  char weight[GRAPH_NAME];
  const char *dot = strrchr(name, '.');
  assert_non_null(dot);
  snprintf(weight, sizeof weight, "%.*s.weight", (int)(dot - name), name);
  for (int i = 0; i < net_item_count(net); i++) {
    struct net_item item = net_item(net, i);
    if (strcmp(item.name, weight) == 0 && item.tensor.rank > 1)
      return tensor_count(&item.tensor) / item.tensor.dim[0];
  }
  return 0;
}

static void fill_item(const struct net *net, struct net_item item, double gain, float *params) {
  int64_t count = tensor_count(&item.tensor), inputs = inputs_of(net, item.name);
  uint32_t base = random_stream(item.name);
  float bound = inputs > 0 ? (float)sqrt((item.tensor.rank == 4 ? gain : 1.0) / (double)inputs) : 0.25F;
  float middle = inputs == 0 && ends_with(item.name, ".weight") ? 1.0F : 0.0F;
  if (!item.learned) {
    bound = 0.0F;
    middle = ends_with(item.name, ".running_var") ? 1.0F : 0.0F;
  }
  for (int64_t i = 0; i < count; i++) params[item.offset + i] = middle + uniform_at(base, i) * bound;
}

/* ---- the run ---- */

static void read_golden(const char *name, struct golden *golden) {
  char path[1024], line[256];
  const char *folder = getenv("CONVOY_GOLDEN"); /* for a build that was moved to another machine */
  snprintf(path, sizeof path, "%s/%s.txt", folder ? folder : GOLDEN_FOLDER, name);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  int steps = 0, evals = 0;
  while (fgets(line, sizeof line, file)) {
    int step, correct;
    double loss;
    if (sscanf(line, "step %d %lf", &step, &loss) == 2) {
      assert_true(step == steps + 1 && step <= STEPS);
      golden->loss[steps++] = loss;
    } else if (sscanf(line, "eval %d %lf %d", &step, &loss, &correct) == 3) {
      assert_true(evals < EVALS);
      golden->eval_after[evals] = step;
      golden->eval_loss[evals] = loss;
      golden->eval_correct[evals++] = correct;
    }
  }
  fclose(file);
  assert_int_equal(steps, STEPS);
  assert_int_equal(evals, EVALS);
}

struct run {
  struct backend *backend;
  struct graph *graph;
  struct net *net;
  struct net_data data;
  uint8_t *images;
  int32_t *labels;
};

static void run_open(const struct golden_case *c, struct run *run) {
  struct backend_options options = {
      .precision = PRECISION_FP32, .deterministic = true, .init_timeout_seconds = 60};
  struct net_options net_options = c->options;
  int64_t count = STEPS * c->batch;
  must(table->open(&world, &options, &run->backend));
  must(zoo_build(c->model, SIDE, SIDE, CHANNELS, CLASSES, &run->graph));
  if (c->lora) must(graph_adapt(run->graph, c->lora, c->lora_alpha));
  must(graph_fuse(run->graph));
  net_options.train_batch[0] = c->batch;
  net_options.eval_batch[0] = EVAL_COUNT;
  net_options.plan_samples = count;
  net_options.plan_steps = STEPS;
  must(net_create(run->backend, run->graph, &net_options, &run->net));

  run->images = malloc((size_t)count * SIDE * SIDE * CHANNELS);
  run->labels = malloc((size_t)count * sizeof *run->labels);
  float *params = calloc((size_t)net_region_count(run->net, NET_PARAMS), sizeof *params);
  assert_true(run->images && run->labels && params);
  fill_images(count, run->images, run->labels);
  for (int i = 0; i < net_item_count(run->net); i++)
    fill_item(run->net, net_item(run->net, i), c->gain, params);
  must(net_write(run->net, NET_PARAMS, params));
  free(params);

  const void *images, *labels;
  must(table->resident(run->backend, run->images, (size_t)count * SIDE * SIDE * CHANNELS, &images));
  must(table->resident(run->backend, run->labels, (size_t)count * sizeof *run->labels, &labels));
  run->data = (struct net_data){.images = images, .labels = labels};
  memcpy(run->data.mean, c->mean, sizeof c->mean);
  memcpy(run->data.std, c->std, sizeof c->std);
}

static void run_close(struct run *run) {
  table->release_resident(run->backend, run->data.images);
  table->release_resident(run->backend, run->data.labels);
  net_destroy(run->net);
  graph_destroy(run->graph);
  table->close(run->backend);
  free(run->images);
  free(run->labels);
}

/* Loads the plan of `count` steps from 0-based step `first` on; the samples in their order. */
static void plan_steps(struct run *run, const struct golden_case *c, int first, int count) {
  struct sample *list = calloc((size_t)(count * c->batch), sizeof *list);
  struct step_row rows[STEPS];
  assert_non_null(list);
  for (int64_t i = 0; i < count * c->batch; i++) list[i].index = (uint32_t)(first * c->batch + i);
  for (int s = 0; s < count; s++)
    rows[s] = (struct step_row){.first = (uint32_t)(s * c->batch),
                                .learning_rate = c->learning_rate,
                                .scale = 1.0F / (float)c->batch,
                                .correction1 = (float)(1.0 - pow(c->options.beta1, first + s + 1)),
                                .correction2 = (float)(1.0 - pow(c->options.beta2, first + s + 1))};
  must(net_plan(run->net, list, count * c->batch, rows, count));
  free(list);
}

static void evaluate(struct run *run, struct net_metrics *metrics) {
  struct sample list[EVAL_COUNT] = {{0}};
  struct step_row row = {.scale = 1.0F / EVAL_COUNT};
  uint64_t ticket;
  for (int i = 0; i < EVAL_COUNT; i++) list[i].index = (uint32_t)i;
  must(net_plan(run->net, list, EVAL_COUNT, &row, 1));
  must(net_eval_step(run->net, &run->data, EVAL_COUNT, &ticket));
  must(net_metrics(run->net, ticket, metrics));
}

/* 1 if `found` is farther from `expected` than allowed; prints each comparison. */
static int compare(const char *what, int step, double found, double expected, double tolerance) {
  double error = fabs(found - expected) / fabs(expected);
  int bad = !(error <= tolerance);
  printf("%s %2d  %.9g  PyTorch %.9g  relative %.1e of %.0e%s\n", what, step, found, expected, error,
         tolerance, bad ? "  TOO FAR" : "");
  return bad;
}

static void check_case(const struct golden_case *c) {
  struct golden golden;
  struct run run = {0};
  struct net_metrics metrics;
  int bad = 0, step = 0;
  printf("%s on %s\n", c->file, table->name);
  read_golden(c->file, &golden);
  run_open(c, &run);
  for (int e = 0; e < EVALS; e++) {
    plan_steps(&run, c, step, golden.eval_after[e] - step);
    for (; step < golden.eval_after[e]; step++) {
      uint64_t ticket;
      must(net_train_step(run.net, &run.data, c->batch, &ticket));
      must(net_metrics(run.net, ticket, &metrics));
      double tolerance = step < c->tight_steps ? 1e-4 : c->later_tolerance;
      bad += compare("step", step + 1, metrics.loss_sum / (double)c->batch, golden.loss[step], tolerance);
    }
    evaluate(&run, &metrics);
    double tolerance = step <= c->tight_steps ? 1e-3 : c->later_tolerance;
    bad += compare("eval", step, metrics.loss_sum / EVAL_COUNT, golden.eval_loss[e], tolerance);
    if (fabs(metrics.correct - golden.eval_correct[e]) > 1) {
      printf("eval %2d  correct %.0f, PyTorch %d\n", step, metrics.correct, golden.eval_correct[e]);
      bad++;
    }
  }
  run_close(&run);
  assert_int_equal(step, STEPS);
  assert_int_equal(bad, 0);
}

static void test_simplecnn(void **state) {
  (void)state;
  check_case(&cases[0]);
}

static void test_resnet18(void **state) {
  (void)state;
  check_case(&cases[1]);
}

static void test_resnet20_lora(void **state) {
  (void)state;
  check_case(&cases[2]);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_simplecnn), cmocka_unit_test(test_resnet18),
                                     cmocka_unit_test(test_resnet20_lora)};
  if (argc != 2) {
    fprintf(stderr, "usage: %s cpu|cuda\n", argv[0]);
    return 2;
  }
  if (backend_find(strcmp(argv[1], "cuda") == 0 ? "auto" : argv[1], &table) != STATUS_OK) {
    error_print(stderr);
    return 2;
  }
  if (strcmp(table->name, argv[1]) != 0) {
    printf("no %s device: skipped\n", argv[1]);
    return SKIPPED;
  }
  if (world_open(&world) != STATUS_OK) {
    error_print(stderr);
    return 2;
  }
  int failed = cmocka_run_group_tests_name("golden", tests, NULL, NULL);
  world_close(&world);
  return failed ? 1 : 0;
}
