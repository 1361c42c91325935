/* A trained model out of a checkpoint; see trained.h. */
#include "app/trained.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/record.h"
#include "app/snapshot.h"
#include "model/net/adapt.h"
#include "model/zoo/zoo.h"

static enum status option(const struct trained *trained, const char *name, const char **value) {
  *value = checkpoint_option(trained->checkpoint, name);
  if (*value) return STATUS_OK;
  return RAISE(STATUS_INPUT, "%s does not say its %s; expected a checkpoint of convoy train",
               checkpoint_name(trained->checkpoint), name);
}

static enum status build(struct trained *trained) {
  const char *image, *classes;
  int height, width, channels;
  TRY(option(trained, "model", &trained->model));
  TRY(option(trained, "image", &image));
  TRY(option(trained, "classes", &classes));
  if (sscanf(image, "%dx%dx%d", &height, &width, &channels) != 3 || channels < 1 || channels > 4)
    return RAISE(STATUS_INPUT, "%s: image size '%s'; expected height x width x channels",
                 checkpoint_name(trained->checkpoint), image);
  return zoo_build(trained->model, height, width, channels, (int)strtol(classes, NULL, 10), &trained->graph);
}

static enum status read_moments(struct trained *trained) {
  const char *mean, *std;
  TRY(option(trained, "mean", &mean));
  TRY(option(trained, "std", &std));
  int channels = trained->graph->channels;
  if (record_numbers(mean, trained->mean) == channels && record_numbers(std, trained->std) == channels)
    return STATUS_OK;
  return RAISE(STATUS_INPUT, "%s: mean '%s' and std '%s'; expected %d numbers each",
               checkpoint_name(trained->checkpoint), mean, std, channels);
}

/* The names stand one a line; where they are not as many as the classes, numbers take their place. */
static enum status name_classes(struct trained *trained) {
  const char *names = checkpoint_option(trained->checkpoint, "class-names");
  int classes = trained->graph->classes, lines = 1;
  for (const char *at = names; at && *at; at++) lines += *at == '\n';
  bool named = names && *names && lines == classes;
  trained->class_name = calloc((size_t)classes, sizeof *trained->class_name);
  if (!trained->class_name) return RAISE(STATUS_INPUT, "no memory for the names of the classes");
  for (int i = 0; i < classes; i++) {
    char number[16];
    snprintf(number, sizeof number, "%d", i);
    size_t length = named ? strcspn(names, "\n") : strlen(number);
    trained->class_name[i] = strndup(named ? names : number, length);
    if (!trained->class_name[i]) return RAISE(STATUS_INPUT, "no memory for the names of the classes");
    if (named) names += length + 1;
  }
  return STATUS_OK;
}

enum status trained_open(const char *path, struct trained *trained) {
  enum status status;
  *trained = (struct trained){0};
  TRY_OUT(checkpoint_find(path, &trained->checkpoint));
  TRY_OUT(build(trained));
  TRY_OUT(read_moments(trained));
  TRY_OUT(name_classes(trained));
out:
  if (status != STATUS_OK) trained_close(trained);
  return status;
}

void trained_close(struct trained *trained) {
  for (int i = 0; trained->class_name && i < trained->graph->classes; i++) free(trained->class_name[i]);
  free((void *)trained->class_name);
  graph_destroy(trained->graph);
  checkpoint_close(trained->checkpoint);
  *trained = (struct trained){0};
}

/* ---- merged weights ---- */

/* Adds the adapter of one weight, if the checkpoint has one. */
static enum status merge(const struct checkpoint *checkpoint, int rank, float scale,
                         const struct checkpoint_item *weight) {
  char name_a[GRAPH_NAME], name_b[GRAPH_NAME];
  enum status status = STATUS_OK;
  if (weight->group != CHECKPOINT_PARAMETERS || !adapter_names(weight->name, name_a, name_b))
    return STATUS_OK;
  if (!checkpoint_has(checkpoint, CHECKPOINT_PARAMETERS, name_a)) return STATUS_OK;
  struct checkpoint_item part[2] = {{.group = CHECKPOINT_PARAMETERS, .name = name_a},
                                    {.group = CHECKPOINT_PARAMETERS, .name = name_b}};
  adapter_shapes(&weight->tensor, rank, &part[0].tensor, &part[1].tensor);
  for (int i = 0; i < 2; i++) {
    part[i].data = malloc(tensor_bytes(&part[i].tensor));
    if (!part[i].data) TRY_OUT(RAISE(STATUS_INPUT, "no memory for the adapter %s", part[i].name));
  }
  TRY_OUT(checkpoint_read(checkpoint, part, 2));
  adapter_merge(&weight->tensor, rank, scale, part[0].data, part[1].data, weight->data);
out:
  for (int i = 0; i < 2; i++) free(part[i].data);
  return status;
}

enum status trained_fill(const struct checkpoint *checkpoint, const struct checkpoint_item *items,
                         int count) {
  const char *lora = checkpoint_option(checkpoint, "lora"),
             *alpha = checkpoint_option(checkpoint, "lora-alpha");
  int rank = lora ? (int)strtol(lora, NULL, 10) : 0;
  TRY(checkpoint_read(checkpoint, items, count));
  if (rank < 1) return STATUS_OK;
  float scale = (alpha ? strtof(alpha, NULL) : (float)rank) / (float)rank;
  for (int i = 0; i < count; i++) TRY(merge(checkpoint, rank, scale, &items[i]));
  return STATUS_OK;
}

enum status trained_load(const struct checkpoint *checkpoint, struct backend *backend, struct net *net) {
  struct snapshot snapshot;
  TRY(snapshot_create(backend, net, OPTIMIZER_SGD, false, &snapshot));
  enum status status;
  TRY_OUT(trained_fill(checkpoint, snapshot.items, snapshot.item_count));
  TRY_OUT(snapshot_put(&snapshot));
out:
  snapshot_destroy(&snapshot);
  return status;
}

/* ---- arrays ---- */

static void add(struct trained_arrays *arrays, enum checkpoint_group group, const char *name,
                struct tensor tensor, int64_t *elements) {
  tensor.dtype = DTYPE_F32;
  arrays->item[arrays->count++] =
      (struct checkpoint_item){.group = group, .name = name, .tensor = tensor, .data = NULL};
  *elements += tensor_count(&tensor);
}

/* Lists the arrays and returns how many elements they have in all. */
static int64_t list(const struct graph *graph, struct trained_arrays *arrays) {
  int64_t elements = 0;
  for (int i = 0; i < graph->node_count; i++) {
    const struct graph_node *node = &graph->node[i];
    const struct op_signature *signature = &node->signature;
    arrays->first[i] = arrays->count;
    for (int p = 0; p < signature->param_count; p++)
      add(arrays, CHECKPOINT_PARAMETERS, node->param[p].name, signature->param[p].tensor, &elements);
    for (int s = 0; s < signature->statistic_count; s++)
      add(arrays, CHECKPOINT_STATISTICS, node->statistic[s], signature->statistic[s], &elements);
  }
  arrays->first[graph->node_count] = arrays->count;
  return elements;
}

enum status trained_arrays_create(const struct graph *graph, struct trained_arrays *arrays) {
  size_t nodes = (size_t)graph->node_count;
  enum status status = STATUS_OK;
  *arrays = (struct trained_arrays){0};
  arrays->item = calloc(nodes * (OP_MAX_PARAM + OP_MAX_STATISTIC), sizeof *arrays->item);
  arrays->first = calloc(nodes + 1, sizeof *arrays->first);
  if (!arrays->item || !arrays->first) TRY_OUT(RAISE(STATUS_INPUT, "no memory for a list of the arrays"));
  int64_t elements = list(graph, arrays);
  arrays->memory = calloc((size_t)elements + 1, sizeof(float));
  if (!arrays->memory) TRY_OUT(RAISE(STATUS_INPUT, "no memory for %lld parameters", (long long)elements));
  float *next = arrays->memory;
  for (int i = 0; i < arrays->count; i++) {
    arrays->item[i].data = next;
    next += tensor_count(&arrays->item[i].tensor);
  }
out:
  if (status != STATUS_OK) trained_arrays_destroy(arrays);
  return status;
}

enum status trained_read(const struct trained *trained, struct trained_arrays *arrays) {
  TRY(trained_arrays_create(trained->graph, arrays));
  enum status status = trained_fill(trained->checkpoint, arrays->item, arrays->count);
  if (status != STATUS_OK) trained_arrays_destroy(arrays);
  return status;
}

void trained_arrays_destroy(struct trained_arrays *arrays) {
  free(arrays->item);
  free(arrays->first);
  free(arrays->memory);
  *arrays = (struct trained_arrays){0};
}
