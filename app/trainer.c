/* The training loop; see trainer.h.
 *
 * The host enqueues steps and reads each one's metrics TRAINER_LAG steps later. All ranks read the same
 * reduced metrics, so what they decide from those of step s they decide after enqueueing step s +
 * TRAINER_LAG: a stop wish or a loss that is not finite ends the run, and a checkpoint that rank 0's clock
 * wants is begun, after the same step everywhere, without a further message. */
#include "app/trainer_parts.h"

#include <inttypes.h>
#include <math.h>

#include "app/signals.h"
#include "model/backend/trace.h"
#include "model/base/clock.h"
#include "model/base/log.h"

static bool is_last_epoch(const struct trainer *t) {
  return t->at.epoch + 1 >= t->options->epochs;
}

enum status trainer_create(struct trainer *t) {
  const struct world *world = t->session->world;
  t->epoch_steps = sampler_steps(&t->sampler);
  t->last_step = t->options->epochs * t->epoch_steps;
  if (t->options->steps > 0 && t->options->steps < t->last_step) t->last_step = t->options->steps;
  t->queue.enqueued = t->at.step;
  t->saves.saved_step = t->saves.common_step = t->at.step > 0 ? t->at.step : -1;
  t->opened = t->saves.last = clock_seconds();
  t->planner = (struct planner){.sampler = &t->sampler,
                                .schedule = &t->schedule,
                                .beta1 = t->options->beta1,
                                .beta2 = t->options->beta2,
                                .world = world};
  TRY(planner_create(&t->planner));
  if (t->runlog) TRY(saver_create(&t->saves.saver));
  progress_open(&t->view, t->options->quiet || !t->runlog, t->at.step);
  return STATUS_OK;
}

void trainer_destroy(struct trainer *t) {
  progress_close(&t->view);
  saver_destroy(t->saves.saver);
  t->saves.saver = NULL;
  planner_destroy(&t->planner);
}

/* ---- time ---- */

/* A step's time is what passes while it is enqueued (there a CPU computes) and while its metrics are waited
 * for (there a GPU does). */
static double lap(struct trainer *t) {
  return pace_lap(&t->pace, t->session->world);
}

/* What passed since the last lap was not a step's. */
static void count(struct trainer *t, double *part) {
  pace_part(&t->pace, t->session->world, part);
}

/* ---- metrics ---- */

/* Where the rows of step `position` of the epoch end in this epoch's plan. */
static int64_t rows_end(const struct trainer *t, int64_t position) {
  const struct world *world = t->session->world;
  int64_t first, count;
  sampler_rank_part(&t->sampler, position, world->rank, world->size, &first, &count);
  return t->plan->begin[position - t->plan->first] + count;
}

/* Reads the metrics of the oldest step that is not counted yet, and counts it. */
static enum status settle_one(struct trainer *t) {
  struct checkpoint_progress *at = &t->at;
  struct trainer_asked *asked = &t->asked;
  struct net_metrics metrics;
  int64_t slot = at->step % (TRAINER_LAG + 1);
  TRY(net_metrics(t->session->net, t->queue.ticket[slot], &metrics));
  double spent = t->queue.spent[slot] + lap(t);
  at->seconds += spent;
  at->epoch_seconds += spent;
  at->row_seconds += spent;
  pace_step(&t->pace);
  int64_t samples = sampler_step_count(&t->sampler, at->position);
  if (t->session->stream) stream_release(t->session->stream, rows_end(t, at->position));
  at->step++;
  at->position++;
  if (asked->not_finite) return STATUS_OK; /* the device has updated nothing since */
  if (!isfinite(metrics.loss_sum)) {
    asked->not_finite = true;
    asked->bad_step = at->step;
    if (asked->halt_step == 0) asked->halt_step = at->step; /* once set it stands: all ranks leave by it */
    return trainer_log_row(t, NAN);
  }
  if (metrics.stop && asked->halt_step == 0) asked->halt_step = at->step;
  if (metrics.save) asked->save = true;
  at->epoch_loss_sum += metrics.loss_sum;
  at->epoch_correct += metrics.correct;
  at->epoch_samples += samples;
  at->row_loss_sum += metrics.loss_sum;
  at->row_samples += samples;
  double loss = at->row_loss_sum / (double)at->row_samples;
  trainer_show(t, loss);
  return at->step % t->options->log_every == 0 ? trainer_log_row(t, loss) : STATUS_OK;
}

static enum status settle_all(struct trainer *t) {
  while (t->at.step < t->queue.enqueued) TRY(settle_one(t));
  return STATUS_OK;
}

/* Waits for the run's first step and says what the start took, of which the steps' times know nothing. Its
 * early look at the metrics changes nothing. */
static enum status tell_start(struct trainer *t, uint64_t ticket) {
  struct net_metrics metrics;
  char text[512];
  start_part(t->start, "capture");
  TRY(net_metrics(t->session->net, ticket, &metrics));
  start_part(t->start, "step");
  start_end(t->start);
  start_text(t->start, text, sizeof text);
  log_info("start: %s", text);
  return STATUS_OK;
}

/* ---- an epoch ---- */

/* Plans the epoch's steps from `first` on, and has the next epoch's plan made meanwhile. */
static enum status plan_epoch(struct trainer *t, int64_t first) {
  TRY(planner_get(&t->planner, t->at.epoch, first, &t->plan));
  struct epoch_plan *plan = t->plan;
  if (t->session->stream) TRY(stream_begin(t->session->stream, plan->list, plan->count));
  TRY(net_plan(t->session->net, plan->list, plan->count, plan->rows, plan->steps));
  if (!is_last_epoch(t)) planner_ahead(&t->planner, t->at.epoch + 1);
  return STATUS_OK;
}

static enum status wait_for_data(struct trainer *t, int64_t position) {
  double begin = clock_seconds();
  enum status status = stream_wait(t->session->stream, rows_end(t, position));
  t->pace.data += clock_seconds() - begin;
  return status;
}

static enum status enqueue(struct trainer *t, int64_t position) {
  const struct world *world = t->session->world;
  int64_t first, count;
  sampler_rank_part(&t->sampler, position, world->rank, world->size, &first, &count);
  if (signals_stop_wanted() || trainer_save_failed(t)) net_request_stop(t->session->net);
  if (trainer_save_due(t)) net_request_save(t->session->net, true);
  int64_t slot = t->queue.enqueued % (TRAINER_LAG + 1);
  if (t->session->stream) TRY(wait_for_data(t, position));
  world_set_step(world, t->queue.enqueued + 1);
  TRY(TRACE("step", net_train_step(t->session->net, &t->session->train, count, &t->queue.ticket[slot])));
  bool first_of_run = t->start->seconds == 0;
  if (first_of_run) TRY(tell_start(t, t->queue.ticket[slot]));
  t->queue.spent[slot] = lap(t);
  if (first_of_run) pace_restart(&t->pace);
  t->queue.enqueued++;
  if (t->queue.enqueued - t->at.step > TRAINER_LAG) TRY(settle_one(t));
  return STATUS_OK;
}

/* trainer_save; what it takes is counted. */
static enum status save(struct trainer *t, bool best, bool wait) {
  enum status status = trainer_save(t, best, wait);
  count(t, &t->pace.saves);
  return status;
}

/* Saves in the middle of an epoch where it is due, by steps or by the metrics: at the same step on all ranks.
 */
static enum status save_if_due(struct trainer *t, int64_t position) {
  const struct train_options *o = t->options;
  if (position == t->epoch_steps || t->queue.enqueued == t->last_step)
    return STATUS_OK; /* comes after the evaluation */
  bool by_steps = o->checkpoint_every > 0 && t->queue.enqueued % o->checkpoint_every == 0;
  if (!by_steps && !t->asked.save) return STATUS_OK;
  TRY(settle_all(t));
  return t->asked.not_finite ? STATUS_OK : save(t, false, false);
}

/* Trains to the end of the epoch or of the run, or until the metrics ask for the end. */
static enum status train_epoch(struct trainer *t) {
  int64_t position = t->at.position;
  TRY(plan_epoch(t, position));
  count(t, &t->pace.planning);
  while (position < t->epoch_steps && t->queue.enqueued < t->last_step) {
    if (t->asked.halt_step > 0 && t->queue.enqueued >= t->asked.halt_step + TRAINER_LAG) break;
    TRY(enqueue(t, position++));
    TRY(save_if_due(t, position));
  }
  return settle_all(t);
}

static enum status test(struct trainer *t) {
  const struct train_options *o = t->options;
  bool last = is_last_epoch(t);
  bool due = last || (o->eval_every > 0 && (t->at.epoch + 1) % o->eval_every == 0);
  t->tested = (struct evaluation){0};
  if (!due || t->session->dataset->test.count == 0) return STATUS_OK;
  bool stop_came_in_last_step = last && signals_stop_wanted();
  return TRACE("evaluation", evaluate(t->session, !stop_came_in_last_step, &t->tested));
}

/* After an epoch's last step: evaluation, its row, a checkpoint. */
static enum status finish_epoch(struct trainer *t) {
  const struct train_options *o = t->options;
  struct checkpoint_progress *at = &t->at;
  enum status status = test(t);
  count(t, &t->pace.evaluation);
  if (status == STATUS_STOPPED) return status;
  if (status != STATUS_OK) return error_trace(status, __func__);
  TRY(pace_gather(&t->pace, t->session->world, &t->spread));
  TRY(world_agree(t->session->world, trainer_log_epoch(t)));
  double accuracy = t->tested.samples ? (double)t->tested.correct / (double)t->tested.samples : -1;
  bool best = accuracy > at->best_accuracy;
  if (best) at->best_accuracy = accuracy;
  at->epoch++;
  at->position = 0;
  at->epoch_loss_sum = at->epoch_correct = at->epoch_seconds = 0;
  at->epoch_samples = 0;
  at->complete = at->epoch >= o->epochs;
  bool only_epochs = o->checkpoint_every == 0 && o->checkpoint_minutes == 0;
  bool by_steps = o->checkpoint_every > 0 && at->step % o->checkpoint_every == 0;
  if (!best && !only_epochs && !by_steps && !t->asked.save && at->step < t->last_step) return STATUS_OK;
  return save(t, best, false);
}

/* ---- the run ---- */

static enum status fail_not_finite(struct trainer *t) {
  char saved[64] = "there is no checkpoint yet";
  if (trainer_save_end(t) != STATUS_OK) error_clear(); /* the loss is the worse news */
  if (t->saves.saved_step >= 0)
    snprintf(saved, sizeof saved, "the last good checkpoint is of step %" PRId64, t->saves.saved_step);
  return world_agree(t->session->world,
                     RAISE(STATUS_NUMERIC, "the loss is not finite at step %" PRId64 "; %s; try a lower --lr",
                           t->asked.bad_step, saved));
}

static enum status stop(struct trainer *t) {
  enum status status = trainer_save_end(t);
  count(t, &t->pace.saves);
  TRY(status);
  if (t->at.step > 0 && t->saves.common_step != t->at.step) TRY(save(t, false, true));
  return world_agree(t->session->world, STATUS_STOPPED);
}

enum status trainer_run(struct trainer *t) {
  start_part(t->start, "state");
  t->pace.device = t->session->backend->table->device;
  pace_begin(&t->pace, t->session->world);
  while (t->at.step < t->last_step || t->at.position == t->epoch_steps) {
    if (t->at.position < t->epoch_steps) TRY(TRACE("epoch", train_epoch(t)));
    if (t->asked.not_finite) return fail_not_finite(t);
    bool at_end = t->at.step == t->last_step;
    if (t->asked.halt_step > 0 && !at_end) return stop(t);
    if (t->at.position == t->epoch_steps) {
      enum status status = finish_epoch(t);
      if (status == STATUS_STOPPED) return stop(t);
      if (status != STATUS_OK) return error_trace(status, __func__);
    } else if (at_end) {
      TRY(save(t, false, false));
    }
  }
  return STATUS_OK;
}

enum status trainer_end(struct trainer *t) {
  pace_begin(&t->pace, t->session->world);
  enum status status = trainer_save_end(t);
  count(t, &t->pace.saves);
  return status;
}
