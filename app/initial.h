/* Where a run's parameters come from if not from chance: `--init`, the start of fine-tuning. */
#ifndef CONVOY_APP_INITIAL_H
#define CONVOY_APP_INITIAL_H

#include "app/snapshot.h"
#include "app/train_options.h"

/* STATUS_INPUT unless `path` (a checkpoint, or a run's folder: its newest) holds this model; the message of
 * a difference has both. */
enum status initial_check(const char *path, const char *model);

/* Fills the snapshot for a run that starts at step 0 from --init's checkpoint: its parameters and statistics.
 * The layer that gives the logits starts as net_init has it where its shape differs (other classes or image
 * size), and so do low-rank adapters; those of the checkpoint are merged. Any other difference is
 * STATUS_INPUT. Says on stdout what was taken. Rank 0; the net is initialised too. */
enum status initial_read(const struct train_options *options, const struct graph *graph,
                         struct snapshot *snapshot);

#endif
