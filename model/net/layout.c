/* The layout of parameters; see plan.h. */
#include "model/net/plan.h"

#include <stdlib.h>

static int64_t align(int64_t count) {
  return (count + LAYOUT_ALIGN - 1) / LAYOUT_ALIGN * LAYOUT_ALIGN;
}

static void place(struct layout *layout, const struct layout_item *item, int64_t *offset, int64_t *end) {
  *offset = *end;
  layout->item[layout->item_count] = *item;
  layout->item[layout->item_count++].offset = *end;
  *end += align(tensor_count(&item->tensor));
}

/* Appends the parameters of one group, last node first, and moves *end behind them. */
static void place_params(const struct graph *graph, bool frozen, bool decayed, struct layout *layout,
                         int64_t *end) {
  for (int i = graph->node_count - 1; i >= 0; i--) {
    const struct graph_node *node = &graph->node[i];
    for (int p = 0; p < node->signature.param_count; p++) {
      const struct op_param *param = &node->signature.param[p];
      if (param->decayed != decayed || node->param[p].frozen != frozen) continue;
      struct layout_item item = {.name = node->param[p].name,
                                 .tensor = param->tensor,
                                 .learned = true,
                                 .fixed = frozen,
                                 .init = node->param[p].init,
                                 .fan = node->param[p].fan};
      place(layout, &item, &layout->param[i][p], end);
    }
    if (decayed && !frozen) layout->decay_end[i] = *end;
  }
}

static void place_statistics(const struct graph *graph, bool fixed, struct layout *layout, int64_t *end) {
  for (int i = graph->node_count - 1; i >= 0; i--) {
    const struct graph_node *node = &graph->node[i];
    if (node->signature.fixed_statistic != fixed) continue;
    for (int s = 0; s < node->signature.statistic_count; s++) {
      struct layout_item item = {.name = node->statistic[s],
                                 .tensor = node->signature.statistic[s],
                                 .fixed = fixed,
                                 .init = s == 0 ? INIT_ZERO : INIT_ONE};
      place(layout, &item, &layout->statistic[i][s], end);
    }
  }
}

enum status layout_create(const struct graph *graph, struct layout *layout) {
  size_t nodes = (size_t)graph->node_count;
  *layout = (struct layout){.param = calloc(nodes, sizeof *layout->param),
                            .statistic = calloc(nodes, sizeof *layout->statistic),
                            .decay_end = calloc(nodes, sizeof *layout->decay_end),
                            .item = calloc(nodes * (OP_MAX_PARAM + OP_MAX_STATISTIC), sizeof *layout->item)};
  if (!layout->param || !layout->statistic || !layout->decay_end || !layout->item) {
    layout_destroy(layout);
    return RAISE(STATUS_INPUT, "out of memory");
  }
  int64_t end = 0;
  place_params(graph, false, true, layout, &end);
  layout->decay_count = end;
  place_params(graph, false, false, layout, &end);
  layout->parameter_count = end;
  place_statistics(graph, false, layout, &end);
  layout->total_count = end;
  place_params(graph, true, true, layout, &end);
  place_params(graph, true, false, layout, &end);
  place_statistics(graph, true, layout, &end);
  layout->all_count = end;
  return STATUS_OK;
}

void layout_destroy(struct layout *layout) {
  free(layout->param);
  free(layout->statistic);
  free(layout->decay_end);
  free(layout->item);
  *layout = (struct layout){0};
}
