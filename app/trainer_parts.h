/* What the parts of the trainer share, app/trainer*.c only. */
#ifndef CONVOY_APP_TRAINER_PARTS_H
#define CONVOY_APP_TRAINER_PARTS_H

#include "app/trainer.h"

/* ---- trainer_save.c ---- */

/* Begins a checkpoint of what is done, if all ranks hold the same parameters; with `wait` it is durable when
 * the call returns. A former save's failure comes here too. Collective; the same status on all ranks. */
enum status trainer_save(struct trainer *trainer, bool best, bool wait);
/* Waits for the running save and returns how it, or one before it, ended. Collective. */
enum status trainer_save_end(struct trainer *trainer);
/* Rank 0: whether a save has failed by now; the error waits for the next of the calls above. */
bool trainer_save_failed(struct trainer *trainer);
/* Rank 0: whether --checkpoint-minutes have passed since the last save. */
bool trainer_save_due(const struct trainer *trainer);

/* ---- trainer_log.c: rank 0 writes and says, the others only begin their counts anew ---- */

/* The row of loss.csv for the steps since the last one; `loss` is their mean, NAN: not finite. */
enum status trainer_log_row(struct trainer *trainer, double loss);
/* The live line, where it is time for it. */
void trainer_show(struct trainer *trainer, double loss);
/* The epoch's line, and its row of epochs.csv. */
enum status trainer_log_epoch(struct trainer *trainer);

#endif
