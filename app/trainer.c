/* The training loop; see trainer.h.
 *
 * The host enqueues steps and reads each one's metrics TRAINER_LAG steps later. All ranks read the same
 * reduced metrics, so what they decide from those of step s they decide after enqueueing step s +
 * TRAINER_LAG: a stop wish or a loss that is not finite ends the run, and a checkpoint that rank 0's clock
 * wants is begun, after the same step everywhere, without a further message. */
#include "app/trainer.h"

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
  t->enqueued = t->at.step;
  t->saved_step = t->common_save = t->at.step > 0 ? t->at.step : -1;
  t->opened = t->last_save = clock_seconds();
  t->planner = (struct planner){.sampler = &t->sampler,
                                .schedule = &t->schedule,
                                .beta1 = t->options->beta1,
                                .beta2 = t->options->beta2,
                                .world = world};
  TRY(planner_create(&t->planner));
  if (t->runlog) TRY(saver_create(&t->saver));
  progress_open(&t->view, t->options->quiet || !t->runlog, t->at.step);
  return STATUS_OK;
}

void trainer_destroy(struct trainer *t) {
  progress_close(&t->view);
  saver_destroy(t->saver);
  t->saver = NULL;
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

static double rate(int64_t samples, double seconds) {
  return seconds > 0 ? (double)samples / seconds : NAN;
}

/* ---- metrics ---- */

static enum status log_row(struct trainer *t, double loss) {
  struct checkpoint_progress *at = &t->at;
  if (t->runlog) {
    struct runlog_loss row = {.step = at->step,
                              .epoch = at->epoch + 1,
                              .loss = loss,
                              .lr = (double)schedule_lr(&t->schedule, at->step - 1),
                              .images_per_s = rate(at->row_samples, at->row_seconds),
                              .seconds = at->seconds};
    TRY(runlog_loss(t->runlog, &row));
    if (t->options->verbose)
      log_info("step %" PRId64 "/%" PRId64 ": loss %.4f, lr %.3g, %.0f images/s", row.step, t->last_step,
               loss, row.lr, row.images_per_s);
    metrics_loss(t->metrics, &row);
    tensorboard_loss(t->board, &row);
  }
  at->row_loss_sum = at->row_seconds = 0;
  at->row_samples = 0;
  return STATUS_OK;
}

static void show(struct trainer *t, double loss) {
  double now = clock_seconds() - t->opened;
  if (!t->runlog || !progress_due(&t->view, now)) return;
  struct progress_values values = {.epoch = t->at.epoch + 1,
                                   .epochs = t->options->epochs,
                                   .step = t->at.step,
                                   .steps = t->last_step,
                                   .loss = loss,
                                   .images_per_s = rate(t->at.epoch_samples, t->at.epoch_seconds),
                                   .seconds = now};
  progress_update(&t->view, &values);
}

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
  struct net_metrics metrics;
  int64_t slot = at->step % (TRAINER_LAG + 1);
  TRY(net_metrics(t->session->net, t->ticket[slot], &metrics));
  double spent = t->spent[slot] + lap(t);
  at->seconds += spent;
  at->epoch_seconds += spent;
  at->row_seconds += spent;
  pace_step(&t->pace);
  int64_t samples = sampler_step_count(&t->sampler, at->position);
  if (t->session->stream) stream_release(t->session->stream, rows_end(t, at->position));
  at->step++;
  at->position++;
  if (t->not_finite) return STATUS_OK; /* the device has updated nothing since */
  if (!isfinite(metrics.loss_sum)) {
    t->not_finite = true;
    t->bad_step = at->step;
    if (t->halt_step == 0) t->halt_step = at->step; /* once set it stands: all ranks leave by it */
    return log_row(t, NAN);
  }
  if (metrics.stop && t->halt_step == 0) t->halt_step = at->step;
  if (metrics.save) t->save_wanted = true;
  at->epoch_loss_sum += metrics.loss_sum;
  at->epoch_correct += metrics.correct;
  at->epoch_samples += samples;
  at->row_loss_sum += metrics.loss_sum;
  at->row_samples += samples;
  double loss = at->row_loss_sum / (double)at->row_samples;
  show(t, loss);
  return at->step % t->options->log_every == 0 ? log_row(t, loss) : STATUS_OK;
}

static enum status settle_all(struct trainer *t) {
  while (t->at.step < t->enqueued) TRY(settle_one(t));
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

/* Rank 0: whether --checkpoint-minutes have passed since the last save. */
static bool is_late(const struct trainer *t) {
  double minutes = t->options->checkpoint_minutes;
  return t->runlog && minutes > 0 && clock_seconds() - t->last_save >= 60 * minutes;
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
  if (is_late(t)) net_request_save(t->session->net, true);
  int64_t slot = t->enqueued % (TRAINER_LAG + 1);
  if (t->session->stream) TRY(wait_for_data(t, position));
  world_set_step(world, t->enqueued + 1);
  TRY(TRACE("step", net_train_step(t->session->net, &t->session->train, count, &t->ticket[slot])));
  bool first_of_run = t->start->seconds == 0;
  if (first_of_run) TRY(tell_start(t, t->ticket[slot]));
  t->spent[slot] = lap(t);
  if (first_of_run) pace_restart(&t->pace);
  t->enqueued++;
  if (t->enqueued - t->at.step > TRAINER_LAG) TRY(settle_one(t));
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
  if (position == t->epoch_steps || t->enqueued == t->last_step)
    return STATUS_OK; /* comes after the evaluation */
  bool by_steps = o->checkpoint_every > 0 && t->enqueued % o->checkpoint_every == 0;
  if (!by_steps && !t->save_wanted) return STATUS_OK;
  TRY(settle_all(t));
  return t->not_finite ? STATUS_OK : save(t, false, false);
}

/* Trains to the end of the epoch or of the run, or until the metrics ask for the end. */
static enum status train_epoch(struct trainer *t) {
  int64_t position = t->at.position;
  TRY(plan_epoch(t, position));
  count(t, &t->pace.planning);
  while (position < t->epoch_steps && t->enqueued < t->last_step) {
    if (t->halt_step > 0 && t->enqueued >= t->halt_step + TRAINER_LAG) break;
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

/* "; GPU 3.2 of 139.8 GiB, 97 % busy", as far as it is known. */
static void usage_text(const struct backend_usage *usage, char *text, size_t capacity) {
  size_t used = 0;
  text[0] = '\0';
  if (usage->memory > 0)
    used = (size_t)snprintf(text, capacity, "; GPU %.1f of %.1f GiB", usage->memory_used * 0x1p-30,
                            usage->memory * 0x1p-30);
  if (!isnan(usage->busy) && used < capacity)
    snprintf(text + used, capacity - used, "%s %.0f %% busy", used ? "," : "; GPU", 100 * usage->busy);
}

static enum status log_epoch(struct trainer *t) {
  struct checkpoint_progress *at = &t->at;
  double samples = (double)t->tested.samples;
  struct runlog_epoch row = {.epoch = at->epoch + 1,
                             .step = at->step,
                             .train_loss = at->epoch_loss_sum / (double)at->epoch_samples,
                             .train_accuracy = at->epoch_correct / (double)at->epoch_samples,
                             .test_loss = t->tested.samples ? t->tested.loss : NAN,
                             .test_accuracy = t->tested.samples ? (double)t->tested.correct / samples : NAN,
                             .images_per_s = rate(at->epoch_samples, at->epoch_seconds),
                             .seconds = at->seconds};
  char tested[96] = "", pace[160], device[80] = "";
  struct backend *backend = t->session->backend;
  if (t->runlog) {
    struct backend_usage usage;
    backend->table->usage(backend, &usage);
    usage_text(&usage, device, sizeof device);
    metrics_usage(t->metrics, &usage);
  }
  if (t->tested.samples)
    snprintf(tested, sizeof tested, "; test loss %.4f, accuracy %.4f", row.test_loss, row.test_accuracy);
  pace_text(&t->spread, t->session->world->size, pace, sizeof pace);
  log_info("epoch %" PRId64 "/%" PRId64 ": step %" PRId64 ", loss %.4f, accuracy %.4f%s; %.0f images/s%s%s",
           row.epoch, t->options->epochs, row.step, row.train_loss, row.train_accuracy, tested,
           row.images_per_s, pace, device);
  metrics_epoch(t->metrics, &row);
  tensorboard_epoch(t->board, &row);
  return t->runlog ? runlog_epoch(t->runlog, &row) : STATUS_OK;
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
  TRY(world_agree(t->session->world, log_epoch(t)));
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
  if (!best && !only_epochs && !by_steps && !t->save_wanted && at->step < t->last_step) return STATUS_OK;
  return save(t, best, false);
}

/* ---- the run ---- */

static enum status fail_not_finite(struct trainer *t) {
  char saved[64] = "there is no checkpoint yet";
  if (trainer_save_end(t) != STATUS_OK) error_clear(); /* the loss is the worse news */
  if (t->saved_step >= 0)
    snprintf(saved, sizeof saved, "the last good checkpoint is of step %" PRId64, t->saved_step);
  return world_agree(t->session->world,
                     RAISE(STATUS_NUMERIC, "the loss is not finite at step %" PRId64 "; %s; try a lower --lr",
                           t->bad_step, saved));
}

static enum status stop(struct trainer *t) {
  enum status status = trainer_save_end(t);
  count(t, &t->pace.saves);
  TRY(status);
  if (t->at.step > 0 && t->common_save != t->at.step) TRY(save(t, false, true));
  return world_agree(t->session->world, STATUS_STOPPED);
}

enum status trainer_run(struct trainer *t) {
  start_part(t->start, "state");
  t->pace.device = t->session->backend->table->device;
  pace_begin(&t->pace, t->session->world);
  while (t->at.step < t->last_step || t->at.position == t->epoch_steps) {
    if (t->at.position < t->epoch_steps) TRY(TRACE("epoch", train_epoch(t)));
    if (t->not_finite) return fail_not_finite(t);
    bool at_end = t->at.step == t->last_step;
    if (t->halt_step > 0 && !at_end) return stop(t);
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
