/* The models' table and how one is found by name. */
#include "model/zoo/zoo.h"

#include <string.h>

#include "model/base/nearest.h"

#define MODEL(name, summary) int name##_build(struct graph *graph);
#include "model/zoo/zoo.def"
#undef MODEL

/* `build` makes the model for images of the graph's size; it returns the id of its logits. */
static const struct model {
  const char *name;
  int (*build)(struct graph *graph);
} models[] = {
#define MODEL(name, summary) {#name, name##_build},
#include "model/zoo/zoo.def"
#undef MODEL
};
enum { MODELS = sizeof models / sizeof *models };

static const char *model_name(const void *table, int index) {
  return ((const struct model *)table)[index].name;
}

enum status zoo_build(const char *name, int height, int width, int channels, int classes,
                      struct graph **out) {
  const struct model *model = NULL;
  for (int i = 0; i < MODELS; i++)
    if (strcmp(models[i].name, name) == 0) model = &models[i];
  if (!model)
    return RAISE(STATUS_INPUT, "unknown model '%s'; the nearest known one is '%s'", name,
                 models[nearest_name(name, models, MODELS, model_name)].name);
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
