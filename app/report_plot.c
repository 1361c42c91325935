/* The figures as one picture by gnuplot, which gets its script and the points through a file without a name
 * and writes the picture into another; see report_parts.h. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/durable.h"
#include "app/gnuplot.h"
#include "app/report_parts.h"
#include "app/utf8.h"

enum { PANEL_WIDTH = 640, PANEL_HEIGHT = 360 };

/* Text between single quotes, UTF-8 without control characters. */
static void put_quoted(FILE *script, const char *text) {
  fputc('\'', script);
  for (int length; *text; text += length) {
    bool good = (length = utf8_length(text)) > 0 && (unsigned char)*text >= ' ' && *text != 127;
    if (length == 0) length = 1;
    if (*text == '\'') fputc('\'', script);
    fprintf(script, "%.*s", length, good ? text : "?");
  }
  fputc('\'', script);
}

static void put_points(FILE *script, const struct report_figure *figure, int index) {
  for (int s = 0; s < figure->count; s++) {
    fprintf(script, "$f%ds%d << END\n", index, s);
    for (int64_t i = 0; i < figure->series[s].count; i++)
      fprintf(script, "%.9g %.9g\n", figure->series[s].x[i], figure->series[s].y[i]);
    fputs("END\n", script);
  }
}

/* gnuplot would warn of curves that are all at one height. */
static void put_range(FILE *script, const struct report_figure *figure) {
  double low = INFINITY, high = -INFINITY;
  for (int s = 0; s < figure->count; s++)
    for (int64_t i = 0; i < figure->series[s].count; i++) {
      low = fmin(low, figure->series[s].y[i]);
      high = fmax(high, figure->series[s].y[i]);
    }
  double around = high == 0 ? 1 : 0.1 * fabs(high);
  if (high - low < 1e-9 * around)
    fprintf(script, "set yrange [%.9g:%.9g]\n", low - around, high + around);
  else
    fputs("set yrange [*:*]\n", script);
}

static void put_panel(FILE *script, const struct report_run *run, const struct report_figure *figure,
                      int index) {
  fputs("set title ", script);
  put_quoted(script, figure->title);
  fprintf(script, "\nset xlabel '%s'\n", figure->x_title);
  put_range(script, figure);
  fputs("plot ", script);
  for (int s = 0; s < figure->count; s++) {
    const struct report_series *series = &figure->series[s];
    fprintf(script, "%s$f%ds%d using 1:2 with %s linewidth 1.5 linecolor '%s' dashtype %d title ",
            s ? ", " : "", index, s, series->count <= 40 ? "linespoints pointtype 7 pointsize 0.4" : "lines",
            report_colours[series->run], series->dashed ? 2 : 1);
    put_quoted(script, run[series->run].folder);
  }
  fputc('\n', script);
}

static void put_script(FILE *script, const struct report_run *run, const struct report_figure *figure,
                       int figures, const char *kind) {
  int columns = figures > 1 ? 2 : 1, lines = (figures + columns - 1) / columns;
  int width = columns * PANEL_WIDTH, height = lines * PANEL_HEIGHT;
  fputs("set encoding utf8\n", script);
  if (strcmp(kind, "svg") == 0)
    fprintf(script, "set terminal svg size %d,%d noenhanced font 'sans,12' background 'white'\n", width,
            height);
  else
    fprintf(script,
            "if (strstrt(GPVAL_TERMINALS, 'pngcairo')) { set terminal pngcairo size %d,%d noenhanced font "
            "'sans,10' } "
            "else { set terminal png size %d,%d noenhanced }\n",
            width, height, width, height);
  for (int i = 0; i < figures; i++) put_points(script, &figure[i], i);
  fprintf(script,
          "set multiplot layout %d,%d\nset grid linecolor '#dddddd'\nset key noautotitle under samplen 2\n",
          lines, columns);
  for (int i = 0; i < figures; i++) put_panel(script, run, &figure[i], i);
  fputs("unset multiplot\n", script);
}

/* Copies a file without a name to `path`, whole or not at all. */
static enum status keep(int picture, const char *path) {
  struct stat info;
  if (fstat(picture, &info) != 0 || info.st_size == 0)
    return RAISE(STATUS_INTERNAL, "gnuplot made no picture");
  size_t bytes = (size_t)info.st_size;
  void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, picture, 0);
  if (data == MAP_FAILED) return RAISE(STATUS_INTERNAL, "the picture cannot be read: %s", strerror(errno));
  enum status status = durable_write(path, &(struct durable_part){data, bytes}, 1);
  munmap(data, bytes);
  return status;
}

static enum status draw(const struct report_run *run, const struct report_figure *figure, int figures,
                        const char *kind, const char *path) {
  enum status status = STATUS_OK;
  FILE *script = NULL;
  int picture = memfd_create("picture", MFD_CLOEXEC), text = memfd_create("script", MFD_CLOEXEC);
  if (picture < 0 || text < 0 || !(script = fdopen(text, "w+")))
    TRY_OUT(RAISE(STATUS_INPUT, "no memory for a picture: %s", strerror(errno)));
  put_script(script, run, figure, figures, kind);
  if (fflush(script) != 0 || lseek(text, 0, SEEK_SET) != 0)
    TRY_OUT(RAISE(STATUS_INPUT, "no memory for a picture: %s", strerror(errno)));
  TRY_OUT(gnuplot_run(&(struct gnuplot_job){.input = text, .output = picture}, GNUPLOT_SECONDS));
  TRY_OUT(keep(picture, path));
out:
  if (script)
    fclose(script);
  else if (text >= 0)
    close(text);
  if (picture >= 0) close(picture);
  return status;
}

enum status report_plot(const struct report_run *run, int count, const char *kind, const char *path) {
  struct report_figure *figure = calloc(REPORT_FIGURES, sizeof *figure);
  int figures = 0;
  enum status status = STATUS_OK;
  if (!figure) TRY_OUT(RAISE(STATUS_INPUT, "no memory for a picture"));
  TRY_OUT(report_figures(run, count, figure, &figures));
  if (figures == 0)
    TRY_OUT(RAISE(STATUS_INPUT, "the runs have no rows in their logs yet: there is nothing to draw"));
  TRY_OUT(draw(run, figure, figures, kind, path));
out:
  report_figures_destroy(figure, figures);
  free(figure);
  return status;
}
