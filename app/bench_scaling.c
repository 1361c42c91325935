/* `convoy bench scaling`: the same steps on growing numbers of ranks, as a table and a plot. */
#include <stdlib.h>
#include <string.h>

#include "app/scaling_files.h"
#include "app/scaling_run.h"
#include "app/train_options.h"
#include "model/base/folder.h"
#include "model/base/log.h"

static double sum_of_parts(const struct scaling_result *result) {
  double sum = 0;
  for (int p = 0; p < NET_PARTS; p++) sum += result->part[p];
  return sum;
}

static const char *const mode_names[] = {"", "strong", "weak"}; /* by enum bench_mode */

struct row {
  int mode; /* enum bench_mode */
  struct scaling_result result;
  double efficiency;
};

struct scaling {
  const struct world *world;
  const struct bench_options *options;
  int count[SCALING_COUNTS], counts;
  struct row row[2 * SCALING_COUNTS];
  int rows;
  size_t made; /* of the folder: see scaling_folder_open */
};

/* ---- files ---- */

static void print_csv(const struct scaling *s, FILE *out) {
  const struct bench_options *o = s->options;
  fputs(
      "mode,ranks,hosts,batch,windows,step_ms,step_ms_least,step_ms_lower,step_ms_upper,step_ms_most,data_ms,"
      "forward_ms,backward_ms,exposed_ms,update_ms,parts_ms,images_per_s,efficiency,model,precision\n",
      out);
  for (int i = 0; i < s->rows; i++) {
    const struct scaling_result *r = &s->row[i].result;
    fprintf(out, "%s,%d,%d,%lld,%d,%.9g,%.9g,%.9g,%.9g,%.9g", mode_names[s->row[i].mode], r->ranks, r->hosts,
            (long long)r->batch, r->windows, r->step * 1e3, r->least * 1e3, r->lower * 1e3, r->upper * 1e3,
            r->most * 1e3);
    for (int p = 0; p < NET_PARTS; p++) fprintf(out, ",%.9g", r->part[p] * 1e3);
    fprintf(out, ",%.9g,%.9g,%.9g,%s,%s\n", sum_of_parts(r) * 1e3, r->images_per_s, s->row[i].efficiency,
            o->model, precision_choices[o->precision]);
  }
}

static void print_script(const struct scaling *s, FILE *out) {
  const struct bench_options *o = s->options;
  const struct scaling_result *base = &s->row[0].result;
  static const char *const colors[] = {"", "#1f77b4", "#d62728"};
  scaling_script_begin(out, "scaling", 1350, 430);
  fprintf(out,
          "set multiplot layout 1,3 title '%s, %s, %lld images a rank at %d rank%s' noenhanced\n"
          "only(mode, value) = strcol(1) eq mode ? value : NaN\n"
          "set grid\nset xlabel 'ranks'\nset key left top\n"
          "set logscale xy 2\nset ylabel 'images/s'\nset format y '%%.0f'\n"
          "plot [%g:%g] %.9g * x title 'ideal' with lines dashtype 2 linecolor 'gray'",
          o->model, precision_choices[o->precision], (long long)o->batch, base->ranks,
          base->ranks == 1 ? "" : "s", s->count[0] * 0.9, s->count[s->counts - 1] * 1.1,
          base->images_per_s / base->ranks);
  for (int mode = BENCH_STRONG; mode <= BENCH_WEAK; mode++)
    if (o->mode == BENCH_BOTH || o->mode == mode)
      fprintf(out,
              ", \\\n  'scaling.csv' every ::1 using 2:(only('%s', $17)):($4/$10*1000):($4/$7*1000) title "
              "'%s' with "
              "yerrorlines linecolor '%s' pointtype 7",
              mode_names[mode], mode_names[mode], colors[mode]);
  fputs("\nunset logscale y\nset format y '%g'\nset key left bottom\nset ylabel 'efficiency'\n", out);
  fprintf(out, "plot [%g:%g] [0:1.1] 1 title 'ideal' with lines dashtype 2 linecolor 'gray'",
          s->count[0] * 0.9, s->count[s->counts - 1] * 1.1);
  for (int mode = BENCH_STRONG; mode <= BENCH_WEAK; mode++)
    if (o->mode == BENCH_BOTH || o->mode == mode)
      fprintf(out,
              ", \\\n  'scaling.csv' every ::1 using 2:(only('%s', $18)) title '%s' with linespoints "
              "linecolor '%s' "
              "pointtype 7",
              mode_names[mode], mode_names[mode], colors[mode]);
  fputs(
      "\nunset logscale x\nset key left top\nset ylabel 'ms a step'\nset xlabel ''\nset style data "
      "histograms\n"
      "set style histogram rowstacked\nset style fill solid 0.8\nset boxwidth 0.7\nset xtics rotate by -45\n"
      "set yrange [0:*]\nset key above maxrows 2 samplen 1.5\n"
      "label(n) = strcol(1).' '.strcol(2)\n"
      "plot 'scaling.csv' every ::1 using 11:xtic(label(0)) title 'data', '' every ::1 using 12 title "
      "'forward', \\\n"
      "  '' every ::1 using 13 title 'backward', '' every ::1 using 14 title 'exposed', '' every ::1 using "
      "15 title "
      "'update'\n",
      out);
  fputs("set style data points\nset key default\nset xtics norotate\nset yrange [*:*]\n", out);
  scaling_script_end(out);
}

static enum status write_files(const struct scaling *s) {
  const char *out = s->options->out;
  struct scaling_text text;
  TRY(scaling_text_open(&text));
  print_csv(s, text.stream);
  TRY(scaling_text_close(&text, out, "scaling.csv"));
  TRY(scaling_text_open(&text));
  print_script(s, text.stream);
  TRY(scaling_text_close(&text, out, "scaling.gp"));
  log_info("rank 0: %s; table: %s/scaling.csv", s->row[0].result.device, out);
  scaling_plot(out, "scaling");
  return STATUS_OK;
}

/* ---- measurements ---- */

static void print_row(const struct row *row) {
  const struct scaling_result *r = &row->result;
  char parts[160] = "";
  size_t used = 0;
  for (int p = 0; p < NET_PARTS && used < sizeof parts; p++)
    used += (size_t)snprintf(parts + used, sizeof parts - used, " %9.4f", r->part[p] * 1e3);
  char windows[48];
  snprintf(windows, sizeof windows, "(%.4f to %.4f)", r->least * 1e3, r->most * 1e3);
  log_info("%-7s %5d %5d %8lld %10.4f %-20s%s %9.4f %12.0f %9.1f%%", mode_names[row->mode], r->ranks,
           r->hosts, (long long)r->batch, r->step * 1e3, windows, parts, sum_of_parts(r) * 1e3,
           r->images_per_s, 100 * row->efficiency);
}

/* One number of ranks. At the smallest one, strong and weak scaling are the same and measured once. */
static enum status add_row(struct scaling *s, const struct scaling_ranks *ranks, int mode, int index) {
  const struct bench_options *o = s->options;
  struct row *row = &s->row[s->rows++];
  int count = s->count[index];
  row->mode = mode;
  if (index == 0 && s->rows > 1)
    row->result = s->row[0].result;
  else
    TRY(scaling_measure(ranks, o, count, o->batch * (mode == BENCH_WEAK ? count : s->count[0]), &row->result,
                        NULL));
  if (s->world->rank != 0) return STATUS_OK;
  const struct scaling_result *base = &s->row[0].result;
  row->efficiency = row->result.images_per_s / base->images_per_s * base->ranks / row->result.ranks;
  print_row(row);
  return STATUS_OK;
}

/* What can be refused before anything is measured; the folder last. */
static enum status prepare(struct scaling *s) {
  const struct bench_options *o = s->options;
  TRY(scaling_counts(o->ranks, s->world->size, s->count, &s->counts));
  if (o->mode != BENCH_WEAK && o->batch * s->count[0] < s->count[s->counts - 1])
    return RAISE(STATUS_INPUT,
                 "strong scaling of %lld images over %d ranks: give a larger --batch, or --mode weak",
                 (long long)o->batch * s->count[0], s->count[s->counts - 1]);
  return s->world->rank == 0 ? scaling_folder_open(o->out, "scaling", o->overwrite, &s->made) : STATUS_OK;
}

static enum status execute(struct scaling *s) {
  const struct bench_options *o = s->options;
  struct scaling_ranks ranks;
  TRY(world_agree(s->world, prepare(s)));
  TRY(scaling_ranks_open(s->world, o, &ranks));
  log_info("%s, %s; %lld images a rank at %d rank%s; %lld windows of %lld steps; %s; %d CPU thread%s a rank",
           o->model, precision_choices[o->precision], (long long)o->batch, s->count[0],
           s->count[0] == 1 ? "" : "s", (long long)o->windows, (long long)o->steps,
           o->place == SCALING_PACKED ? "host by host" : "spread over the hosts", ranks.threads,
           ranks.threads == 1 ? "" : "s");
  log_info("%-7s %5s %5s %8s %10s %-20s %9s %9s %9s %9s %9s %9s %12s %10s", "mode", "ranks", "hosts", "batch",
           "ms a step", "(windows)", "data", "forward", "backward", "exposed", "update", "together",
           "images/s", "efficiency");
  for (int mode = BENCH_STRONG; mode <= BENCH_WEAK; mode++)
    for (int i = 0; (o->mode == BENCH_BOTH || o->mode == mode) && i < s->counts; i++)
      TRY(add_row(s, &ranks, mode, i));
  return world_agree(s->world, s->world->rank == 0 ? write_files(s) : STATUS_OK);
}

enum status bench_scaling(const struct world *world, const struct bench_options *o) {
  struct scaling *s = calloc(1, sizeof *s);
  enum status status = world_agree(world, s ? STATUS_OK : RAISE(STATUS_INPUT, "out of memory"));
  if (!s || status != STATUS_OK) {
    free(s);
    return status;
  }
  s->world = world;
  s->options = o;
  status = execute(s);
  if (status != STATUS_OK) folder_remove(o->out, s->made);
  free(s);
  return status;
}
