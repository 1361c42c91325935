/* `convoy bench step`: each part of a model's training step timed by itself, then the whole recorded step, on
 * random images. Needs no data set. */
#include "app/bench.h"

#include <stdlib.h>
#include <string.h>

#include "app/bench_ceiling.h"
#include "app/train_options.h"
#include "data/sampler.h"
#include "model/base/clock.h"
#include "model/base/log.h"
#include "model/base/random.h"
#include "model/net/profile.h"
#include "model/zoo/zoo.h"

struct bench_options {
  char model[OPTION_TEXT];
  int64_t batch, size, classes, steps, repeats, threads;
  int precision, backend, optimizer;
  bool deterministic;
};

static const char *const optimizers[] = {"sgd", "adam", "adamw", NULL}; /* by enum optimizer_kind */

#define FIELD(member) .offset = offsetof(struct bench_options, member)
/* clang-format off */
static const struct option_row rows[] = {
    {.name = "model", .type = OPTION_TEXT_VALUE, FIELD(model), .initial = "resnet18", .value = "NAME", .help = "model to time"},
    {.name = "batch", .type = OPTION_INTEGER, FIELD(batch), .least = 1, .most = 1e6, .initial = "512", .value = "N", .help = "images a step over all ranks"},
    {.name = "size", .type = OPTION_INTEGER, FIELD(size), .least = 8, .most = 1024, .initial = "32", .value = "N", .help = "pixels of a side"},
    {.name = "classes", .type = OPTION_INTEGER, FIELD(classes), .least = 2, .most = 1000, .initial = "10", .value = "N", .help = "classes"},
    {.name = "optimizer", .type = OPTION_CHOICE, FIELD(optimizer), .choice = optimizers, .initial = "sgd", .help = "update to time"},
    {.name = "precision", .type = OPTION_CHOICE, FIELD(precision), .choice = precision_choices, .initial = "fp32", .help = "of activations and products"},
    {.name = "backend", .type = OPTION_CHOICE, FIELD(backend), .choice = backend_choices, .initial = "auto", .help = "auto: cuda where a GPU is visible"},
    {.name = "deterministic", .type = OPTION_FLAG, FIELD(deterministic), .help = "only algorithms whose sums have a fixed order"},
    {.name = "steps", .type = OPTION_INTEGER, FIELD(steps), .least = 1, .most = 1e6, .initial = "30", .value = "N", .help = "whole steps in each of five windows"},
    {.name = "repeats", .type = OPTION_INTEGER, FIELD(repeats), .least = 1, .most = 1000, .initial = "10", .value = "N", .help = "runs of a part in each of its five windows"},
    {.name = "threads", .type = OPTION_INTEGER, FIELD(threads), .least = 1, .most = 4096, .value = "N", .help = "CPU threads a rank (default: its share of the cores)"},
};
/* clang-format on */
static const struct option_table table = {
    .command = "convoy bench step",
    .summary = "Times a training step and each of its parts on random images.",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

void bench_help(int argc, char **argv, FILE *stream) {
  (void)argc, (void)argv;
  options_help(&table, stream);
}

struct bench {
  const struct world *world;
  struct bench_options options;
  struct graph *graph;
  struct backend *backend;
  struct net *net;
  uint8_t *images;
  int32_t *labels;
  struct sample *list;
  struct step_row *rows;
  struct net_data data;
  int64_t batch; /* of this rank */
};

/* Random images for four steps; every step's list walks through them. */
static enum status make_data(struct bench *bench) {
  const struct bench_options *o = &bench->options;
  size_t count = (size_t)(4 * bench->batch), bytes = count * (size_t)(o->size * o->size) * 3;
  struct random_key key = random_key(1, RANDOM_SYNTH, 0);
  bench->images = malloc(bytes);
  bench->labels = calloc(count, sizeof *bench->labels);
  bench->list = calloc(count, sizeof *bench->list);
  bench->rows = calloc((size_t)o->steps, sizeof *bench->rows);
  if (!bench->images || !bench->labels || !bench->list || !bench->rows)
    return RAISE(STATUS_INPUT, "out of memory");
  for (size_t i = 0; i < bytes; i++) bench->images[i] = (uint8_t)random_below(key, i, 256);
  for (size_t i = 0; i < count; i++) {
    bench->labels[i] = (int32_t)random_below(key, bytes + i, (uint32_t)o->classes);
    bench->list[i] =
        (struct sample){.index = (uint32_t)i, .shift_y = (int8_t)(i % 9 - 4), .flip = (uint8_t)(i % 2)};
  }
  for (int64_t s = 0; s < o->steps; s++)
    bench->rows[s] = (struct step_row){.first = (uint32_t)(s % 4 * bench->batch),
                                       .learning_rate = 1e-4f,
                                       .scale = 1.0f / (float)o->batch,
                                       .correction1 = 0.1f,
                                       .correction2 = 0.001f};
  const void *images, *labels;
  TRY(bench->backend->table->resident(bench->backend, bench->images, bytes, &images));
  bench->data.images = images;
  TRY(bench->backend->table->resident(bench->backend, bench->labels, count * sizeof *bench->labels, &labels));
  bench->data.labels = labels;
  for (int c = 0; c < 4; c++) bench->data.mean[c] = 0.5f, bench->data.std[c] = 0.25f;
  return STATUS_OK;
}

static enum status open_all(struct bench *bench) {
  const struct bench_options *o = &bench->options;
  const struct backend_table *backend;
  int64_t first;
  struct backend_options device = {.precision = (enum precision)o->precision,
                                   .deterministic = o->deterministic,
                                   .threads = (int)o->threads,
                                   .init_timeout_seconds = 180};
  sampler_part(o->batch, bench->world->rank, bench->world->size, &first, &bench->batch);
  if (o->batch < bench->world->size)
    return RAISE(STATUS_INPUT, "--batch %lld for %d ranks: at least one image a rank is needed",
                 (long long)o->batch, bench->world->size);
  TRY(zoo_build(o->model, (int)o->size, (int)o->size, 3, (int)o->classes, &bench->graph));
  TRY(graph_fuse(bench->graph));
  TRY(backend_find(backend_choices[o->backend], &backend));
  TRY(backend->open(bench->world, &device, &bench->backend));
  struct net_options net = {.optimizer = (enum optimizer_kind)o->optimizer,
                            .momentum = 0.9f,
                            .beta1 = 0.9f,
                            .beta2 = 0.999f,
                            .epsilon = 1e-8f,
                            .weight_decay = 5e-4f,
                            .train_batch = {bench->batch},
                            .plan_samples = 4 * bench->batch,
                            .plan_steps = o->steps};
  TRY(net_create(bench->backend, bench->graph, &net, &bench->net));
  TRY(make_data(bench));
  return net_init(bench->net, 1);
}

static void close_all(struct bench *bench) {
  if (bench->backend) {
    bench->backend->table->release_resident(bench->backend, bench->data.images);
    bench->backend->table->release_resident(bench->backend, bench->data.labels);
    net_destroy(bench->net);
    bench->backend->table->close(bench->backend);
  }
  graph_destroy(bench->graph);
  free(bench->images);
  free(bench->labels);
  free(bench->list);
  free(bench->rows);
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Median, least and largest seconds of a whole step over five windows, after one that records. */
static enum status time_steps(struct bench *bench, double seconds[3]) {
  double window[6];
  for (int w = 0; w < 6; w++) {
    uint64_t ticket = 0;
    struct net_metrics metrics;
    TRY(net_plan(bench->net, bench->list, 4 * bench->batch, bench->rows, bench->options.steps));
    TRY(world_barrier(bench->world));
    double begin = clock_seconds();
    for (int64_t s = 0; s < bench->options.steps; s++)
      TRY(net_train_step(bench->net, &bench->data, bench->batch, &ticket));
    TRY(net_metrics(bench->net, ticket, &metrics));
    window[w] = (clock_seconds() - begin) / (double)bench->options.steps;
  }
  qsort(window + 1, 5, sizeof *window, by_value);
  seconds[0] = window[3];
  seconds[1] = window[1];
  seconds[2] = window[5];
  return STATUS_OK;
}

static void print_rows(const struct net_profile_row *row, int count, const struct bench_ceiling *ceiling) {
  double sum = 0, pass_sum = 0, floor = 0;
  log_info("%-10s %-12s %-24s %9s %9s %9s %6s", "pass", "op", "name", "ms", "GB/s", "TFLOP/s", "floor");
  for (int i = 0; i < count; i++) {
    double seconds = row[i].milliseconds * 1e-3, memory = row[i].bytes / ceiling->bytes_per_s;
    double products = row[i].operations / ceiling->operations_per_s,
           least = memory > products ? memory : products;
    log_info("%-10s %-12s %-24s %9.4f %9.1f %9.2f %5.0f%%", row[i].pass, row[i].op, row[i].name,
             row[i].milliseconds, row[i].bytes / seconds * 1e-9, row[i].operations / seconds * 1e-12,
             100 * least / seconds);
    sum += row[i].milliseconds;
    pass_sum += row[i].milliseconds;
    floor += least * 1e3;
    if (i + 1 == count || strcmp(row[i].pass, row[i + 1].pass) != 0) {
      log_info("%-10s %-37s %9.4f", row[i].pass, "in all", pass_sum);
      pass_sum = 0;
    }
  }
  log_info("parts %.4f ms; floor of the parts by traffic and products %.4f ms", sum, floor);
}

static enum status run(struct bench *bench) {
  const struct bench_options *o = &bench->options;
  bool cpu = strcmp(bench->backend->table->name, "cpu") == 0;
  struct bench_ceiling ceiling = {.memory_elements = cpu ? 16 << 20 : 256 << 20,
                                  .matrix_side = cpu ? 1024 : 8192};
  struct net_profile_row *row = NULL;
  double seconds[3];
  int count = 0;
  char plan[512];
  net_describe(bench->net, plan, sizeof plan);
  log_info("%s; %d rank%s; %s; batch %lld; %s", bench->backend->description, bench->world->size,
           bench->world->size == 1 ? "" : "s", o->model, (long long)o->batch,
           precision_choices[o->precision]);
  log_info("%s", plan);
  TRY(bench_ceiling(bench->backend, &ceiling));
  log_info("ceilings: %.0f GB/s, %.1f TFLOP/s", ceiling.bytes_per_s * 1e-9, ceiling.operations_per_s * 1e-12);
  TRY(net_plan(bench->net, bench->list, 4 * bench->batch, bench->rows, 1));
  TRY(net_profile(bench->net, &bench->data, (int)o->repeats, &row, &count));
  print_rows(row, count, &ceiling);
  free(row);
  TRY(time_steps(bench, seconds));
  log_info("step: %.4f ms (%.4f to %.4f in 5 windows), %.0f images/s", seconds[0] * 1e3, seconds[1] * 1e3,
           seconds[2] * 1e3, (double)o->batch / seconds[0]);
  return STATUS_OK;
}

enum status bench_command(int argc, char **argv, const struct world *world) {
  struct bench bench = {.world = world};
  enum status status = STATUS_OK;
  if (argc < 2 || strcmp(argv[1], "step") != 0)
    status =
        RAISE(STATUS_INPUT, "convoy bench: '%s' is not one of its commands: step", argc < 2 ? "" : argv[1]);
  if (status == STATUS_OK) status = options_parse(&table, argc - 1, argv + 1, &bench.options);
  TRY(world_agree(world, status));
  status = open_all(&bench);
  if (status == STATUS_OK) status = run(&bench);
  status = world_agree(world, status);
  close_all(&bench);
  return status;
}
