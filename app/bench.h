/* `convoy bench`: where a training step's time goes, how it scales over the ranks, and what more ranks would
 * do. */
#ifndef CONVOY_APP_BENCH_H
#define CONVOY_APP_BENCH_H

#include <stdio.h>

#include "app/options.h"
#include "model/base/world.h"

/* argv[0] is "bench", argv[1] the subcommand. Collective: all ranks return the same status, or one that they
 * did not agree on (world_agreed), which ends them all. */
enum status bench_command(int argc, char **argv, const struct world *world);
/* A subcommand's options, or the list of subcommands. */
void bench_help(int argc, char **argv, FILE *stream);

/* ---- for the files that make up `convoy bench` ---- */

/* Of all subcommands; each fills its own. */
struct bench_options {
  char model[OPTION_TEXT], out[OPTION_TEXT], ranks[OPTION_TEXT], plan_cache[OPTION_TEXT];
  int64_t batch, size, classes, steps, repeats, windows, threads, host_ranks, init_timeout, comm_timeout;
  int precision, backend, optimizer, place, mode;
  double inside_latency, inside_bandwidth, between_latency, between_bandwidth; /* us, GB/s; 0: not given */
  bool deterministic, overwrite;
};

enum bench_mode { BENCH_BOTH, BENCH_STRONG, BENCH_WEAK };
enum { BENCH_WINDOWS_LEAST = 5, BENCH_WINDOWS_MOST = 1000 };

enum status bench_step(const struct world *world, const struct bench_options *options);
enum status bench_scaling(const struct world *world, const struct bench_options *options);
enum status bench_predict(const struct world *world, const struct bench_options *options);

#endif
