/* `convoy eval`: accuracy and loss of a checkpoint on the test shards. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "app/evaluate.h"
#include "app/option_rows.h"
#include "app/signals.h"
#include "app/trained.h"
#include "app/watchdog.h"
#include "model/base/log.h"

struct eval_options {
  char data[OPTION_TEXT], checkpoint[OPTION_TEXT], config[OPTION_TEXT], plan_cache[OPTION_TEXT];
  int64_t eval_batch, threads, init_timeout, comm_timeout;
  int backend, precision;
  bool quiet;
};

#define OPTION_STRUCT struct eval_options
// clang-format off
static const struct option_row rows[] = {
    TEXT("data", data, NULL, "DIR", OPTION_REQUIRED, "folder of shards"),
    ROW_CHECKPOINT,
    ROW_CONFIG,
    INTEGER("eval-batch", eval_batch, 1, 1e6, "250", "N", 0, "images a rank takes at once"),
    ROW_BACKEND,
    ROW_PRECISION,
    INTEGER("threads", threads, 1, 4096, NULL, "N", OPTION_OWN, "CPU threads a rank (default: its share of the cores)"),
    ROW_PLAN_CACHE,
    ROW_INIT_TIMEOUT,
    ROW_COMM_TIMEOUT,
    FLAG("quiet", quiet, OPTION_OWN, "only the result", .letter = 'q'),
};
// clang-format on
const struct option_table eval_table = OPTION_TABLE(
    "eval", "Evaluates a checkpoint on the test shards; the last line is one JSON object.", rows);

/* What the checkpoint says that an evaluation needs; the same on all ranks. */
struct header {
  char model[OPTION_TEXT];
  int height, width, channels, classes;
  float mean[4], std[4];
};

/* Rank 0 opens the checkpoint and reads its facts. */
static enum status read_header(const char *path, struct trained *trained, struct header *header) {
  TRY(trained_open(path, trained));
  const struct graph *graph = trained->graph;
  *header = (struct header){
      .height = graph->height, .width = graph->width, .channels = graph->channels, .classes = graph->classes};
  snprintf(header->model, sizeof header->model, "%s", trained->model);
  memcpy(header->mean, trained->mean, sizeof header->mean);
  memcpy(header->std, trained->std, sizeof header->std);
  log_info("checkpoint: %s, step %" PRId64 ", model %s", checkpoint_name(trained->checkpoint),
           checkpoint_progress(trained->checkpoint)->step, header->model);
  return STATUS_OK;
}

/* The data must be of the model's kind: as many classes, images of the same size. */
static enum status check_data(const struct dataset *d, const struct header *header) {
  if (d->height != header->height || d->width != header->width || d->channels != header->channels ||
      d->classes != header->classes)
    return RAISE(STATUS_INPUT,
                 "the data has images of %dx%dx%d in %d classes; the checkpoint's model takes %dx%dx%d in %d",
                 d->height, d->width, d->channels, d->classes, header->height, header->width,
                 header->channels, header->classes);
  return STATUS_OK;
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

static enum status run(const struct world *world, const struct eval_options *options, struct trained *trained,
                       struct session *session) {
  struct header header = {0};
  struct evaluation result;
  TRY(world_agree(world, world->rank == 0 ? read_header(options->checkpoint, trained, &header) : STATUS_OK));
  TRY(world_broadcast(world, &header, sizeof header, 0));
  TRY(session_open(world, options->data, DATASET_TEST | DATASET_CHECKED, session));
  TRY(world_agree(world, check_data(session->dataset, &header)));
  TRY(start(session, options, &header));
  enum status loaded =
      world->rank == 0 ? trained_load(trained->checkpoint, session->backend, session->net) : STATUS_OK;
  TRY(world_agree(world, loaded));
  TRY(net_broadcast(session->net));
  TRY(evaluate(session, true, &result));
  if (world->rank == 0) print_result(&result);
  return STATUS_OK;
}

enum status eval_command(int argc, char **argv, const struct world *world) {
  struct eval_options options = {0};
  TRY(options_agree(world, &eval_table, &options, options_parse(&eval_table, argc, argv, &options)));
  log_open(world->rank, world->host, options.quiet);
  struct trained trained = {.graph = NULL};
  struct session session = {0};
  struct watchdog *watchdog;
  enum status status = watchdog_start(world, (int)options.init_timeout, (int)options.comm_timeout, &watchdog);
  if (status == STATUS_OK) status = run(world, &options, &trained, &session);
  trained_close(&trained);
  session_close(&session, status);
  watchdog_stop(watchdog, status);
  return status;
}
