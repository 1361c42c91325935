/* A net's parameters and optimizer state, as checkpoints hold them and as ranks share them; see net.h. */
#include "model/net/net_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int net_item_count(const struct net *net) {
  return net->layout.item_count;
}

struct net_item net_item(const struct net *net, int index) {
  const struct layout_item *item = &net->layout.item[index];
  struct tensor tensor = item->tensor;
  tensor.dtype = DTYPE_F32;
  return (struct net_item){.name = item->name,
                           .tensor = tensor,
                           .offset = item->offset,
                           .learned = item->learned,
                           .fixed = item->fixed};
}

static float *region_memory(const struct net *net, enum net_region region) {
  return region == NET_PARAMS ? net->params : net->slot[region - NET_OPTIMIZER0];
}

int64_t net_region_count(const struct net *net, enum net_region region) {
  if (!region_memory(net, region)) return 0;
  return region == NET_PARAMS ? net->layout.all_count : net->layout.parameter_count;
}

enum status net_read(struct net *net, enum net_region region, float *host) {
  size_t bytes = (size_t)net_region_count(net, region) * sizeof(float);
  TRY(net->backend->table->download(net->backend, host, region_memory(net, region), bytes));
  return STATUS_OK;
}

static enum status refresh_low(struct net *net) {
  if (!net->low) return STATUS_OK;
  return net->backend->table->convert(net->backend, net->params, net->low, net->layout.all_count);
}

enum status net_write(struct net *net, enum net_region region, const float *host) {
  size_t bytes = (size_t)net_region_count(net, region) * sizeof(float);
  TRY(net->backend->table->upload(net->backend, region_memory(net, region), host, bytes));
  return region == NET_PARAMS ? refresh_low(net) : STATUS_OK;
}

enum status net_begin(struct net *net, const float *params) {
  TRY(net_write(net, NET_PARAMS, params));
  for (int i = 0; i < 2; i++)
    if (net->slot[i])
      TRY(net->backend->table->zero(net->backend, net->slot[i],
                                    (size_t)net->layout.parameter_count * sizeof(float)));
  return STATUS_OK;
}

enum status net_init(struct net *net, uint64_t seed) {
  float *params;
  TRY(net_draw(net->graph, seed, net->backend->world->cores, &params));
  enum status status = net_begin(net, params);
  free(params);
  return status;
}

enum status net_broadcast(struct net *net) {
  if (net->backend->world->size == 1) return STATUS_OK;
  for (int region = 0; region < NET_REGION_COUNT; region++) {
    size_t bytes = (size_t)net_region_count(net, (enum net_region)region) * sizeof(float);
    if (bytes == 0) continue;
    TRY(net->backend->table->broadcast(net->backend, region_memory(net, (enum net_region)region), bytes, 0));
  }
  return refresh_low(net);
}

void net_describe(const struct net *net, char *text, size_t capacity) {
  size_t used = (size_t)snprintf(
      text, capacity, "%" PRId64 " parameters in %d arrays; %.1f MB: activations %.1f, workspace %.1f",
      graph_parameter_count(net->graph), net->layout.item_count, (double)net->bytes * 1e-6,
      (double)net->activation_bytes * 1e-6, (double)net->workspace_bytes * 1e-6);
  int64_t all = graph_parameter_count(net->graph), trained = graph_trained_count(net->graph);
  if (trained < all && used < capacity)
    used += (size_t)snprintf(text + used, capacity - used, "; %" PRId64 " of them trained (%.1f %%)", trained,
                             100 * (double)trained / (double)all);
  if (net->options.lanes > 0 && used < capacity)
    snprintf(text + used, capacity - used, "; %d lane%s a rank, %.2f MB each", net->options.lanes,
             net->options.lanes == 1 ? "" : "s", (double)(net->layout.total_count + METRIC_COUNT) * 4e-6);
  if (net->bucket_count > 0 && net->backend->world->size > 1 && used < capacity)
    snprintf(text + used, capacity - used, "; all-reduce of %.2f MB in %d bucket%s",
             ((double)(net->layout.total_count + METRIC_COUNT) * 4 -
              (net->reduced ? (double)net->layout.parameter_count * 2 : 0)) *
                 1e-6,
             net->bucket_count, net->bucket_count == 1 ? "" : "s");
}
