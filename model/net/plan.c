/* Activations placed by lifetime: each buffer lives from the first to the last moment of a step at which it
 * is written or read, and two buffers share bytes only if their lives do not meet (greedy by size, first fit;
 * Pisarchyk and Lee, 2020, "Efficient memory management for deep neural net inference"). */
#include "model/net/plan.h"

#include <stdlib.h>

enum { BYTES_ALIGN = 256 };

struct buffer {
  size_t bytes;
  int first, last; /* moments */
  int64_t *place;  /* where its offset is wanted */
  int64_t offset;
};

/* The moments of a step: gather at 0, forward of node i at i + 1, then backward of nodes count-1 .. 0. */
static int forward_moment(int node) {
  return node + 1;
}
static int backward_moment(const struct plan *plan, int node) {
  return 2 * plan->count - node;
}

struct builder {
  struct plan *plan;
  const struct graph *graph;
  bool training;
  struct buffer *buffer;
  int buffer_count;
};

/* The value that node `i` reads as its k-th input; the loss reads the logits and the labels (-1). */
static int node_in(const struct builder *b, int i, int k) {
  if (i < b->graph->node_count) return b->graph->node[i].in[k];
  return k == 0 ? b->graph->logits : -1;
}

static struct buffer *buffer_add(struct builder *b, size_t bytes, int64_t *place, int first, int last) {
  struct buffer *buffer = &b->buffer[b->buffer_count++];
  *buffer = (struct buffer){.bytes = (bytes + BYTES_ALIGN - 1) / BYTES_ALIGN * BYTES_ALIGN,
                            .first = first,
                            .last = last,
                            .place = place};
  return buffer;
}

/* Has node i or one that it reads from a parameter that is trained? Those were asked before. */
static bool learns(const struct builder *b, int i) {
  const struct graph_node *node = &b->graph->node[i];
  for (int p = 0; p < node->signature.param_count; p++)
    if (!node->param[p].frozen) return true;
  for (int k = 0; k < node->desc.in_count; k++)
    if (node->in[k] > 0 && b->plan->node[node->in[k] - 1].backward) return true;
  return false;
}

/* Shapes of all nodes at the plan's batch size. */
static enum status infer_all(struct builder *b, enum dtype compute, float smoothing) {
  struct plan *plan = b->plan;
  for (int i = 0; i < plan->count; i++) {
    struct plan_node *node = &plan->node[i];
    bool loss = i == b->graph->node_count;
    if (loss)
      node->desc = (struct op_desc){
          .kind = OP_SOFTMAX_XENT, .in_count = 2, .attr.softmax_xent = {.smoothing = smoothing}};
    else
      node->desc = b->graph->node[i].desc;
    node->backward = b->training && (loss || learns(b, i));
    node->desc.training = node->backward; /* a frozen beginning only evaluates */
    for (int k = 0; k < node->desc.in_count; k++) {
      int value = node_in(b, i, k);
      node->desc.fixed_in[k] = value <= 0 || !plan->node[value - 1].backward;
      if (value < 0) {
        node->desc.in[k] = tensor_1d(DTYPE_I32, plan->batch);
      } else if (value == 0) {
        node->desc.in[k] = graph_value(b->graph, 0);
        node->desc.in[k].dim[0] = plan->batch;
        node->desc.in[k].dtype = compute;
      } else {
        node->desc.in[k] = plan->node[value - 1].signature.out;
      }
    }
    TRY(op_infer(&node->desc, &node->signature));
  }
  return STATUS_OK;
}

/* The last moment at which value `v` is read, `made` if never. */
static int value_last(const struct builder *b, int v, int made) {
  int last = made;
  const struct plan *plan = b->plan;
  for (int i = 0; i < plan->count; i++)
    for (int k = 0; k < plan->node[i].desc.in_count; k++)
      if (node_in(b, i, k) == v) {
        bool kept = plan->node[i].backward && plan->node[i].signature.keeps_in[k];
        int moment = kept ? backward_moment(plan, i) : forward_moment(i);
        if (moment > last) last = moment;
      }
  const struct plan_node *maker = v > 0 ? &plan->node[v - 1] : NULL;
  if (maker && maker->backward && maker->signature.keeps_out && backward_moment(plan, v - 1) > last)
    last = backward_moment(plan, v - 1);
  return last;
}

static void add_values(struct builder *b) {
  struct plan *plan = b->plan;
  struct tensor images = plan->node[0].desc.in[0];
  buffer_add(b, tensor_bytes(&images), &plan->images, 0, value_last(b, 0, 0));
  buffer_add(b, (size_t)plan->batch * sizeof(int32_t), &plan->labels, 0, value_last(b, -1, 0));
  for (int i = 0; i < plan->count; i++) {
    struct plan_node *node = &plan->node[i];
    node->out = PLAN_NONE;
    if (i < b->graph->node_count)
      buffer_add(b, tensor_bytes(&node->signature.out), &node->out, forward_moment(i),
                 value_last(b, i + 1, forward_moment(i)));
    for (int s = 0; s < OP_MAX_SAVED; s++) node->saved[s] = PLAN_NONE;
    for (int s = 0; s < node->signature.saved_count; s++)
      buffer_add(b, tensor_bytes(&node->signature.saved[s]), &node->saved[s], forward_moment(i),
                 backward_moment(plan, i));
  }
}

/* The gradient of each value that depends on something trained: written by the backward of its readers, the
 * last reader first.
 */
static void add_gradients(struct builder *b) {
  struct plan *plan = b->plan;
  for (int v = 1; v <= b->graph->node_count; v++) {
    bool written = false;
    if (!plan->node[v - 1].backward) continue;
    for (int i = plan->count - 1; i >= 0; i--)
      for (int k = 0; k < plan->node[i].desc.in_count; k++)
        if (node_in(b, i, k) == v) {
          plan->node[i].d_in_add[k] = written;
          if (!written)
            buffer_add(b, tensor_bytes(&plan->node[v - 1].signature.out), &plan->node[v - 1].d_out,
                       backward_moment(plan, i), backward_moment(plan, v - 1));
          written = true;
        }
  }
}

static int larger_first(const void *left, const void *right) {
  const struct buffer *a = left, *b = right;
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
  return a->first - b->first;
}

static int lower_first(const void *left, const void *right) {
  const struct buffer *a = *(const struct buffer *const *)left, *b = *(const struct buffer *const *)right;
  return (a->offset > b->offset) - (a->offset < b->offset);
}

/* Each buffer, largest first, goes into the lowest gap that is free during its life. */
static enum status place_all(struct builder *b) {
  const struct buffer **taken = calloc((size_t)b->buffer_count, sizeof(struct buffer *));
  if (!taken) return RAISE(STATUS_INPUT, "out of memory");
  qsort(b->buffer, (size_t)b->buffer_count, sizeof *b->buffer, larger_first);
  for (int i = 0; i < b->buffer_count; i++) {
    struct buffer *next = &b->buffer[i];
    int count = 0;
    for (int j = 0; j < i; j++)
      if (b->buffer[j].first <= next->last && next->first <= b->buffer[j].last)
        taken[count++] = &b->buffer[j];
    qsort((void *)taken, (size_t)count, sizeof(struct buffer *), lower_first);
    int64_t offset = 0;
    for (int j = 0; j < count; j++) {
      if (offset + (int64_t)next->bytes <= taken[j]->offset) break;
      int64_t end = taken[j]->offset + (int64_t)taken[j]->bytes;
      if (end > offset) offset = end;
    }
    next->offset = offset;
    *next->place = offset;
    if ((size_t)offset + next->bytes > b->plan->bytes) b->plan->bytes = (size_t)offset + next->bytes;
  }
  free((void *)taken);
  return STATUS_OK;
}

/* Inputs and their gradients are what their producers' out and d_out are. */
static void link_inputs(struct builder *b) {
  struct plan *plan = b->plan;
  for (int i = 0; i < plan->count; i++)
    for (int k = 0; k < OP_MAX_IN; k++) {
      plan->node[i].in[k] = plan->node[i].d_in[k] = PLAN_NONE;
      if (k >= plan->node[i].desc.in_count) continue;
      int value = node_in(b, i, k);
      plan->node[i].in[k] = value < 0 ? plan->labels : value == 0 ? plan->images : plan->node[value - 1].out;
      if (value > 0) plan->node[i].d_in[k] = plan->node[value - 1].d_out;
    }
}

enum status plan_create(const struct graph *graph, int64_t batch, bool training, enum dtype compute,
                        float smoothing, struct plan *plan) {
  *plan = (struct plan){.batch = batch, .count = graph->node_count + 1};
  size_t count = (size_t)plan->count;
  struct builder b = {.plan = plan, .graph = graph, .training = training};
  enum status status = STATUS_OK;
  plan->node = calloc(count, sizeof *plan->node);
  b.buffer = calloc(2 + count * (2 + OP_MAX_SAVED), sizeof *b.buffer);
  if (!plan->node || !b.buffer) {
    status = RAISE(STATUS_INPUT, "out of memory");
    goto out;
  }
  TRY_OUT(infer_all(&b, compute, smoothing));
  for (size_t i = 0; i < count; i++) plan->node[i].d_out = PLAN_NONE;
  add_values(&b);
  if (training) add_gradients(&b);
  TRY_OUT(place_all(&b));
  link_inputs(&b);
out:
  free(b.buffer);
  if (status != STATUS_OK) plan_destroy(plan);
  return status;
}

void plan_destroy(struct plan *plan) {
  free(plan->node);
  *plan = (struct plan){0};
}
