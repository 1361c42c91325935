/* Tables and plot of a prediction; see bench_predict_files.h. */
#include "app/bench_predict_files.h"

#include "app/scaling_files.h"
#include "app/train_options.h"

double scaling_sweep_fit(const struct scaling_sweep *sweep, int index) {
  struct scaling_network alone = {.inside = sweep->link, .host_ranks = sweep->ranks};
  return scaling_allreduce(&alone, SCALING_RING, sweep->ranks, sweep->point[index].bytes);
}

void predict_print_csv(const struct predict *p, FILE *out) {
  fputs("algorithm,ranks,hosts,step_ms,allreduce_ms,exposed_ms,images_per_s,efficiency,measured_step_ms,"
        "measured_efficiency,error,model,precision\n",
        out);
  for (int i = 0; i < p->rows; i++) {
    const struct predict_row *row = &p->row[i];
    const struct scaling_prediction *q = &row->prediction;
    int a_host = p->network.host_ranks;
    fprintf(out, "%s,%d,%d,%.9g,%.9g,%.9g,%.9g,%.9g", scaling_algorithm_name(row->algorithm), row->ranks,
            (row->ranks + a_host - 1) / a_host, q->seconds * 1e3, q->allreduce * 1e3, q->exposed * 1e3,
            (double)p->options->batch * row->ranks / q->seconds, q->efficiency);
    if (row->measured)
      fprintf(out, ",%.9g,%.9g,%.9g", row->measured->step * 1e3, p->alone.step / row->measured->step,
              q->seconds / row->measured->step - 1);
    else
      fputs(",,,", out);
    fprintf(out, ",%s,%s\n", p->options->model, precision_choices[p->options->precision]);
  }
}

static void print_sums(const struct scaling_sweep *sweep, FILE *out) {
  for (int i = 0; i < sweep->points; i++) {
    const struct scaling_point *point = &sweep->point[i];
    fprintf(out, "%s,%d,%.0f,%.9g,%.9g,%.9g\n", sweep->name, sweep->ranks, point->bytes, point->seconds * 1e3,
            scaling_sweep_fit(sweep, i) * 1e3,
            2.0 * (sweep->ranks - 1) / sweep->ranks * point->bytes / point->seconds * 1e-9);
  }
}

void predict_print_sums(const struct predict *p, FILE *out) {
  fputs("network,ranks,bytes,ms,fit_ms,bus_gb_per_s\n", out);
  print_sums(&p->inside, out);
  print_sums(&p->between, out);
}

static const char *origin_name(enum scaling_origin origin) {
  static const char *const names[] = {"measured", "given", "assumed"};
  return names[origin];
}

/* The plot's second title line: where the network is from, and how far the ring's prediction is off where it
 * can be compared. */
static void print_title(const struct predict *p, FILE *out) {
  fprintf(out, "%s, %s, %lld images a rank, %d rank%s a host; network within hosts %s, between hosts %s",
          p->options->model, precision_choices[p->options->precision], (long long)p->options->batch,
          p->network.host_ranks, p->network.host_ranks == 1 ? "" : "s",
          p->network.host_ranks > 1 ? origin_name(p->inside.origin) : "not used",
          origin_name(p->between.origin));
  int said = 0;
  for (int i = 0; i < p->rows; i++) {
    const struct predict_row *row = &p->row[i];
    if (!row->measured || row->ranks == 1 || row->algorithm != SCALING_RING) continue;
    fprintf(out, "%s%+.1f %% at %d ranks", said++ ? ", " : "\\nring, error of the predicted step: ",
            100 * (row->prediction.seconds / row->measured->step - 1), row->ranks);
  }
}

void predict_print_script(const struct predict *p, FILE *out) {
  static const char *const colors[SCALING_ALGORITHMS] = {"#1f77b4", "#d62728", "#2ca02c"};
  bool sums = p->inside.points + p->between.points > 0;
  scaling_script_begin(out, "predict", 1250, 520);
  fprintf(out, "set multiplot layout 1,%d title \"", sums ? 2 : 1);
  print_title(p, out);
  fputs("\" noenhanced\nonly(name, value) = strcol(1) eq name ? value : NaN\nset grid\n"
        "set logscale x 2\nset xlabel 'ranks'\nset ylabel 'efficiency'\nset key left bottom\n"
        "plot [0.9:4500] [0:1.1]",
        out);
  for (int a = 0; a < SCALING_ALGORITHMS; a++)
    fprintf(out,
            " 'predict.csv' every ::1 using 2:(only('%s', $8)) title '%s' with lines linewidth 2 linecolor "
            "'%s', \\\n",
            scaling_algorithm_name((enum scaling_algorithm)a),
            scaling_algorithm_name((enum scaling_algorithm)a), colors[a]);
  fputs(" '' every ::1 using 2:(only('ring', $10)) title 'measured' with points pointtype 7 pointsize 1.2 "
        "linecolor "
        "'black'\n",
        out);
  if (sums) {
    fputs("set logscale xy 10\nset xlabel 'bytes'\nset ylabel 'ms an all-reduce'\nset key left top\n"
          "set format x '%.0s%cB'\nplot [*:*] [*:*]",
          out);
    const struct scaling_sweep *all[] = {&p->inside, &p->between};
    for (int i = 0, said = 0; i < 2; i++)
      if (all[i]->points > 0)
        fprintf(out,
                "%s 'allreduce.csv' every ::1 using 3:(only('%s', $4)) title '%s hosts, %d ranks' with "
                "points pointtype "
                "7 linecolor '%s', \\\n '' every ::1 using 3:(only('%s', $5)) title 'fit' with lines "
                "linecolor '%s'",
                said++ ? ", \\\n" : "", all[i]->name, all[i]->name, all[i]->ranks, colors[i], all[i]->name,
                colors[i]);
    fputs("\nset format x '%g'\nunset logscale\n", out);
  }
  scaling_script_end(out);
}
