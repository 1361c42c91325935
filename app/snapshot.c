/* Between a net's regions and a checkpoint's arrays; see snapshot.h. */
#include "app/snapshot.h"

#include <math.h>
#include <stdlib.h>

static void add_item(struct snapshot *snapshot, enum checkpoint_group group, enum net_region region,
                     const struct net_item *item) {
  if (!snapshot->region[region]) return;
  snapshot->items[snapshot->item_count++] =
      (struct checkpoint_item){.group = group,
                               .name = item->name,
                               .tensor = item->tensor,
                               .data = snapshot->region[region] + item->offset};
}

enum status snapshot_create(struct backend *backend, struct net *net, enum optimizer_kind kind,
                            bool optimizer, struct snapshot *snapshot) {
  *snapshot = (struct snapshot){.net = net, .backend = backend};
  enum status status = STATUS_OK;
  for (int r = 0; r < NET_REGION_COUNT; r++) {
    int64_t count = r == NET_PARAMS || optimizer ? net_region_count(net, (enum net_region)r) : 0;
    if (count == 0) continue;
    void *memory = NULL;
    TRY_OUT(backend->table->alloc_host(backend, (size_t)count * sizeof(float), &memory));
    snapshot->region[r] = memory;
  }
  snapshot->items = calloc((size_t)net_item_count(net) * NET_REGION_COUNT, sizeof *snapshot->items);
  if (!snapshot->items) TRY_OUT(RAISE(STATUS_INPUT, "no memory for a list of the parameters"));
  bool sgd = kind == OPTIMIZER_SGD;
  for (int i = 0; i < net_item_count(net); i++) {
    struct net_item item = net_item(net, i);
    add_item(snapshot, item.learned ? CHECKPOINT_PARAMETERS : CHECKPOINT_STATISTICS, NET_PARAMS, &item);
    if (!item.learned || item.fixed) continue;
    add_item(snapshot, sgd ? CHECKPOINT_MOMENTUM : CHECKPOINT_ADAM_M, NET_OPTIMIZER0, &item);
    add_item(snapshot, CHECKPOINT_ADAM_V, NET_OPTIMIZER1, &item);
  }
out:
  if (status != STATUS_OK) snapshot_destroy(snapshot);
  return status;
}

void snapshot_destroy(struct snapshot *snapshot) {
  for (int r = 0; r < NET_REGION_COUNT; r++)
    if (snapshot->region[r]) snapshot->backend->table->release_host(snapshot->backend, snapshot->region[r]);
  free(snapshot->items);
  *snapshot = (struct snapshot){0};
}

enum status snapshot_take(struct snapshot *snapshot) {
  for (int r = 0; r < NET_REGION_COUNT; r++)
    if (snapshot->region[r]) TRY(net_read(snapshot->net, (enum net_region)r, snapshot->region[r]));
  return STATUS_OK;
}

enum status snapshot_put(struct snapshot *snapshot) {
  for (int r = 0; r < NET_REGION_COUNT; r++)
    if (snapshot->region[r]) TRY(net_write(snapshot->net, (enum net_region)r, snapshot->region[r]));
  return STATUS_OK;
}

const char *snapshot_not_finite(const struct snapshot *snapshot) {
  for (int i = 0; i < snapshot->item_count; i++) {
    const struct checkpoint_item *item = &snapshot->items[i];
    int64_t count = tensor_count(&item->tensor);
    for (int64_t k = 0; k < count; k++)
      if (!isfinite(item->data[k])) return item->name;
  }
  return NULL;
}
