/* What the parts of `convoy report` share: runs, their curves, and the forms that these take. */
#ifndef CONVOY_APP_REPORT_PARTS_H
#define CONVOY_APP_REPORT_PARTS_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "app/output.h"
#include "model/base/error.h"

enum {
  REPORT_RUNS = 8,
  REPORT_POINTS = 800, /* at most a curve */
  REPORT_CURVES = 2 * REPORT_RUNS,
  REPORT_FIGURES = 8,
  REPORT_PARTS = 6,
  REPORT_BARS = 64
};

struct report_run {
  const char *folder; /* borrowed */
  cJSON *json;        /* run.json; NULL: there is none */
};

/* A curve's points, x rising. */
struct report_series {
  int64_t count;
  double *x, *y; /* owned, one allocation that begins at x */
  int run;       /* gives the colour */
  bool dashed;
};

struct report_figure {
  const char *title, *x_title;
  struct report_series series[REPORT_CURVES]; /* those without points are left out */
  int count;
};

/* ---- report_csv.c ---- */

/* Two columns of a log by their names; with `key`, of the rows whose column of that name is `value`. Rows in
 * which either is empty are left out; more than REPORT_POINTS rows become as many means of neighbours. No
 * such file: no points. A file without these columns, or with what is no number: STATUS_INPUT with file and
 * line. */
enum status report_read(const char *path, const char *x, const char *y, const char *key, const char *value,
                        struct report_series *series);
void report_series_destroy(struct report_series *series); /* also a zeroed one */

/* ---- report_figures.c ---- */

/* The figures that the runs' files give, without empty ones. */
enum status report_figures(const struct report_run *run, int count,
                           struct report_figure figure[REPORT_FIGURES], int *figures);
void report_figures_destroy(struct report_figure *figure, int figures);

/* What a time consists of: a bar a run, or a number of ranks. */
struct report_bar {
  char label[128];
  double part[REPORT_PARTS];
};
struct report_bars {
  const char *title, *unit, *name[REPORT_PARTS]; /* of the parts; NULL: no more */
  struct report_bar bar[REPORT_BARS];
  int count;
};

/* The parts of the runs' last sessions in percent (run.json), and those of a step in ms (scaling.csv). */
void report_session_bars(const struct report_run *run, int count, struct report_bars *bars);
enum status report_step_bars(const struct report_run *run, int count, struct report_bars *bars);

/* ---- report_chart.c ---- */

/* An SVG figure of curves; nothing if there are no points. */
void report_chart(FILE *page, const struct report_figure *figure);
/* An SVG figure of bars; nothing if there are none. */
void report_bar_chart(FILE *page, const struct report_bars *bars);
/* Text in HTML. */
void report_put_text(FILE *page, const char *text);

/* ---- report_page.c ---- */

extern const struct output_kind report_page_kind;
extern const char *const report_colours[REPORT_RUNS]; /* of run i's curves on white, "#0067b0" */
enum status report_page(FILE *page, const struct report_run *run, int count);

/* ---- report_plot.c ---- */

/* All figures as one picture by gnuplot: `kind` is "svg" or "png". STATUS_INPUT: no gnuplot, nothing to show.
 */
enum status report_plot(const struct report_run *run, int count, const char *kind, const char *path);

#endif
