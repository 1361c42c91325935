/* Checkpoints of a run, and the messages about them; see trainer.h. */
#include <inttypes.h>

#include "app/trainer.h"
#include "model/base/log.h"

static enum status write_checkpoint(struct trainer *trainer, bool best) {
  struct checkpoint_content content = {.progress = trainer->at,
                                       .options = trainer->record->option,
                                       .option_count = trainer->record->count,
                                       .items = trainer->snapshot->items,
                                       .item_count = trainer->snapshot->item_count};
  TRY(runlog_sync(trainer->runlog));
  TRY(snapshot_take(trainer->snapshot));
  const char *broken = snapshot_not_finite(trainer->snapshot);
  if (broken)
    return RAISE(STATUS_NUMERIC,
                 "%s is not finite after step %" PRId64 "; nothing was saved; try a lower --lr", broken,
                 trainer->at.step);
  return checkpoint_write(runlog_checkpoints(trainer->runlog), &content, (int)trainer->options->keep, best);
}

enum status trainer_save(struct trainer *trainer, bool best) {
  double start = trainer_clock();
  if (trainer->runlog) {
    TRY(write_checkpoint(trainer, best));
    log_info("checkpoint of step %" PRId64 "%s written in %.2f s", trainer->at.step,
             best ? " (best so far)" : "", trainer_clock() - start);
  }
  trainer->saved_step = trainer->at.step;
  trainer->last_save = trainer_clock();
  return STATUS_OK;
}
