/* `convoy report`: a page about runs, in one HTML file that needs no network. */
#ifndef CONVOY_APP_REPORT_H
#define CONVOY_APP_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "app/options.h"
#include "model/base/world.h"

enum status report_command(int argc, char **argv, const struct world *world);
extern const struct option_table report_table;

enum { REPORT_RUNS = 8, REPORT_POINTS = 800 }; /* at most: runs a page, points a curve */

/* A curve's points, x rising. */
struct report_series {
  int64_t count;
  double *x, *y; /* owned, one allocation that begins at x */
};

/* report_csv.c: two columns of a log by their names. Rows in which either is empty are left out; more than
 * REPORT_POINTS rows become as many means of neighbours. No such file: no points. A file without these
 * columns, or with what is no number: STATUS_INPUT with file and line. */
enum status report_read(const char *path, const char *x, const char *y, struct report_series *series);
void report_series_destroy(struct report_series *series); /* also a zeroed one */

/* report_chart.c: an SVG figure of the runs' curves; those without points are left out. Returns how many it
 * drew and writes nothing if that is 0. */
int report_chart(FILE *page, const char *title, const char *x_title, const struct report_series *series,
                 int count);

#endif
