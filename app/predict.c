/* The command `convoy predict`; see predict.h. One rank, batch by batch; but for the last digits, a file's
 * result does not depend on the others. */
#include "app/predict.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/option_rows.h"
#include "app/predict_image.h"
#include "app/train_options.h"
#include "app/trained.h"
#include "app/utf8.h"
#include "model/base/log.h"

struct predict_options {
  char checkpoint[OPTION_TEXT];
  struct option_words images;
  int64_t batch, threads;
  int backend, precision;
  bool json;
};

#define OPTION_STRUCT struct predict_options
// clang-format off
static const struct option_row rows[] = {
    WORDS("image", images, "IMAGE|FOLDER", OPTION_REQUIRED, "JPEG or PNG files, or folders of them; any number"),
    ROW_CHECKPOINT,
    FLAG("json", json, 0, "one JSON object a line, with all logits"),
    INTEGER("batch", batch, 1, 1e6, "100", "N", 0, "images at once"),
    ROW_BACKEND,
    ROW_PRECISION,
    INTEGER("threads", threads, 1, 4096, NULL, "N", 0, "CPU threads (default: all cores that it may use)"),
};
// clang-format on
const struct option_table predict_table =
    OPTION_TABLE("predict", "Tells the class of image files and its probability.", rows);

/* What a prediction computes with. */
struct predictor {
  struct trained trained;
  struct predict_list list;
  struct backend *backend;
  struct net *net;
  int64_t batch;
  uint8_t *pixels;       /* host: one batch */
  float *logits;         /* host: one batch */
  void *images, *labels; /* device: one batch */
};

/* ---- set-up ---- */

static size_t image_bytes(const struct graph *graph) {
  return (size_t)graph->height * (size_t)graph->width * (size_t)graph->channels;
}

static enum status allocate(struct predictor *predictor) {
  const struct graph *graph = predictor->trained.graph;
  const struct backend_table *table_of = predictor->backend->table;
  size_t batch = (size_t)predictor->batch;
  predictor->pixels = malloc(batch * image_bytes(graph));
  predictor->logits = malloc(batch * (size_t)graph->classes * sizeof *predictor->logits);
  if (!predictor->pixels || !predictor->logits)
    return RAISE(STATUS_INPUT, "no memory for %zu images; lower --batch", batch);
  TRY(table_of->alloc(predictor->backend, batch * image_bytes(graph), &predictor->images));
  return table_of->alloc(predictor->backend, batch * sizeof(int32_t), &predictor->labels); /* all zero */
}

static enum status start(struct predictor *predictor, const struct predict_options *options,
                         const struct world *world) {
  const struct backend_table *table_of;
  TRY(trained_open(options->checkpoint, &predictor->trained));
  for (int i = 0; i < options->images.count; i++)
    TRY(predict_list_add(&predictor->list, options->images.word[i]));
  int64_t count = predictor->list.count;
  predictor->batch = count < options->batch ? count : options->batch;
  TRY(graph_fuse(predictor->trained.graph));
  TRY(backend_find(backend_choices[options->backend], &table_of));
  struct backend_options device = {.precision = (enum precision)options->precision,
                                   .threads = (int)options->threads};
  TRY(table_of->open(world, &device, &predictor->backend));
  struct net_options net = {.optimizer = OPTIMIZER_SGD,
                            .eval_batch = {predictor->batch, count % predictor->batch},
                            .plan_samples = predictor->batch,
                            .plan_steps = 1};
  TRY(net_create(predictor->backend, predictor->trained.graph, &net, &predictor->net));
  TRY(trained_load(predictor->trained.checkpoint, predictor->backend, predictor->net));
  return allocate(predictor);
}

static void stop(struct predictor *predictor) {
  struct backend *backend = predictor->backend;
  if (backend) {
    backend->table->release(backend, predictor->images);
    backend->table->release(backend, predictor->labels);
  }
  net_destroy(predictor->net);
  if (backend) backend->table->close(backend);
  free(predictor->pixels);
  free(predictor->logits);
  predict_list_destroy(&predictor->list);
  trained_close(&predictor->trained);
}

/* ---- a batch ---- */

static enum status forward(struct predictor *predictor, int64_t count) {
  struct net *net = predictor->net;
  struct sample *list = calloc((size_t)count, sizeof *list);
  if (!list) return RAISE(STATUS_INPUT, "no memory for a list of %lld images", (long long)count);
  for (int64_t i = 0; i < count; i++) list[i].index = (uint32_t)i;
  enum status status = net_plan(net, list, count, &(struct step_row){.scale = 1.0f / (float)count}, 1);
  free(list);
  if (status != STATUS_OK) return error_trace(status, __func__);
  struct net_data data = {.images = predictor->images, .labels = predictor->labels};
  memcpy(data.mean, predictor->trained.mean, sizeof data.mean);
  memcpy(data.std, predictor->trained.std, sizeof data.std);
  for (int c = predictor->trained.graph->channels; c < 4; c++) data.std[c] = 1;
  uint64_t ticket;
  TRY(net_eval_step(net, &data, count, &ticket));
  return net_logits(net, count, predictor->logits);
}

static enum status predict_batch(struct predictor *predictor, int64_t first, int64_t count) {
  const struct graph *graph = predictor->trained.graph;
  for (int64_t i = 0; i < count; i++)
    TRY(predict_image(predictor->list.path[first + i], graph->height, graph->width, graph->channels,
                      predictor->pixels + (size_t)i * image_bytes(graph)));
  TRY(predictor->backend->table->upload(predictor->backend, predictor->images, predictor->pixels,
                                        (size_t)count * image_bytes(graph)));
  return forward(predictor, count);
}

/* ---- results ---- */

int predict_class(const float *logits, int classes, double *probability) {
  int best = 0;
  double sum = 0;
  for (int c = 1; c < classes; c++)
    if (logits[c] > logits[best]) best = c;
  for (int c = 0; c < classes; c++) sum += exp((double)logits[c] - (double)logits[best]);
  *probability = 1 / sum;
  return best;
}

static enum status print_json(const char *path, const char *name, int label, double probability,
                              const float *logits, int classes) {
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, "file", path);
  cJSON_AddStringToObject(object, "class", name);
  cJSON_AddNumberToObject(object, "label", label);
  char number[32];
  snprintf(number, sizeof number, "%.9g", probability);
  cJSON_AddRawToObject(object, "probability", number);
  cJSON *list = cJSON_AddArrayToObject(object, "logits");
  for (int c = 0; c < classes; c++) {
    snprintf(number, sizeof number, "%.9g", (double)logits[c]);
    cJSON_AddItemToArray(list, cJSON_CreateRaw(number));
  }
  char *text = cJSON_PrintUnformatted(object);
  if (text) {
    utf8_mend(text);
    puts(text);
  }
  free(text);
  cJSON_Delete(object);
  return text ? STATUS_OK : RAISE(STATUS_INPUT, "no memory for a line of results");
}

static const char *printable(const char *name, char text[PATH_MAX]) {
  snprintf(text, PATH_MAX, "%s", name);
  log_one_line(text);
  return text;
}

static enum status print_batch(const struct predictor *predictor, int64_t first, int64_t count, bool json,
                               int width) {
  int classes = predictor->trained.graph->classes;
  char path_text[PATH_MAX], name_text[PATH_MAX];
  for (int64_t i = 0; i < count; i++) {
    const char *path = predictor->list.path[first + i];
    const float *logits = predictor->logits + i * classes;
    for (int c = 0; c < classes; c++)
      if (!isfinite(logits[c]))
        return RAISE(STATUS_NUMERIC, "%s: the model's output is not finite; try another checkpoint", path);
    double probability;
    int label = predict_class(logits, classes, &probability);
    const char *name = predictor->trained.class_name[label];
    if (json)
      TRY(print_json(path, name, label, probability, logits, classes));
    else
      printf("%-*s  %-12s  %.4f\n", width, printable(path, path_text), printable(name, name_text),
             probability);
  }
  return STATUS_OK;
}

static enum status run(const struct predict_options *options, const struct world *world) {
  struct predictor predictor = {0};
  enum status status;
  int width = 4;
  TRY_OUT(start(&predictor, options, world));
  for (int64_t i = 0; i < predictor.list.count; i++) {
    int length = (int)strlen(predictor.list.path[i]);
    if (length > width) width = length;
  }
  if (!options->json) printf("%-*s  %-12s  %s\n", width, "file", "class", "probability");
  for (int64_t first = 0; first < predictor.list.count; first += predictor.batch) {
    int64_t left = predictor.list.count - first, count = left < predictor.batch ? left : predictor.batch;
    TRY_OUT(predict_batch(&predictor, first, count));
    TRY_OUT(print_batch(&predictor, first, count, options->json, width));
  }
out:
  stop(&predictor);
  return status;
}

enum status predict_command(int argc, char **argv, const struct world *world) {
  struct predict_options options = {.images = {.count = 0}};
  enum status status;
  TRY_OUT(
      options_agree(world, &predict_table, &options, options_parse(&predict_table, argc, argv, &options)));
  if (world->size > 1)
    TRY_OUT(world_agree(
        world, RAISE(STATUS_INPUT, "convoy predict runs on one rank; %d were started", world->size)));
  TRY_OUT(run(&options, world));
out:
  free((void *)options.images.word);
  return status;
}
