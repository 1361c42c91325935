/* What a run says while it trains: rows of the logs, lines, the live display; see trainer_parts.h. */
#include <inttypes.h>
#include <math.h>

#include "app/trainer_parts.h"
#include "model/base/clock.h"
#include "model/base/log.h"

static double rate(int64_t samples, double seconds) {
  return seconds > 0 ? (double)samples / seconds : NAN;
}

enum status trainer_log_row(struct trainer *t, double loss) {
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

void trainer_show(struct trainer *t, double loss) {
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

enum status trainer_log_epoch(struct trainer *t) {
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
