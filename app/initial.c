/* Parameters from another run's checkpoint; see initial.h. */
#include "app/initial.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "app/trained.h"
#include "model/base/log.h"
#include "model/net/adapt.h"

static enum status open_model(const char *path, const char *model, struct checkpoint **checkpoint) {
  TRY(checkpoint_find(path, checkpoint));
  const char *found = checkpoint_option(*checkpoint, "model");
  if (found && strcmp(found, model) == 0) return STATUS_OK;
  enum status status = RAISE(STATUS_INPUT, "--init %s holds model %s; --model is %s: give both the same",
                             path, found ? found : "of an unknown kind", model);
  checkpoint_close(*checkpoint);
  return status;
}

enum status initial_check(const char *path, const char *model) {
  struct checkpoint *checkpoint;
  TRY(open_model(path, model, &checkpoint));
  checkpoint_close(checkpoint);
  return STATUS_OK;
}

static bool is_head(const struct graph *graph, const char *name) {
  const struct graph_node *node = &graph->node[graph->logits - 1];
  for (int p = 0; p < node->signature.param_count; p++)
    if (strcmp(node->param[p].name, name) == 0) return true;
  return false;
}

/* Reads the head's arrays into memory of their own first: one that does not fit leaves all of them new. */
static enum status read_head(const struct checkpoint *checkpoint, const struct checkpoint_item *head,
                             int count, bool *fits) {
  struct checkpoint_item copy[OP_MAX_PARAM];
  enum status status = STATUS_OK;
  for (int i = 0; i < count; i++) {
    copy[i] = head[i];
    copy[i].data = malloc(tensor_bytes(&head[i].tensor));
    if (!copy[i].data) status = RAISE(STATUS_INPUT, "no memory for %s", head[i].name);
  }
  TRY_OUT(status);
  status = trained_fill(checkpoint, copy, count);
  *fits = status == STATUS_OK;
  if (status == STATUS_INPUT) { /* no such array, or another shape */
    error_clear();
    status = STATUS_OK;
  }
  for (int i = 0; i < count && *fits; i++) memcpy(head[i].data, copy[i].data, tensor_bytes(&head[i].tensor));
out:
  for (int i = 0; i < count; i++) free(copy[i].data);
  return status;
}

enum status initial_read(const struct train_options *options, const struct graph *graph,
                         struct snapshot *snapshot) {
  struct checkpoint *checkpoint;
  TRY(net_init(snapshot->net, (uint64_t)options->seed));
  TRY(snapshot_take(snapshot));
  TRY(open_model(options->init, options->model, &checkpoint));
  enum status status = STATUS_OK;
  struct checkpoint_item head[OP_MAX_PARAM] = {{.name = ""}};
  int count = 0, heads = 0;
  bool whole = false;
  struct checkpoint_item *body = calloc((size_t)snapshot->item_count, sizeof *body);
  if (!body) TRY_OUT(RAISE(STATUS_INPUT, "no memory for a list of the parameters"));
  for (int i = 0; i < snapshot->item_count; i++) {
    const struct checkpoint_item *item = &snapshot->items[i];
    if (item->group != CHECKPOINT_PARAMETERS && item->group != CHECKPOINT_STATISTICS) continue;
    if (adapter_has_name(item->name)) continue;
    if (is_head(graph, item->name))
      head[heads++] = *item;
    else
      body[count++] = *item;
  }
  TRY_OUT(trained_fill(checkpoint, body, count));
  TRY_OUT(read_head(checkpoint, head, heads, &whole));
  log_info("init: %s, step %" PRId64 "; %d arrays taken%s%s", checkpoint_name(checkpoint),
           checkpoint_progress(checkpoint)->step, count + (whole ? heads : 0),
           whole ? "" : ", new: ", whole ? "" : head[0].name);
  const struct graph_param *weight = &graph->node[graph->logits - 1].param[0];
  if (!whole && weight->frozen)
    log_warning("--freeze keeps %s, which is new, as chance made it", weight->name);
out:
  free(body);
  checkpoint_close(checkpoint);
  return status;
}
