/* The command `convoy import-weights`: safetensors with torchvision's names become a checkpoint, which eval,
 * predict, export and train --init take. The way back of `convoy export --format safetensors`. */
#include "app/import_weights.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/export.h"
#include "app/option_rows.h"
#include "app/output.h"
#include "app/record.h"
#include "app/safetensors.h"
#include "model/base/folder.h"
#include "model/base/log.h"
#include "model/zoo/zoo.h"

static const int64_t most_steps =
    1000000000000; /* as --steps takes; a file that claims more is not believed */

struct import_options {
  char weights[OPTION_TEXT], out[OPTION_TEXT], model[OPTION_TEXT], image[OPTION_TEXT];
  struct option_triple mean, std;
  bool quiet;
};

#define OPTION_STRUCT struct import_options
// clang-format off
static const struct option_row rows[] = {
    TEXT("weights", weights, NULL, "FILE", OPTION_REQUIRED | OPTION_OPERAND, "a safetensors file with torchvision's names"),
    TEXT("out", out, NULL, "DIR", OPTION_REQUIRED, "folder for the checkpoint; without others", .letter = 'o'),
    TEXT("model", model, NULL, "NAME", 0, "its model (default: as the file's metadata says)"),
    TEXT("image", image, NULL, "HxWxC", 0, "size of the images (default: by the metadata, else 32x32x3)"),
    TRIPLE("mean", mean, -10, 10, NULL, "R,G,B", 0, "subtracted from pixels in 0..1 (default: by the metadata)"),
    TRIPLE("std", std, 0, 10, NULL, "R,G,B", ABOVE, "divides them (default: by the metadata)"),
    FLAG("quiet", quiet, OPTION_OWN, "say nothing", .letter = 'q'),
};
// clang-format on
const struct option_table import_weights_table = {
    .command = "convoy import-weights",
    .summary = "Makes a checkpoint of weights in a safetensors file.",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

/* What the checkpoint will say; an option wins over the file's metadata. */
struct facts {
  const char *model, *image;
  int height, width, channels, classes;
  char mean[RECORD_VALUE], std[RECORD_VALUE], class_count[16];
  char *class_names; /* owned; one a line */
};

/* ---- facts ---- */

static enum status moments(const struct safetensors *file, const char *name,
                           const struct option_triple *given, int channels, char text[RECORD_VALUE]) {
  const char *stored = safetensors_metadata(file, name);
  float number[4];
  if (given->count == 0 && !stored)
    return RAISE(STATUS_INPUT, "the file does not say by which %s its images were normalised; give --%s",
                 name, name);
  if (given->count == 0)
    snprintf(text, RECORD_VALUE, "%s", stored);
  else
    for (int c = 0, used = 0; c < channels && c < 3; c++)
      used += snprintf(text + used, RECORD_VALUE - (size_t)used, "%s%.9g", c ? "," : "",
                       given->value[given->count == 3 ? c : 0]);
  if (record_numbers(text, number) != channels)
    return RAISE(STATUS_INPUT, "%s is '%s'; expected %d numbers", name, text, channels);
  for (int c = 0; c < channels; c++)
    if (!isfinite(number[c]) || (strcmp(name, "std") == 0 && number[c] <= 0))
      return RAISE(STATUS_INPUT, "%s is '%s'; expected finite numbers%s", name, text,
                   strcmp(name, "std") == 0 ? " above 0" : "");
  return STATUS_OK;
}

/* The last layer's bias has as many elements as there are classes. */
static enum status count_classes(const struct safetensors *file, struct facts *facts) {
  struct graph *graph;
  struct tensor shape;
  TRY(zoo_build(facts->model, facts->height, facts->width, facts->channels, 2, &graph));
  char name[GRAPH_NAME];
  snprintf(name, sizeof name, "%s", graph->node[graph->logits - 1].param[1].name);
  graph_destroy(graph);
  if (!safetensors_shape(file, name, &shape) || shape.rank != 1 || shape.dim[0] < 2)
    return RAISE(STATUS_INPUT, "the file has no vector %s, the bias of %s's last layer", name, facts->model);
  facts->classes = (int)shape.dim[0];
  snprintf(facts->class_count, sizeof facts->class_count, "%d", facts->classes);
  return STATUS_OK;
}

/* The metadata's list of names, if it fits. */
static enum status name_classes(const struct safetensors *file, struct facts *facts) {
  const char *text = safetensors_metadata(file, "classes");
  size_t capacity = (text ? strlen(text) : 0) + 1, used = 0; /* JSON is never shorter than its names */
  cJSON *list = text ? cJSON_Parse(text) : NULL;
  bool fits = cJSON_IsArray(list) && cJSON_GetArraySize(list) == facts->classes;
  facts->class_names = calloc(1, capacity);
  const cJSON *name;
  cJSON_ArrayForEach(name, list) {
    if (!fits || !facts->class_names || !cJSON_IsString(name) || used >= capacity) break;
    used += (size_t)snprintf(facts->class_names + used, capacity - used, "%s%s", used ? "\n" : "",
                             name->valuestring);
  }
  cJSON_Delete(list);
  return facts->class_names ? STATUS_OK : RAISE(STATUS_INPUT, "no memory for the names of the classes");
}

static enum status find_facts(const struct safetensors *file, const struct import_options *options,
                              struct facts *facts) {
  facts->model = options->model[0] ? options->model : safetensors_metadata(file, "model");
  facts->image = options->image[0] ? options->image : safetensors_metadata(file, "image");
  if (!facts->model) return RAISE(STATUS_INPUT, "%s does not say its model; give --model", options->weights);
  if (!facts->image) facts->image = "32x32x3";
  int read = 0;
  if (sscanf(facts->image, "%4dx%4dx%1d%n", &facts->height, &facts->width, &facts->channels, &read) != 3 ||
      facts->image[read] != '\0' || facts->height < 1 || facts->width < 1 || facts->channels < 1 ||
      facts->channels > 4)
    return RAISE(STATUS_INPUT, "--image is '%s'; expected height x width x channels, as 32x32x3",
                 facts->image);
  TRY(count_classes(file, facts));
  TRY(moments(file, "mean", &options->mean, facts->channels, facts->mean));
  TRY(moments(file, "std", &options->std, facts->channels, facts->std));
  return name_classes(file, facts);
}

/* ---- the checkpoint ---- */

/* As with what is trained: no checkpoint holds such a value. */
static enum status check_finite(const struct checkpoint_item *item) {
  const float *value = item->data;
  int64_t count = tensor_count(&item->tensor);
  for (int64_t i = 0; i < count; i++)
    if (!isfinite(value[i]))
      return RAISE(STATUS_INPUT, "%s: element %" PRId64 " is %g; expected finite numbers", item->name, i,
                   (double)value[i]);
  return STATUS_OK;
}

static enum status read_arrays(const struct safetensors *file, const struct graph *graph,
                               struct trained_arrays *arrays) {
  TRY(trained_arrays_create(graph, arrays));
  enum status status = STATUS_OK;
  export_shapes(graph, arrays);
  for (int i = 0; i < arrays->count; i++) {
    const struct checkpoint_item *item = &arrays->item[i];
    TRY_OUT(safetensors_read(file, item->name, &item->tensor, item->data));
    TRY_OUT(check_finite(item));
  }
  TRY_OUT(export_restore(graph, arrays));
out:
  if (status != STATUS_OK) trained_arrays_destroy(arrays);
  return status;
}

static enum status write(const struct import_options *options, const struct safetensors *file,
                         const struct facts *facts, const struct trained_arrays *arrays) {
  const struct checkpoint_option option[] = {{"model", facts->model}, {"classes", facts->class_count},
                                             {"image", facts->image}, {"mean", facts->mean},
                                             {"std", facts->std},     {"class-names", facts->class_names}};
  const char *step = safetensors_metadata(file, "step");
  struct checkpoint_content content = {
      .progress = {.best_accuracy = -1, .step = step ? strtoll(step, NULL, 10) : 0},
      .options = option,
      .option_count = sizeof option / sizeof *option,
      .items = arrays->item,
      .item_count = arrays->count};
  char path[CHECKPOINT_PATH];
  if (content.progress.step < 0 || content.progress.step > most_steps) content.progress.step = 0;
  TRY(folder_make(options->out, NULL));
  TRY(checkpoint_write(options->out, &content, 0, false));
  log_info("%s: %s in %d classes, %d arrays of %s",
           checkpoint_path(options->out, content.progress.step, path), facts->model, facts->classes,
           arrays->count, options->weights);
  return STATUS_OK;
}

static enum status run(const struct import_options *options) {
  struct safetensors *file = NULL;
  struct graph *graph = NULL;
  struct trained_arrays arrays = {0};
  struct facts facts = {.model = NULL};
  enum status status;
  TRY(output_check_name(options->out));
  TRY(checkpoint_check_none(options->out));
  TRY_OUT(safetensors_open(options->weights, &file));
  TRY_OUT(find_facts(file, options, &facts));
  TRY_OUT(zoo_build(facts.model, facts.height, facts.width, facts.channels, facts.classes, &graph));
  TRY_OUT(read_arrays(file, graph, &arrays));
  TRY_OUT(write(options, file, &facts, &arrays));
out:
  trained_arrays_destroy(&arrays);
  graph_destroy(graph);
  free(facts.class_names);
  safetensors_close(file);
  return status;
}

enum status import_weights_command(int argc, char **argv, const struct world *world) {
  struct import_options options = {.quiet = false};
  TRY(options_agree(world, &import_weights_table, &options,
                    options_parse(&import_weights_table, argc, argv, &options)));
  log_open(world->rank, world->host, options.quiet);
  return world_agree(world, world->rank == 0 ? run(&options) : STATUS_OK);
}
