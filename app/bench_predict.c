/* `convoy bench predict`: what steps take on up to 4,096 ranks, from the model's step on one rank and from
 * all-reduces measured within a host and between hosts; beside steps that are measured here. */
#include <math.h>
#include <stdlib.h>

#include "app/bench_predict_files.h"
#include "app/scaling_files.h"
#include "app/train_options.h"
#include "model/base/folder.h"
#include "model/base/log.h"
#include "model/base/sort.h"

/* A 400 Gbit/s adapter a rank, as GPU clusters have them. */
static const double assumed_latency = 5e-6, assumed_bandwidth = 50e9;

/* ---- what communication costs ---- */

static void say_link(const struct scaling_sweep *sweep) {
  const struct scaling_line *small = &sweep->link.small, *large = &sweep->link.large;
  char range[64] = "", second[128] = "";
  if (sweep->origin == SCALING_MEASURED)
    snprintf(range, sizeof range, "%d sums of %d ranks, off by %.1f %% in the median", sweep->points,
             sweep->ranks, 100 * sweep->median_error);
  if (small->latency != large->latency || small->per_byte != large->per_byte)
    snprintf(second, sizeof second, "; messages from %.0f KiB: %.2f us, %.2f GB/s", sweep->link.turn / 1024,
             large->latency * 1e6, 1e-9 / large->per_byte);
  log_info("%s hosts: %.2f us, %.2f GB/s%s (%s%s)", sweep->name, small->latency * 1e6, 1e-9 / small->per_byte,
           second,
           sweep->origin == SCALING_GIVEN ? "given"
           : sweep->origin == SCALING_ASSUMED
               ? "assumed: --inter-latency-us and --inter-bandwidth-gbs give others"
               : "fitted to ",
           range);
}

static double median_error(const struct scaling_sweep *sweep) {
  double error[SCALING_SIZES] = {0};
  for (int i = 0; i < sweep->points; i++)
    error[i] = fabs(scaling_sweep_fit(sweep, i) / sweep->point[i].seconds - 1);
  sort_doubles(error, (size_t)sweep->points);
  return error[sweep->points / 2];
}

/* Rank 0: the link that its group's all-reduces show. */
static enum status fit_sweep(struct scaling_sweep *sweep) {
  struct scaling_point message[SCALING_SIZES];
  for (int i = 0; i < sweep->points; i++)
    message[i] = scaling_ring_message(sweep->ranks, sweep->point[i].bytes, sweep->point[i].seconds);
  TRY(scaling_fit(message, sweep->points, &sweep->link));
  sweep->median_error = median_error(sweep);
  return STATUS_OK;
}

/* Measures what is not given, where there are ranks to measure it with. */
static enum status find_link(struct predict *p, const struct scaling_ranks *ranks,
                             struct scaling_sweep *sweep, int group, double latency_us,
                             double bandwidth_gbs) {
  if (latency_us > 0 && bandwidth_gbs > 0) {
    sweep->origin = SCALING_GIVEN;
    sweep->link = scaling_link_of(latency_us * 1e-6, bandwidth_gbs * 1e9);
  } else if (sweep->ranks > 1) {
    sweep->origin = SCALING_MEASURED;
    int size;
    TRY(scaling_allreduces(ranks, p->options, group, sweep->point, &sweep->points, &size));
    TRY(world_agree(p->world, p->world->rank == 0 ? fit_sweep(sweep) : STATUS_OK));
  } else {
    sweep->origin = SCALING_ASSUMED;
    sweep->link = scaling_link_of(assumed_latency, assumed_bandwidth);
  }
  return STATUS_OK;
}

static enum status find_network(struct predict *p, const struct scaling_ranks *ranks) {
  const struct bench_options *o = p->options;
  const struct world *world = p->world;
  TRY(find_link(p, ranks, &p->inside, world->node, o->inside_latency, o->inside_bandwidth));
  if (p->network.host_ranks > 1) say_link(&p->inside);
  TRY(find_link(p, ranks, &p->between, world->local_rank, o->between_latency, o->between_bandwidth));
  say_link(&p->between);
  p->network.inside = p->inside.link;
  p->network.between = p->between.link;
  return STATUS_OK;
}

/* ---- steps ---- */

static int hosts_of(const struct predict *p, int ranks) {
  return (ranks + p->network.host_ranks - 1) / p->network.host_ranks;
}

/* Rank 0: a row for each algorithm and number of ranks. */
static void predict_all(struct predict *p) {
  struct scaling_step step = {.seconds = p->alone.step,
                              .backward = p->alone.part[NET_BACKWARD] * p->alone.step / p->parts_sum,
                              .buckets = p->buckets.count,
                              .ready = p->buckets.ready,
                              .bytes = p->buckets.bytes,
                              .overlap = p->overlap};
  for (int a = 0; a < SCALING_ALGORITHMS; a++)
    for (int n = 1; n <= PREDICT_MOST_RANKS; n++) {
      const struct scaling_result *measured = NULL;
      for (int i = 0; i < p->measured_count; i++)
        if (p->measured[i].ranks == n && p->measured[i].hosts == hosts_of(p, n)) measured = &p->measured[i];
      if (!measured && (n & (n - 1)) != 0) continue;
      p->row[p->rows++] = (struct predict_row){
          .algorithm = (enum scaling_algorithm)a,
          .ranks = n,
          .prediction = scaling_predict(&p->network, (enum scaling_algorithm)a, n, &step),
          .measured = measured};
    }
}

static double error_of(const struct predict_row *row) {
  return row->measured ? row->prediction.seconds / row->measured->step - 1 : NAN;
}

static void print_rows(const struct predict *p) {
  log_info("%6s  %-34s  %-34s  %-34s  %s", "ranks", "ring: ms a step, efficiency", "tree", "hierarchical",
           "measured");
  int numbers = p->rows / SCALING_ALGORITHMS;
  for (int i = 0; i < numbers; i++) {
    char cell[SCALING_ALGORITHMS][64], measured[96] = "";
    for (int a = 0; a < SCALING_ALGORITHMS; a++) {
      const struct predict_row *row = &p->row[a * numbers + i];
      size_t used = (size_t)snprintf(cell[a], sizeof cell[a], "%10.4f %6.1f %%",
                                     row->prediction.seconds * 1e3, 100 * row->prediction.efficiency);
      if (row->measured && row->ranks > 1 && used < sizeof cell[a])
        snprintf(cell[a] + used, sizeof cell[a] - used, " (error %+.1f %%)", 100 * error_of(row));
    }
    if (p->row[i].measured)
      snprintf(measured, sizeof measured, "%10.4f %6.1f %%", p->row[i].measured->step * 1e3,
               100 * p->alone.step / p->row[i].measured->step);
    log_info("%6d  %-34s  %-34s  %-34s  %s", p->row[i].ranks, cell[0], cell[1], cell[2], measured);
  }
}

static enum status measure_steps(struct predict *p, const struct scaling_ranks *ranks) {
  const struct bench_options *o = p->options;
  TRY(scaling_measure(ranks, o, 1, o->batch, &p->alone, &p->buckets));
  p->measured[p->measured_count++] = p->alone;
  for (int part = 0; part < NET_PARTS; part++) p->parts_sum += p->alone.part[part];
  if (p->world->rank == 0) {
    double bytes = 0;
    for (int i = 0; i < p->buckets.count; i++) bytes += p->buckets.bytes[i];
    log_info("one rank (%s): %.4f ms a step (%.4f to %.4f), %.1f %% of it backward; %.2f MB to sum in %d "
             "bucket%s, %s",
             p->alone.device, p->alone.step * 1e3, p->alone.least * 1e3, p->alone.most * 1e3,
             100 * p->alone.part[NET_BACKWARD] / p->parts_sum, bytes * 1e-6, p->buckets.count,
             p->buckets.count == 1 ? "" : "s",
             p->overlap ? "beside the backward pass" : "which waits for each (as this backend does)");
  }
  for (int i = 0; i < p->counts; i++)
    if (p->count[i] > 1) {
      struct scaling_result *result = &p->measured[p->measured_count++];
      TRY(scaling_measure(ranks, o, p->count[i], o->batch * p->count[i], result, NULL));
      if (p->world->rank == 0 && result->hosts != hosts_of(p, result->ranks))
        log_info("%d ranks on %d hosts: %.4f ms a step, not compared: predicted for %d", result->ranks,
                 result->hosts, result->step * 1e3, hosts_of(p, result->ranks));
    }
  return STATUS_OK;
}

static enum status write_files(const struct predict *p) {
  const char *out = p->options->out;
  struct scaling_text text;
  TRY(scaling_text_open(&text));
  predict_print_csv(p, text.stream);
  TRY(scaling_text_close(&text, out, "predict.csv"));
  TRY(scaling_text_open(&text));
  predict_print_sums(p, text.stream);
  TRY(scaling_text_close(&text, out, "allreduce.csv"));
  TRY(scaling_text_open(&text));
  predict_print_script(p, text.stream);
  TRY(scaling_text_close(&text, out, "predict.gp"));
  log_info("tables: %s/predict.csv, %s/allreduce.csv", out, out);
  scaling_plot(out, "predict");
  return STATUS_OK;
}

/* ---- the command ---- */

static bool given(double latency, double bandwidth) {
  return latency > 0 && bandwidth > 0;
}

/* What can be refused before anything is measured; the folder last. */
static enum status prepare(struct predict *p) {
  const struct bench_options *o = p->options;
  const struct backend_table *table;
  TRY(scaling_counts(o->ranks, p->world->size, p->count, &p->counts));
  if ((o->inside_latency > 0) != (o->inside_bandwidth > 0))
    return RAISE(STATUS_INPUT, "--intra-latency-us and --intra-bandwidth-gbs go together; one is missing");
  if ((o->between_latency > 0) != (o->between_bandwidth > 0))
    return RAISE(STATUS_INPUT, "--inter-latency-us and --inter-bandwidth-gbs go together; one is missing");
  if (p->inside.ranks < 2 && p->network.host_ranks > 1 && !given(o->inside_latency, o->inside_bandwidth))
    return RAISE(STATUS_INPUT,
                 "one rank on the first host cannot measure sums within a host: start two there, or give "
                 "--intra-latency-us and --intra-bandwidth-gbs");
  if (p->world->size < 2 && !given(o->inside_latency, o->inside_bandwidth) &&
      !given(o->between_latency, o->between_bandwidth))
    return RAISE(STATUS_INPUT,
                 "one rank has nobody to sum with: start two or more, or give --inter-latency-us and "
                 "--inter-bandwidth-gbs");
  TRY(backend_find(backend_choices[o->backend], &table));
  p->overlap = table->device;
  return p->world->rank == 0 ? scaling_folder_open(o->out, "predict", o->overwrite, &p->made) : STATUS_OK;
}

/* On the first host, which rank 0 is on. */
static enum status count_host_ranks(struct predict *p) {
  int64_t here = p->world->local_size, hosts = p->world->nodes;
  TRY(world_broadcast(p->world, &here, sizeof here, 0));
  p->inside = (struct scaling_sweep){.name = "within", .ranks = (int)here};
  p->between = (struct scaling_sweep){.name = "between", .ranks = (int)hosts};
  p->network.host_ranks = (int)(p->options->host_ranks ? p->options->host_ranks : here);
  return STATUS_OK;
}

static enum status execute(struct predict *p) {
  const struct bench_options *o = p->options;
  const struct world *world = p->world;
  struct scaling_ranks ranks;
  TRY(count_host_ranks(p));
  TRY(world_agree(world, prepare(p)));
  TRY(scaling_ranks_open(world, o, &ranks));
  log_info("%s, %s, %lld images a rank; %d rank%s a host", o->model, precision_choices[o->precision],
           (long long)o->batch, p->network.host_ranks, p->network.host_ranks == 1 ? "" : "s");
  TRY(find_network(p, &ranks));
  TRY(measure_steps(p, &ranks));
  if (world->rank == 0) {
    predict_all(p);
    print_rows(p);
  }
  return world_agree(world, world->rank == 0 ? write_files(p) : STATUS_OK);
}

enum status bench_predict(const struct world *world, const struct bench_options *options) {
  struct predict *p = calloc(1, sizeof *p);
  enum status status = world_agree(world, p ? STATUS_OK : RAISE(STATUS_INPUT, "out of memory"));
  if (!p || status != STATUS_OK) {
    free(p);
    return status;
  }
  p->world = world;
  p->options = options;
  status = execute(p);
  if (status != STATUS_OK) folder_remove(options->out, p->made);
  free(p->buckets.ready);
  free(p->buckets.bytes);
  free(p);
  return status;
}
