/* Where a run's parameters come from if not from chance: `--init`, the start of fine-tuning. */
#ifndef CONVOY_APP_INITIAL_H
#define CONVOY_APP_INITIAL_H

#include "app/snapshot.h"

/* STATUS_INPUT unless `path` (a checkpoint, or a run's folder: its newest) holds this model; the message of
 * a difference has both. */
enum status initial_check(const char *path, const char *model);

/* Replaces parameters and statistics in the snapshot, which holds those of net_init, by the checkpoint's. The
 * layer that gives the logits stays as it is where its shape differs (other classes or image size); any other
 * difference is STATUS_INPUT. Says on stdout what was taken. Rank 0. */
enum status initial_read(const char *path, const char *model, const struct graph *graph,
                         const struct snapshot *snapshot);

#endif
