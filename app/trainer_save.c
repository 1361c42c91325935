/* Checkpoints of a run, and the messages about them; see trainer.h. The steps stand only while the state is
 * copied to host memory and its digest compared over the ranks; rank 0's saver writes it while they go on. */
#include <inttypes.h>

#include "app/replica.h"
#include "app/trainer_parts.h"
#include "model/backend/trace.h"
#include "model/base/clock.h"
#include "model/base/log.h"

/* Rank 0: takes note of the running save once it has ended. */
static enum status collect(struct trainer *t) {
  struct saver_result saved;
  if (!t->saves.saver) return STATUS_OK;
  world_set_patient(t->session->world, true); /* a slow disk is no fault */
  enum status status = saver_wait(t->saves.saver, &saved);
  world_set_patient(t->session->world, false);
  if (status != STATUS_OK) return error_trace(status, __func__);
  if (saved.step < 0) return STATUS_OK;
  log_info("checkpoint of step %" PRId64 "%s written in %.2f s; the steps stood for %.3f s", saved.step,
           t->saves.best ? " (best so far)" : "", saved.seconds, t->saves.stood);
  t->saves.saved_step = saved.step;
  return STATUS_OK;
}

/* Rank 0: starts writing the snapshot. */
static enum status begin(struct trainer *t, bool best) {
  struct saver_job job = {.content = {.progress = t->at,
                                      .options = t->record->option,
                                      .option_count = t->record->count,
                                      .items = t->snapshot->items,
                                      .item_count = t->snapshot->item_count},
                          .snapshot = t->snapshot,
                          .runlog = t->runlog,
                          .keep = (int)t->options->keep,
                          .best = best};
  t->saves.best = best;
  t->saves.last = clock_seconds();
  return saver_begin(t->saves.saver, &job);
}

enum status trainer_check_replicas(struct trainer *t) {
  const struct world *world = t->session->world;
  enum status status = replica_disturb(world, t->session->net, t->at.step);
  if (status == STATUS_OK) status = snapshot_take(t->snapshot);
  TRY(world_agree(world, status));
  return replica_check(world, t->snapshot->region[NET_PARAMS], net_region_count(t->session->net, NET_PARAMS),
                       t->at.step);
}

enum status trainer_save(struct trainer *t, bool best, bool wait) {
  const struct world *world = t->session->world;
  TRY(world_agree(world, collect(t)));
  double start = clock_seconds();
  net_request_save(t->session->net, false); /* all steps are counted: none carries it any more */
  t->asked.save = false;
  TRY(TRACE("save", trainer_check_replicas(t)));
  enum status status = t->saves.saver ? begin(t, best) : STATUS_OK;
  t->saves.stood = clock_seconds() - start;
  if (status == STATUS_OK && wait) status = collect(t);
  TRY(world_agree(world, status));
  t->saves.common_step = t->at.step;
  return STATUS_OK;
}

enum status trainer_save_end(struct trainer *t) {
  return world_agree(t->session->world, collect(t));
}

bool trainer_save_failed(struct trainer *t) {
  if (!t->saves.saver || t->saves.failed || !saver_ended(t->saves.saver)) return t->saves.failed;
  t->saves.failed = collect(t) != STATUS_OK;
  if (t->saves.failed) error_clear(); /* trainer_save_end raises it again */
  return t->saves.failed;
}

bool trainer_save_due(const struct trainer *t) {
  double minutes = t->options->checkpoint_minutes;
  return t->runlog && minutes > 0 && clock_seconds() - t->saves.last >= 60 * minutes;
}
