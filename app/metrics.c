/* Prometheus' text format (prometheus.io/docs/instrumenting/exposition_formats); see metrics.h. */
#include "app/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app/output.h"
#include "app/utf8.h"
#include "model/base/clock.h"
#include "model/base/log.h"

enum { LABELS = 2048 };

struct metrics {
  char path[PATH_MAX], temporary[PATH_MAX];
  char labels[LABELS];
  int ranks;
  int64_t steps, epochs;
  bool running, told;
  int exit_status;
  double written; /* clock */
  struct runlog_loss loss;
  struct runlog_epoch epoch;
  struct backend_usage usage;
};

/* A label's value between quotes, UTF-8: \, " and line ends are escaped. What does not fit is left out. */
static void add_label(struct metrics *metrics, const char *name, const char *value) {
  char *out = metrics->labels;
  size_t used = strlen(out);
  used += (size_t)snprintf(out + used, LABELS - used, "%s%s=\"", used ? "," : "", name);
  for (; *value && used + 8 < LABELS; value++) {
    if (*value == '\\' || *value == '"' || *value == '\n') out[used++] = '\\';
    out[used++] = *value == '\n' ? 'n' : *value;
  }
  snprintf(out + used, LABELS - used, "\"");
  utf8_mend(out);
}

static void put(FILE *file, const struct metrics *metrics, const char *name, const char *type,
                const char *help, double value) {
  if (isnan(value)) return; /* not measured */
  fprintf(file, "# HELP %s %s\n# TYPE %s %s\n%s{%s} %.17g\n", name, help, name, type, name, metrics->labels,
          value);
}

static void put_all(FILE *file, const struct metrics *m) {
  put(file, m, "convoy_train_running", "gauge", "1 while the run trains, 0 when it has ended.", m->running);
  put(file, m, "convoy_train_exit_status", "gauge", "Exit status of the run, once it has ended.",
      m->running ? (double)NAN : (double)m->exit_status);
  put(file, m, "convoy_train_ranks", "gauge", "MPI ranks that train.", m->ranks);
  put(file, m, "convoy_train_planned_steps", "gauge", "Steps after which the run ends.", (double)m->steps);
  put(file, m, "convoy_train_planned_epochs", "gauge", "Epochs of the schedule.", (double)m->epochs);
  put(file, m, "convoy_train_steps_total", "counter", "Steps done.", (double)m->loss.step);
  put(file, m, "convoy_train_epochs_total", "counter", "Epochs finished.", (double)m->epoch.epoch);
  put(file, m, "convoy_train_seconds_total", "counter", "Time spent in training steps.", m->loss.seconds);
  put(file, m, "convoy_train_loss", "gauge", "Mean loss over the last steps logged.", m->loss.loss);
  put(file, m, "convoy_train_learning_rate", "gauge", "Learning rate of the last step logged.", m->loss.lr);
  put(file, m, "convoy_train_images_per_second", "gauge", "Images trained in a second, over all ranks.",
      m->loss.images_per_s);
  put(file, m, "convoy_train_accuracy_ratio", "gauge", "Right predictions in training, last epoch.",
      m->epoch.train_accuracy);
  put(file, m, "convoy_test_loss", "gauge", "Mean loss over the test images.", m->epoch.test_loss);
  put(file, m, "convoy_test_accuracy_ratio", "gauge", "Right predictions for the test images.",
      m->epoch.test_accuracy);
  put(file, m, "convoy_train_device_memory_used_bytes", "gauge",
      "Memory in use on rank 0's device, by anyone.",
      m->usage.memory > 0 ? m->usage.memory_used : (double)NAN);
  put(file, m, "convoy_train_device_memory_bytes", "gauge", "Memory of rank 0's device.",
      m->usage.memory > 0 ? m->usage.memory : (double)NAN);
  put(file, m, "convoy_train_device_busy_ratio", "gauge",
      "Part of the last second in which rank 0's device ran.", m->usage.busy);
  put(file, m, "convoy_train_last_update_timestamp_seconds", "gauge", "When this was written.",
      (double)time(NULL));
}

static enum status write_file(struct metrics *metrics) {
  FILE *file = fopen(metrics->temporary, "w");
  int failed = file ? 0 : errno;
  if (file) {
    put_all(file, metrics);
    if (ferror(file)) failed = EIO;
    if (fclose(file) != 0) failed = errno;
  }
  if (!failed && rename(metrics->temporary, metrics->path) != 0) failed = errno;
  if (!failed) return STATUS_OK;
  if (file) remove(metrics->temporary);
  return RAISE(STATUS_STORAGE, "cannot write --metrics %s: %s", metrics->path, strerror(failed));
}

/* What cannot be written now may be later: training goes on. */
static void update(struct metrics *metrics, bool always) {
  double now = clock_seconds();
  if (!always && now - metrics->written < 1) return;
  metrics->written = now;
  if (write_file(metrics) == STATUS_OK) return;
  if (!metrics->told) log_warning("%s; the run goes on", error_message());
  metrics->told = true;
  error_clear();
}

enum status metrics_check(const char *path) {
  static const struct output_kind kind = {"file of --metrics", "# HELP convoy_train_running "};
  return output_check(path, &kind);
}

enum status metrics_open(const char *path, const struct metrics_run *run, struct metrics **out) {
  struct metrics *metrics = calloc(1, sizeof *metrics);
  if (!metrics) return RAISE(STATUS_INPUT, "no memory for --metrics");
  snprintf(metrics->path, sizeof metrics->path, "%s", path);
  int length = snprintf(metrics->temporary, sizeof metrics->temporary, "%s.tmp", path);
  add_label(metrics, "run", run->run);
  add_label(metrics, "model", run->model);
  add_label(metrics, "host", run->host);
  metrics->ranks = run->ranks;
  metrics->steps = run->steps;
  metrics->epochs = run->epochs;
  metrics->running = true;
  metrics->loss = (struct runlog_loss){.loss = NAN, .lr = NAN, .images_per_s = NAN};
  metrics->usage = (struct backend_usage){.busy = NAN};
  metrics->epoch = (struct runlog_epoch){.train_accuracy = NAN, .test_loss = NAN, .test_accuracy = NAN};
  enum status status = length < (int)sizeof metrics->temporary
                           ? metrics_check(path)
                           : RAISE(STATUS_STORAGE, "--metrics %.100s…: the path is too long", path);
  if (status == STATUS_OK) status = write_file(metrics);
  if (status != STATUS_OK)
    free(metrics);
  else
    *out = metrics;
  return status;
}

void metrics_loss(struct metrics *metrics, const struct runlog_loss *row) {
  if (!metrics) return;
  metrics->loss = *row;
  update(metrics, false);
}

void metrics_usage(struct metrics *metrics, const struct backend_usage *usage) {
  if (metrics) metrics->usage = *usage;
}

void metrics_epoch(struct metrics *metrics, const struct runlog_epoch *row) {
  if (!metrics) return;
  metrics->epoch = *row;
  update(metrics, true);
}

void metrics_close(struct metrics *metrics, enum status status) {
  struct error_record record; /* of the run's failure */
  if (!metrics) return;
  metrics->running = false;
  metrics->exit_status = (int)status;
  error_save(&record);
  update(metrics, true);
  error_restore(&record);
  free(metrics);
}
