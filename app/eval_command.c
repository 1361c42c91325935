/* `convoy eval`: accuracy and loss of a checkpoint on the test shards. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "app/checkpoint.h"
#include "app/evaluate.h"
#include "app/record.h"
#include "app/signals.h"
#include "app/snapshot.h"
#include "app/watchdog.h"
#include "model/base/log.h"

struct eval_options {
  char data[OPTION_TEXT], checkpoint[OPTION_TEXT], config[OPTION_TEXT], plan_cache[OPTION_TEXT];
  int64_t eval_batch, threads, init_timeout, comm_timeout;
  int backend, precision;
  bool quiet;
};

#define FIELD(member) .offset = offsetof(struct eval_options, member)
static const struct option_row rows[] = {
    {.name = "data",
     .type = OPTION_TEXT_VALUE,
     FIELD(data),
     .value = "DIR",
     .flags = OPTION_REQUIRED,
     .help = "folder of shards"},
    {.name = "checkpoint",
     .type = OPTION_TEXT_VALUE,
     FIELD(checkpoint),
     .value = "FILE|RUNDIR",
     .flags = OPTION_REQUIRED,
     .help = "a checkpoint, or a run's folder: its newest"},
    {.name = "config",
     .type = OPTION_TEXT_VALUE,
     FIELD(config),
     .value = "FILE",
     .flags = OPTION_CONFIG,
     .help = "lines `name = value`; the command line wins"},
    {.name = "eval-batch",
     .type = OPTION_INTEGER,
     FIELD(eval_batch),
     .least = 1,
     .most = 1e6,
     .initial = "250",
     .value = "N",
     .help = "images a rank takes at once"},
    {.name = "backend",
     .type = OPTION_CHOICE,
     FIELD(backend),
     .choice = backend_choices,
     .initial = "auto",
     .help = "auto: cuda where a GPU is visible"},
    {.name = "precision",
     .type = OPTION_CHOICE,
     FIELD(precision),
     .choice = precision_choices,
     .initial = "fp32",
     .help = "of activations and products"},
    {.name = "threads",
     .type = OPTION_INTEGER,
     FIELD(threads),
     .least = 1,
     .most = 4096,
     .value = "N",
     .help = "CPU threads a rank (default: its share of the cores)"},
    {.name = "plan-cache",
     .type = OPTION_TEXT_VALUE,
     FIELD(plan_cache),
     .value = "DIR|none",
     .help = "where a GPU's timed algorithms are kept (default: ~/.cache/convoy)"},
    {.name = "init-timeout",
     .type = OPTION_INTEGER,
     FIELD(init_timeout),
     .least = 1,
     .most = 86400,
     .initial = "180",
     .value = "SECONDS",
     .help = "for the ranks to find each other"},
    {.name = "comm-timeout",
     .type = OPTION_INTEGER,
     FIELD(comm_timeout),
     .least = 1,
     .most = 86400,
     .initial = "120",
     .value = "SECONDS",
     .help = "a rank that is silent for so long ends the job"},
    {.name = "quiet", .letter = 'q', .type = OPTION_FLAG, FIELD(quiet), .help = "only the result"},
};
const struct option_table eval_table = {
    .command = "convoy eval",
    .summary = "Evaluates a checkpoint on the test shards; the last line is one JSON object.",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

/* What the checkpoint says that an evaluation needs; the same on all ranks. */
struct header {
  char model[OPTION_TEXT], image[RECORD_VALUE], classes[RECORD_VALUE];
  float mean[4], std[4];
  int64_t step;
};

/* Rank 0 opens the checkpoint and reads its facts. */
static enum status read_header(const char *path, struct checkpoint **checkpoint, struct header *header) {
  TRY(checkpoint_find(path, checkpoint));
  static const char *const names[] = {"model", "image", "classes", "mean", "std"};
  const char *value[5];
  for (int i = 0; i < 5; i++) {
    value[i] = checkpoint_option(*checkpoint, names[i]);
    if (!value[i])
      return RAISE(STATUS_INPUT, "%s does not say its %s; expected a checkpoint of convoy train",
                   checkpoint_name(*checkpoint), names[i]);
  }
  snprintf(header->model, sizeof header->model, "%s", value[0]);
  snprintf(header->image, sizeof header->image, "%s", value[1]);
  snprintf(header->classes, sizeof header->classes, "%s", value[2]);
  if (record_numbers(value[3], header->mean) == 0 || record_numbers(value[4], header->std) == 0)
    return RAISE(STATUS_INPUT, "%s: mean '%s' and std '%s' are not lists of numbers",
                 checkpoint_name(*checkpoint), value[3], value[4]);
  header->step = checkpoint_progress(*checkpoint)->step;
  log_info("checkpoint: %s, step %" PRId64 ", model %s", checkpoint_name(*checkpoint), header->step,
           header->model);
  return STATUS_OK;
}

/* The data must be of the model's kind: as many classes, images of the same size. */
static enum status check_data(const struct dataset *dataset, const struct header *header) {
  char image[RECORD_VALUE], classes[RECORD_VALUE];
  snprintf(image, sizeof image, "%dx%dx%d", dataset->height, dataset->width, dataset->channels);
  snprintf(classes, sizeof classes, "%d", dataset->classes);
  if (strcmp(image, header->image) != 0 || strcmp(classes, header->classes) != 0)
    return RAISE(STATUS_INPUT,
                 "the data has images of %s in %s classes; the checkpoint's model takes %s in %s", image,
                 classes, header->image, header->classes);
  return STATUS_OK;
}

static enum status load(struct session *session, const struct checkpoint *checkpoint) {
  struct snapshot snapshot;
  TRY(snapshot_create(session->backend, session->net, OPTIMIZER_SGD, false, &snapshot));
  enum status status;
  TRY_OUT(checkpoint_read(checkpoint, snapshot.items, snapshot.item_count));
  TRY_OUT(snapshot_put(&snapshot));
out:
  snapshot_destroy(&snapshot);
  return status;
}

static enum status start(struct session *session, const struct eval_options *options,
                         const struct header *header) {
  struct session_plan plan = {
      .model = header->model,
      .backend = backend_choices[options->backend],
      .fuse = true,
      .plan_cache = options->plan_cache,
      .eval_batch = options->eval_batch,
      .device = {.precision = (enum precision)options->precision,
                 .threads = (int)options->threads,
                 .init_timeout_seconds = (int)options->init_timeout},
      .net = {.optimizer = OPTIMIZER_SGD},
  };
  memcpy(plan.mean, header->mean, sizeof plan.mean);
  memcpy(plan.std, header->std, sizeof plan.std);
  TRY(session_start(session, &plan));
  log_info("%s, %s, %d rank%s", session->backend->description, precision_choices[options->precision],
           session->world->size, session->world->size == 1 ? "" : "s");
  return STATUS_OK;
}

/* JSON has no word for a loss that is not finite. */
static void print_result(const struct evaluation *result) {
  char loss[32] = "null";
  if (isfinite(result->loss)) snprintf(loss, sizeof loss, "%.9g", result->loss);
  printf("{\"samples\":%" PRId64 ",\"correct\":%" PRId64 ",\"accuracy\":%.9g,\"loss\":%s}\n", result->samples,
         result->correct, (double)result->correct / (double)result->samples, loss);
}

static enum status run(const struct world *world, const struct eval_options *options,
                       struct checkpoint **checkpoint, struct session *session) {
  struct header header = {0};
  struct evaluation result;
  TRY(world_agree(world,
                  world->rank == 0 ? read_header(options->checkpoint, checkpoint, &header) : STATUS_OK));
  TRY(world_broadcast(world, &header, sizeof header, 0));
  TRY(session_open(world, options->data, DATASET_TEST | DATASET_CHECKED, session));
  TRY(world_agree(world, check_data(session->dataset, &header)));
  TRY(start(session, options, &header));
  TRY(world_agree(world, world->rank == 0 ? load(session, *checkpoint) : STATUS_OK));
  TRY(net_broadcast(session->net));
  TRY(evaluate(session, true, &result));
  if (world->rank == 0) print_result(&result);
  return STATUS_OK;
}

enum status eval_command(int argc, char **argv, const struct world *world) {
  struct eval_options options = {0};
  TRY(world_agree(world, options_parse(&eval_table, argc, argv, &options)));
  log_open(world->rank, world->host, options.quiet);
  signals_install();
  struct checkpoint *checkpoint = NULL;
  struct session session = {0};
  struct watchdog *watchdog;
  enum status status = watchdog_start(world, (int)options.init_timeout, (int)options.comm_timeout, &watchdog);
  if (status == STATUS_OK) status = run(world, &options, &checkpoint, &session);
  checkpoint_close(checkpoint);
  session_close(&session, status);
  watchdog_stop(watchdog, status);
  return status;
}
