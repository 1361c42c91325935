/* The subcommands of `convoy bench`, their options, and what watches over them. */
#include "app/bench.h"

#include "app/option_rows.h"
#include "app/subcommand.h"
#include "app/watchdog.h"

static const char *const places[] = {"packed", "spread", NULL};      /* by enum scaling_place */
static const char *const modes[] = {"both", "strong", "weak", NULL}; /* by enum bench_mode */

#define OPTION_STRUCT struct bench_options
/* clang-format off */
#define ROW_MODEL TEXT("model", model, "resnet18", "NAME", RESULT, "model to time")
#define ROW_BATCH(help_text) INTEGER("batch", batch, 1, 1e6, "512", "N", 0, help_text)
#define ROW_STEPS INTEGER("steps", steps, 1, 1e6, "30", "N", 0, "whole steps in each window")
#define ROWS_OUT(files) \
    TEXT("out", out, NULL, "DIR", OPTION_REQUIRED, "folder for " files), \
    FLAG("overwrite", overwrite, 0, "replace a former result in DIR")
#define ROWS_RANKS \
    TEXT("ranks", ranks, NULL, "N,N,...", RESULT, "numbers of ranks to measure, ascending (default: 1,2,4,... and all)"), \
    CHOICE("place", place, places, "packed", 0, "fewer ranks than all: host by host, or spread evenly over the hosts"), \
    INTEGER("windows", windows, BENCH_WINDOWS_LEAST, BENCH_WINDOWS_MOST, "7", "N", 0, "times that a measurement is repeated")
#define ROWS_WORK \
    INTEGER("size", size, 8, 1024, "32", "N", 0, "pixels of a side"), \
    INTEGER("classes", classes, 2, 1000, "10", "N", 0, "classes"), \
    CHOICE("optimizer", optimizer, optimizer_choices, "sgd", 0, "update to time"), \
    ROW_PRECISION, \
    ROW_BACKEND, \
    FLAG("deterministic", deterministic, 0, "only algorithms whose sums have a fixed order"), \
    INTEGER("threads", threads, 1, 4096, NULL, "N", OPTION_OWN, "CPU threads a rank (default: its share of the cores when all ranks run)"), \
    ROW_PLAN_CACHE, \
    ROW_INIT_TIMEOUT, \
    ROW_COMM_TIMEOUT

static const struct option_row step_rows[] = {
    ROW_MODEL,
    ROW_BATCH("images a step over all ranks"),
    ROW_STEPS,
    INTEGER("repeats", repeats, 1, 1000, "10", "N", 0, "runs of a part in each of its five windows"),
    ROWS_WORK,
};
static const struct option_row scaling_rows[] = {
    ROWS_OUT("scaling.csv, scaling.gp and the plots"),
    ROW_MODEL,
    ROW_BATCH("images a rank at the smallest number of ranks; weak scaling keeps it, strong scaling their sum"),
    CHOICE("mode", mode, modes, "both", 0, "strong scaling, weak scaling or both"),
    ROWS_RANKS,
    ROW_STEPS,
    ROWS_WORK,
};
static const struct option_row predict_rows[] = {
    ROWS_OUT("predict.csv, allreduce.csv, predict.gp and the plots"),
    ROW_MODEL,
    ROW_BATCH("images a rank"),
    ROWS_RANKS,
    ROW_STEPS,
    INTEGER("host-ranks", host_ranks, 1, 4096, NULL, "N", 0, "ranks a host in the prediction (default: as on the first host here)"),
    REAL("intra-latency-us", inside_latency, 0, 1e6, NULL, "X", ABOVE, "latency of a message within a host (default: measured)"),
    REAL("intra-bandwidth-gbs", inside_bandwidth, 0, 1e6, NULL, "X", ABOVE, "a rank's bandwidth within a host (default: measured)"),
    REAL("inter-latency-us", between_latency, 0, 1e6, NULL, "X", ABOVE, "latency of a message between hosts (default: measured; on one host 5 is assumed)"),
    REAL("inter-bandwidth-gbs", between_bandwidth, 0, 1e6, NULL, "X", ABOVE, "a rank's bandwidth between hosts (default: measured; on one host 50 is assumed)"),
    ROWS_WORK,
};
/* clang-format on */

static const struct option_table tables[] = {
    OPTION_TABLE("bench step", "Times a training step and each of its parts on random images.", step_rows),
    OPTION_TABLE("bench scaling", "Times steps on some and on all of the ranks: strong and weak scaling.",
                 scaling_rows),
    OPTION_TABLE("bench predict", "Predicts a step's time on up to 4,096 ranks from measured all-reduces.",
                 predict_rows),
};
enum { SUBCOMMANDS = sizeof tables / sizeof *tables };
static enum status (*const runs[SUBCOMMANDS])(const struct world *, const struct bench_options *) = {
    bench_step, bench_scaling, bench_predict};
static const struct subcommand_set set = {"bench", tables, SUBCOMMANDS};

void bench_help(int argc, char **argv, FILE *stream) {
  int found = subcommand_find(&set, argc, argv);
  if (found >= 0)
    options_help(&tables[found], stream);
  else
    subcommand_list(&set, stream);
}

enum status bench_command(int argc, char **argv, const struct world *world) {
  int found = subcommand_find(&set, argc, argv);
  struct bench_options options = {0};
  struct watchdog *watchdog;
  enum status parsed = found >= 0 ? options_parse(&tables[found], argc - 1, argv + 1, &options)
                                  : subcommand_refuse(&set, argc, argv);
  TRY(options_agree(world, found >= 0 ? &tables[found] : NULL, &options, parsed));
  enum status status = watchdog_start(world, (int)options.init_timeout, (int)options.comm_timeout, &watchdog);
  if (status == STATUS_OK) status = runs[found](world, &options);
  watchdog_stop(watchdog, status);
  return status;
}
