/* What `convoy bench predict` finds, and its tables and plot. */
#ifndef CONVOY_APP_BENCH_PREDICT_FILES_H
#define CONVOY_APP_BENCH_PREDICT_FILES_H

#include <stdio.h>

#include "app/scaling_run.h"

enum { PREDICT_MOST_RANKS = 4096, PREDICT_ROWS = (13 + SCALING_COUNTS) * SCALING_ALGORITHMS };

enum scaling_origin { SCALING_MEASURED, SCALING_GIVEN, SCALING_ASSUMED };

/* A link, and the all-reduces that it is fitted to. */
struct scaling_sweep {
  const char *name; /* "within" or "between" */
  enum scaling_origin origin;
  int ranks, points;
  struct scaling_point point[SCALING_SIZES];
  struct scaling_link link;
  double median_error; /* of the fit, relative */
};

/* Seconds of the i-th all-reduce by the fit. */
double scaling_sweep_fit(const struct scaling_sweep *sweep, int index);

struct predict_row {
  enum scaling_algorithm algorithm;
  int ranks;
  struct scaling_prediction prediction;
  const struct scaling_result *measured; /* NULL: not measured */
};

struct predict {
  const struct world *world;           /* borrowed */
  const struct bench_options *options; /* borrowed */
  int count[SCALING_COUNTS], counts;
  bool overlap;
  struct scaling_sweep inside, between;
  struct scaling_network network;
  struct scaling_result alone, measured[SCALING_COUNTS + 1];
  int measured_count;
  double parts_sum; /* seconds of all parts of `alone` */
  struct scaling_buckets buckets;
  struct predict_row row[PREDICT_ROWS];
  int rows;
  size_t made; /* of the folder: see scaling_folder_open */
};

void predict_print_csv(const struct predict *predict, FILE *out);  /* predict.csv */
void predict_print_sums(const struct predict *predict, FILE *out); /* allreduce.csv */
void predict_print_script(const struct predict *predict, FILE *out);

#endif
