/* The models' table and how one is found by name. */
#include "model/zoo/zoo.h"

#include <string.h>

#include "model/base/nearest.h"

#define MODEL(name, summary) int name##_build(struct graph *graph);
#include "model/zoo/zoo.def"
#undef MODEL

const struct zoo_model zoo_models[] = {
#define MODEL(name, summary) {#name, summary, name##_build},
#include "model/zoo/zoo.def"
#undef MODEL
};
const int zoo_model_count = (int)(sizeof zoo_models / sizeof *zoo_models);

static const char *model_name(const void *table, int index) {
  return ((const struct zoo_model *)table)[index].name;
}

enum status zoo_build(const char *name, int height, int width, int channels, int classes,
                      struct graph **out) {
  const struct zoo_model *model = NULL;
  for (int i = 0; i < zoo_model_count; i++)
    if (strcmp(zoo_models[i].name, name) == 0) model = &zoo_models[i];
  if (!model)
    return RAISE(STATUS_INPUT, "unknown model '%s'; the nearest known one is '%s'", name,
                 model_name(zoo_models, nearest_name(name, zoo_models, zoo_model_count, model_name)));
  struct graph *graph;
  TRY(graph_create(height, width, channels, classes, &graph));
  enum status status = graph_finish(graph, model->build(graph));
  if (status != STATUS_OK) {
    graph_destroy(graph);
    return error_trace(status, __func__);
  }
  *out = graph;
  return STATUS_OK;
}
