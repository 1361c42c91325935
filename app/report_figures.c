/* The curves and bars of runs, from their files; see report_parts.h. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "app/report_parts.h"

static const char *const modes[] = {"strong", "weak"}; /* of scaling.csv */

static const struct source {
  const char *title, *file, *x, *y, *x_title;
  bool by_mode;
} sources[] = {
    {"Training loss", "loss.csv", "step", "loss", "step", false},
    {"Test accuracy", "epochs.csv", "epoch", "test_accuracy", "epoch", false},
    {"Test loss", "epochs.csv", "epoch", "test_loss", "epoch", false},
    {"Training accuracy", "epochs.csv", "epoch", "train_accuracy", "epoch", false},
    {"Images per second", "loss.csv", "step", "images_per_s", "step", false},
    {"Learning rate", "loss.csv", "step", "lr", "step", false},
    {"Scaling: images per second (weak: dashed)", "scaling.csv", "ranks", "images_per_s", "ranks", true},
    {"Scaling: efficiency (weak: dashed)", "scaling.csv", "ranks", "efficiency", "ranks", true},
};
_Static_assert(sizeof sources / sizeof *sources == REPORT_FIGURES, "REPORT_FIGURES counts the sources");

/* The curves of one run: two where its file has modes. */
static enum status read_run(const struct source *source, const struct report_run *run, int index,
                            struct report_figure *figure) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/%s", run->folder, source->file);
  for (int mode = 0; mode < (source->by_mode ? 2 : 1); mode++) {
    struct report_series *series = &figure->series[figure->count];
    TRY(report_read(path, source->x, source->y, source->by_mode ? "mode" : NULL, modes[mode], series));
    if (series->count == 0) {
      report_series_destroy(series);
      continue;
    }
    series->run = index;
    series->dashed = mode == 1;
    figure->count++;
  }
  return STATUS_OK;
}

enum status report_figures(const struct report_run *run, int count,
                           struct report_figure figure[REPORT_FIGURES], int *figures) {
  *figures = 0;
  for (int i = 0; i < REPORT_FIGURES; i++) {
    struct report_figure *next = &figure[*figures];
    next->title = sources[i].title;
    next->x_title = sources[i].x_title;
    for (int r = 0; r < count; r++) {
      enum status status = read_run(&sources[i], &run[r], r, next);
      if (status == STATUS_OK) continue;
      report_figures_destroy(figure, *figures + 1);
      *figures = 0;
      return error_trace(status, __func__);
    }
    if (next->count > 0) ++*figures;
  }
  return STATUS_OK;
}

void report_figures_destroy(struct report_figure *figure, int figures) {
  for (int i = 0; figure && i < figures; i++) {
    for (int s = 0; s < figure[i].count; s++) report_series_destroy(&figure[i].series[s]);
    figure[i].count = 0;
  }
}

/* ---- bars ---- */

static double number(const struct report_run *run, const char *name) {
  const cJSON *result = cJSON_GetObjectItemCaseSensitive(run->json, "result");
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(result, name);
  return cJSON_IsNumber(item) && item->valuedouble > 0 ? item->valuedouble : 0;
}

void report_session_bars(const struct report_run *run, int count, struct report_bars *bars) {
  *bars =
      (struct report_bars){.title = "Where the time went",
                           .unit = "%",
                           .name = {"steps", "other ranks", "data", "evaluation", "checkpoints", "order"}};
  for (int r = 0; r < count; r++) {
    double steps = number(&run[r], "session_steps"), sum = 0;
    struct report_bar *bar = &bars->bar[bars->count];
    if (steps <= 0) continue; /* made before runs recorded it, or still running */
    double wait = number(&run[r], "session_wait"), data = number(&run[r], "session_data");
    const double part[REPORT_PARTS] = {fmax(steps - wait - data, 0),
                                       wait,
                                       data,
                                       number(&run[r], "session_evaluation"),
                                       number(&run[r], "session_saves"),
                                       number(&run[r], "session_planning")};
    for (int p = 0; p < REPORT_PARTS; p++) sum += part[p];
    for (int p = 0; p < REPORT_PARTS; p++) bar->part[p] = 100 * part[p] / sum;
    snprintf(bar->label, sizeof bar->label, "%s", run[r].folder);
    bars->count++;
  }
}

/* One run's rows of a mode. */
static enum status add_steps(const struct report_run *run, const char *mode, struct report_bars *bars) {
  static const char *const columns[] = {"data_ms", "forward_ms", "backward_ms", "exposed_ms", "update_ms"};
  char path[PATH_MAX];
  int first = bars->count;
  snprintf(path, sizeof path, "%s/scaling.csv", run->folder);
  for (int p = 0; p < 5; p++) {
    struct report_series series;
    TRY(report_read(path, "ranks", columns[p], "mode", mode, &series));
    for (int64_t i = 0; i < series.count && first + i < REPORT_BARS; i++) {
      struct report_bar *bar = &bars->bar[first + i];
      snprintf(bar->label, sizeof bar->label, "%s: %s, %g rank%s", run->folder, mode, series.x[i],
               series.x[i] > 1 ? "s" : "");
      bar->part[p] = series.y[i];
      if (p == 0) bars->count++;
    }
    report_series_destroy(&series);
  }
  return STATUS_OK;
}

enum status report_step_bars(const struct report_run *run, int count, struct report_bars *bars) {
  *bars = (struct report_bars){.title = "Scaling: parts of a step",
                               .unit = "ms",
                               .name = {"data", "forward", "backward", "all-reduce", "update"}};
  for (int r = 0; r < count; r++)
    for (int mode = 0; mode < 2; mode++) TRY(add_steps(&run[r], modes[mode], bars));
  return STATUS_OK;
}
