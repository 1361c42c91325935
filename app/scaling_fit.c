/* Fits of message costs and the formulas on top of them; see scaling_fit.h. */
#include "app/scaling_fit.h"

#include <math.h>

#include "model/base/sort.h"

enum { MOST_POINTS = 128, LEAST_POINTS = 3, ROUNDS = 50 };

/* ---- the fit ---- */

/* Weighted least squares of (a + b m) / t - 1; what would be negative is zero. */
static struct scaling_line solve(const struct scaling_point *point, int count, const double *weight) {
  double s = 0, x = 0, xx = 0, y = 0, xy = 0; /* sums over 1/t and m/t */
  for (int i = 0; i < count; i++) {
    double u = 1 / point[i].seconds, v = point[i].bytes / point[i].seconds, w = weight[i];
    s += w * u * u;
    x += w * u * v;
    xx += w * v * v;
    y += w * u;
    xy += w * v;
  }
  double determinant = s * xx - x * x;
  struct scaling_line line = {0};
  if (determinant > 1e-14 * s * xx) {
    line.latency = (y * xx - x * xy) / determinant;
    line.per_byte = (s * xy - x * y) / determinant;
  }
  if (determinant <= 1e-14 * s * xx || line.latency < 0)
    line = (struct scaling_line){.latency = 0, .per_byte = xx > 0 ? xy / xx : 0};
  if (line.per_byte < 0) line = (struct scaling_line){.latency = s > 0 ? y / s : 0, .per_byte = 0};
  return line;
}

static double ratio(const struct scaling_line *line, const struct scaling_point *point) {
  return fmax((line->latency + line->per_byte * point->bytes) / point->seconds, 1e-6);
}

/* Twice as long counts as much as half as long. */
static double residual(const struct scaling_line *line, const struct scaling_point *point) {
  return fabs(log(ratio(line, point)));
}

/* What makes the squared linear residual the squared logarithmic one. */
static double stretch(const struct scaling_line *line, const struct scaling_point *point) {
  double q = ratio(line, point), g = fabs(q - 1) < 1e-6 ? 1 : log(q) / (q - 1);
  return g * g;
}

static double median_residual(const struct scaling_line *line, const struct scaling_point *point, int count) {
  double all[MOST_POINTS] = {0};
  for (int i = 0; i < count; i++) all[i] = residual(line, &point[i]);
  sort_doubles(all, (size_t)count);
  return all[count / 2];
}

static struct scaling_line fit_line(const struct scaling_point *point, int count) {
  double weight[MOST_POINTS];
  for (int i = 0; i < count; i++) weight[i] = 1;
  struct scaling_line line = solve(point, count, weight);
  for (int round = 0; round < ROUNDS; round++) { /* towards least absolute values */
    for (int i = 0; i < count; i++)
      weight[i] = stretch(&line, &point[i]) / fmax(residual(&line, &point[i]), 1e-9);
    line = solve(point, count, weight);
  }
  for (int round = 0; round < ROUNDS; round++) {
    double reach = 4.685 * 1.4826 * fmax(median_residual(&line, point, count), 1e-3);
    for (int i = 0; i < count; i++) {
      double r = residual(&line, &point[i]) / reach;
      weight[i] = r < 1 ? (1 - r * r) * (1 - r * r) * stretch(&line, &point[i]) : 0;
    }
    line = solve(point, count, weight);
  }
  return line;
}

/* The sum of the residuals, each counted up to a limit, so that a wrong point does not ask for a line of its
 * own. */
static double cost(const struct scaling_line *line, const struct scaling_point *point, int count) {
  double sum = 0;
  for (int i = 0; i < count; i++) sum += fmin(residual(line, &point[i]), 0.5);
  return sum;
}

enum status scaling_fit(const struct scaling_point *point, int count, struct scaling_link *link) {
  static const double fits_well = 0.01, much_better = 0.5;
  if (count < LEAST_POINTS || count > MOST_POINTS)
    return RAISE(STATUS_INPUT, "a fit of %d messages; expected %d to %d", count, LEAST_POINTS, MOST_POINTS);
  for (int i = 0; i < count; i++)
    if (!(point[i].bytes > 0 && point[i].seconds > 0) || !isfinite(point[i].seconds))
      return RAISE(STATUS_INPUT, "a message of %g bytes took %g s; expected both above zero", point[i].bytes,
                   point[i].seconds);
  struct scaling_line whole = fit_line(point, count);
  double best = cost(&whole, point, count);
  *link = (struct scaling_link){.small = whole, .large = whole, .turn = point[count - 1].bytes};
  if (best < fits_well * count) return STATUS_OK;
  best *= much_better;
  for (int split = LEAST_POINTS; split <= count - LEAST_POINTS; split++) {
    struct scaling_line small = fit_line(point, split), large = fit_line(point + split, count - split);
    double both = cost(&small, point, split) + cost(&large, point + split, count - split);
    if (both >= best) continue;
    best = both;
    *link = (struct scaling_link){
        .small = small, .large = large, .turn = sqrt(point[split - 1].bytes * point[split].bytes)};
  }
  return STATUS_OK;
}

struct scaling_link scaling_link_of(double latency_seconds, double bytes_per_second) {
  struct scaling_line line = {.latency = latency_seconds, .per_byte = 1 / bytes_per_second};
  return (struct scaling_link){.small = line, .large = line};
}

double scaling_message(const struct scaling_link *link, double bytes) {
  const struct scaling_line *line = bytes < link->turn ? &link->small : &link->large;
  return line->latency + line->per_byte * bytes;
}

/* ---- all-reduce ---- */

const char *scaling_algorithm_name(enum scaling_algorithm algorithm) {
  static const char *const names[SCALING_ALGORITHMS] = {"ring", "tree", "hierarchical"};
  return names[algorithm];
}

static int ceil_lg(int number) {
  int steps = 0;
  while (1 << steps < number) steps++;
  return steps;
}

static double ring(const struct scaling_network *network, int ranks, int inside, int hosts, double bytes) {
  double message = bytes / ranks, step = 0;
  if (inside > 1) step = scaling_message(&network->inside, message);
  if (hosts > 1) step = fmax(step, scaling_message(&network->between, message / inside));
  return 2.0 * (ranks - 1) * step;
}

static double tree(const struct scaling_network *network, int inside, int hosts, double bytes) {
  double latency = 0, stream = 0;
  if (inside > 1) {
    double alpha = scaling_message(&network->inside, 0);
    latency = ceil_lg(inside) * alpha;
    stream = scaling_message(&network->inside, bytes) - alpha;
  }
  if (hosts > 1) {
    double alpha = scaling_message(&network->between, 0);
    latency += ceil_lg(hosts) * alpha;
    stream = fmax(stream, scaling_message(&network->between, bytes / inside) - alpha);
  }
  return 2 * (latency + stream);
}

static double hierarchical(const struct scaling_network *network, int inside, int hosts, double bytes) {
  double seconds = 0, part = bytes / inside;
  if (inside > 1) seconds = 2.0 * (inside - 1) * scaling_message(&network->inside, part);
  if (hosts > 1) seconds += 2.0 * (hosts - 1) * scaling_message(&network->between, part / hosts);
  return seconds;
}

double scaling_allreduce(const struct scaling_network *network, enum scaling_algorithm algorithm, int ranks,
                         double bytes) {
  int inside = ranks < network->host_ranks ? ranks : network->host_ranks;
  int hosts = (ranks + inside - 1) / inside;
  if (ranks <= 1) return 0;
  switch (algorithm) {
  case SCALING_RING:
    return ring(network, ranks, inside, hosts, bytes);
  case SCALING_TREE:
    return tree(network, inside, hosts, bytes);
  default:
    return hierarchical(network, inside, hosts, bytes);
  }
}

struct scaling_point scaling_ring_message(int ranks, double bytes, double seconds) {
  return (struct scaling_point){.bytes = bytes / ranks, .seconds = seconds / (2.0 * (ranks - 1))};
}

/* ---- a step ---- */

struct scaling_prediction scaling_predict(const struct scaling_network *network,
                                          enum scaling_algorithm algorithm, int ranks,
                                          const struct scaling_step *step) {
  struct scaling_prediction p = {0};
  double end = 0; /* of the bucket before */
  for (int i = 0; i < step->buckets; i++) {
    double seconds = scaling_allreduce(network, algorithm, ranks, step->bytes[i]);
    end = fmax(end, step->ready[i]) + seconds;
    p.allreduce += seconds;
  }
  p.exposed = step->overlap ? fmax(0, end - step->backward) : p.allreduce;
  p.seconds = step->seconds + p.exposed;
  p.efficiency = step->seconds / p.seconds;
  return p;
}
