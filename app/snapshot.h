/* A net's state in host memory, as the arrays of a checkpoint. */
#ifndef CONVOY_APP_SNAPSHOT_H
#define CONVOY_APP_SNAPSHOT_H

#include "app/checkpoint.h"
#include "model/net/net.h"

struct snapshot {
  struct net *net;         /* borrowed */
  struct backend *backend; /* borrowed; the regions are its host-visible memory */
  float *region[NET_REGION_COUNT];
  struct checkpoint_item *items;
  int item_count;
};

/* Makes room for parameters and statistics and, with `optimizer`, its state. */
enum status snapshot_create(struct backend *backend, struct net *net, enum optimizer_kind kind,
                            bool optimizer, struct snapshot *snapshot);
void snapshot_destroy(struct snapshot *snapshot); /* also a zeroed one */

enum status snapshot_take(struct snapshot *snapshot); /* from the net */
enum status snapshot_put(struct snapshot *snapshot);  /* into the net of this rank */

/* The name of an array that holds a value which is not finite; NULL: there is none. */
const char *snapshot_not_finite(const struct snapshot *snapshot);

#endif
