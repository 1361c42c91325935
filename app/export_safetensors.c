/* A model as safetensors: eight bytes that say how long the header is, the header (JSON), the arrays one
 * after the other, all little-endian (github.com/huggingface/safetensors, "Format"). */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/durable.h"
#include "app/export.h"
#include "app/utf8.h"

enum { ALIGN = 8 };

/* One array's entry; *at moves behind its bytes. */
static bool add_entry(cJSON *header, const char *name, const char *dtype, const struct tensor *shape,
                      size_t bytes, size_t *at) {
  cJSON *entry = cJSON_AddObjectToObject(header, name);
  cJSON_AddStringToObject(entry, "dtype", dtype);
  cJSON *list = cJSON_AddArrayToObject(entry, "shape");
  for (int d = 0; shape && d < shape->rank; d++)
    cJSON_AddItemToArray(list, cJSON_CreateNumber((double)shape->dim[d]));
  cJSON *offsets = cJSON_AddArrayToObject(entry, "data_offsets");
  cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)*at));
  *at += bytes;
  return cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)*at));
}

/* "bn1.num_batches_tracked", from "bn1.running_mean". */
static void counter_name(const struct graph_node *node, char name[GRAPH_NAME + 32]) {
  int module = (int)(strrchr(node->statistic[0], '.') - node->statistic[0]);
  snprintf(name, GRAPH_NAME + 32, "%.*s.num_batches_tracked", module, node->statistic[0]);
}

/* The counters come first: what has eight bytes an element then lies at multiples of eight. */
static bool add_entries(cJSON *header, const struct graph *graph, const struct trained_arrays *arrays,
                        int *counters) {
  size_t at = 0;
  bool good = true;
  for (int i = 0; i < graph->node_count; i++) {
    char name[GRAPH_NAME + 32];
    if (graph->node[i].signature.statistic_count == 0) continue;
    counter_name(&graph->node[i], name);
    good = good && add_entry(header, name, "I64", NULL, sizeof(int64_t), &at);
    ++*counters;
  }
  for (int i = 0; i < arrays->count; i++) {
    const struct checkpoint_item *item = &arrays->item[i];
    good = good && add_entry(header, item->name, "F32", &item->tensor, tensor_bytes(&item->tensor), &at);
  }
  return good;
}

static bool add_metadata(cJSON *header, const struct trained *trained) {
  char number[32], *classes = export_class_list(trained);
  cJSON *metadata = cJSON_AddObjectToObject(header, "__metadata__");
  snprintf(number, sizeof number, "%" PRId64, checkpoint_progress(trained->checkpoint)->step);
  cJSON_AddStringToObject(metadata, "format", "pt");
  cJSON_AddStringToObject(metadata, "producer", "convoy " CONVOY_VERSION);
  cJSON_AddStringToObject(metadata, "model", trained->model);
  cJSON_AddStringToObject(metadata, "image", checkpoint_option(trained->checkpoint, "image"));
  cJSON_AddStringToObject(metadata, "mean", checkpoint_option(trained->checkpoint, "mean"));
  cJSON_AddStringToObject(metadata, "std", checkpoint_option(trained->checkpoint, "std"));
  cJSON_AddStringToObject(metadata, "step", number);
  bool good = classes && cJSON_AddStringToObject(metadata, "classes", classes);
  free(classes);
  return good;
}

/* The header's text, padded with blanks to a multiple of ALIGN; malloc, NULL if there is no memory. */
static char *make_header(const struct trained *trained, const struct trained_arrays *arrays, int *counters) {
  cJSON *header = cJSON_CreateObject();
  char *padded = NULL, *text = NULL;
  if (header && add_metadata(header, trained) && add_entries(header, trained->graph, arrays, counters))
    text = cJSON_PrintUnformatted(header);
  if (text) {
    utf8_mend(text);
    size_t length = strlen(text), rounded = (length + ALIGN - 1) / ALIGN * ALIGN;
    padded = malloc(rounded + 1);
    if (padded) snprintf(padded, rounded + 1, "%-*s", (int)rounded, text);
  }
  free(text);
  cJSON_Delete(header);
  return padded;
}

static void little_endian(uint64_t value, uint8_t bytes[8]) {
  for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(value >> 8 * i);
}

const struct output_kind export_safetensors_kind = {"safetensors file of convoy export",
                                                    "\"producer\":\"convoy "};

enum status export_safetensors(const struct trained *trained, const struct trained_arrays *arrays,
                               const char *path) {
  int counters = 0;
  enum status status = STATUS_OK;
  char *header = make_header(trained, arrays, &counters);
  uint8_t *counter = malloc(8 * ((size_t)counters + 1));
  if (!header || !counter) TRY_OUT(RAISE(STATUS_INPUT, "no memory for the header of %s", path));
  uint8_t length[8];
  little_endian(strlen(header), length);
  for (int i = 0; i < counters; i++)
    little_endian((uint64_t)checkpoint_progress(trained->checkpoint)->step, counter + 8 * i);
  size_t bytes = 0;
  for (int i = 0; i < arrays->count; i++) bytes += tensor_bytes(&arrays->item[i].tensor);
  struct durable_part parts[] = {{length, sizeof length},
                                 {header, strlen(header)},
                                 {counter, 8 * (size_t)counters},
                                 {arrays->memory, bytes}};
  TRY_OUT(durable_write(path, parts, 4));
out:
  free(header);
  free(counter);
  return status;
}
