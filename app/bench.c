/* The subcommands of `convoy bench`, their options, and what watches over them. */
#include "app/bench.h"

#include <string.h>

#include "app/train_options.h"
#include "app/watchdog.h"
#include "model/base/nearest.h"

static const char *const optimizers[] = {"sgd", "adam", "adamw", NULL}; /* by enum optimizer_kind */
static const char *const places[] = {"packed", "spread", NULL};         /* by enum scaling_place */
static const char *const modes[] = {"both", "strong", "weak", NULL};    /* by enum bench_mode */

#define FIELD(member) .offset = offsetof(struct bench_options, member)
/* clang-format off */
#define BATCH(initial_text, help_text) \
    {.name = "batch", .type = OPTION_INTEGER, FIELD(batch), .least = 1, .most = 1e6, .initial = initial_text, .value = "N", .help = help_text}
#define WORK_ROWS \
    {.name = "size", .type = OPTION_INTEGER, FIELD(size), .least = 8, .most = 1024, .initial = "32", .value = "N", .help = "pixels of a side"}, \
    {.name = "classes", .type = OPTION_INTEGER, FIELD(classes), .least = 2, .most = 1000, .initial = "10", .value = "N", .help = "classes"}, \
    {.name = "optimizer", .type = OPTION_CHOICE, FIELD(optimizer), .choice = optimizers, .initial = "sgd", .help = "update to time"}, \
    {.name = "precision", .type = OPTION_CHOICE, FIELD(precision), .choice = precision_choices, .initial = "fp32", .help = "of activations and products"}, \
    {.name = "backend", .type = OPTION_CHOICE, FIELD(backend), .choice = backend_choices, .initial = "auto", .help = "auto: cuda where a GPU is visible"}, \
    {.name = "deterministic", .type = OPTION_FLAG, FIELD(deterministic), .help = "only algorithms whose sums have a fixed order"}, \
    {.name = "threads", .type = OPTION_INTEGER, FIELD(threads), .least = 1, .most = 4096, .value = "N", .help = "CPU threads a rank (default: its share of the cores when all ranks run)"}
#define MODEL_ROW {.name = "model", .type = OPTION_TEXT_VALUE, FIELD(model), .initial = "resnet18", .value = "NAME", .help = "model to time"}
#define STEPS_ROW {.name = "steps", .type = OPTION_INTEGER, FIELD(steps), .least = 1, .most = 1e6, .initial = "30", .value = "N", .help = "whole steps in each window"}
#define TIMEOUT_ROWS \
    {.name = "init-timeout", .type = OPTION_INTEGER, FIELD(init_timeout), .least = 1, .most = 86400, .initial = "180", .value = "SECONDS", .help = "for the ranks to find each other"}, \
    {.name = "comm-timeout", .type = OPTION_INTEGER, FIELD(comm_timeout), .least = 1, .most = 86400, .initial = "120", .value = "SECONDS", .help = "a rank that is silent for so long ends the job"}
#define OUT_ROWS(file) \
    {.name = "out", .type = OPTION_TEXT_VALUE, FIELD(out), .flags = OPTION_REQUIRED, .value = "DIR", .help = "folder for " file}, \
    {.name = "overwrite", .type = OPTION_FLAG, FIELD(overwrite), .help = "replace a former result in DIR"}
#define RANK_ROWS \
    {.name = "ranks", .type = OPTION_TEXT_VALUE, FIELD(ranks), .value = "N,N,...", .help = "numbers of ranks to measure, ascending (default: 1,2,4,... and all)"}, \
    {.name = "place", .type = OPTION_CHOICE, FIELD(place), .choice = places, .initial = "packed", .help = "fewer ranks than all: host by host, or spread evenly over the hosts"}, \
    {.name = "windows", .type = OPTION_INTEGER, FIELD(windows), .least = BENCH_WINDOWS_LEAST, .most = BENCH_WINDOWS_MOST, .initial = "7", .value = "N", .help = "times that a measurement is repeated"}

static const struct option_row step_rows[] = {
    MODEL_ROW,
    BATCH("512", "images a step over all ranks"),
    WORK_ROWS,
    STEPS_ROW,
    {.name = "repeats", .type = OPTION_INTEGER, FIELD(repeats), .least = 1, .most = 1000, .initial = "10", .value = "N", .help = "runs of a part in each of its five windows"},
    TIMEOUT_ROWS,
};
static const struct option_row scaling_rows[] = {
    OUT_ROWS("scaling.csv, scaling.gp and the plots"),
    MODEL_ROW,
    BATCH("512", "images a rank at the smallest number of ranks; weak scaling keeps it, strong scaling their sum"),
    {.name = "mode", .type = OPTION_CHOICE, FIELD(mode), .choice = modes, .initial = "both", .help = "strong scaling, weak scaling or both"},
    RANK_ROWS,
    WORK_ROWS,
    STEPS_ROW,
    TIMEOUT_ROWS,
};
static const struct option_row predict_rows[] = {
    OUT_ROWS("predict.csv, allreduce.csv, predict.gp and the plots"),
    MODEL_ROW,
    BATCH("512", "images a rank"),
    RANK_ROWS,
    {.name = "host-ranks", .type = OPTION_INTEGER, FIELD(host_ranks), .least = 1, .most = 4096, .value = "N", .help = "ranks a host in the prediction (default: as on the first host here)"},
    {.name = "intra-latency-us", .type = OPTION_REAL, FIELD(inside_latency), .least = 0, .most = 1e6, .flags = OPTION_ABOVE, .value = "X", .help = "latency of a message within a host (default: measured)"},
    {.name = "intra-bandwidth-gbs", .type = OPTION_REAL, FIELD(inside_bandwidth), .least = 0, .most = 1e6, .flags = OPTION_ABOVE, .value = "X", .help = "a rank's bandwidth within a host (default: measured)"},
    {.name = "inter-latency-us", .type = OPTION_REAL, FIELD(between_latency), .least = 0, .most = 1e6, .flags = OPTION_ABOVE, .value = "X", .help = "latency of a message between hosts (default: measured; on one host 5 is assumed)"},
    {.name = "inter-bandwidth-gbs", .type = OPTION_REAL, FIELD(between_bandwidth), .least = 0, .most = 1e6, .flags = OPTION_ABOVE, .value = "X", .help = "a rank's bandwidth between hosts (default: measured; on one host 50 is assumed)"},
    WORK_ROWS,
    STEPS_ROW,
    TIMEOUT_ROWS,
};
/* clang-format on */

#define TABLE(name_text, summary_text, list)                                                                 \
  {                                                                                                          \
    .command = "convoy bench " name_text, .summary = summary_text, .rows = list,                             \
    .count = sizeof list / sizeof *list                                                                      \
  }

static const struct subcommand {
  const char *name;
  struct option_table table;
  enum status (*run)(const struct world *world, const struct bench_options *options);
} subcommands[] = {
    {"step", TABLE("step", "Times a training step and each of its parts on random images.", step_rows),
     bench_step},
    {"scaling",
     TABLE("scaling", "Times steps on some and on all of the ranks: strong and weak scaling.", scaling_rows),
     bench_scaling},
    {"predict",
     TABLE("predict", "Predicts a step's time on up to 4,096 ranks from measured all-reduces.", predict_rows),
     bench_predict},
};
enum { SUBCOMMANDS = sizeof subcommands / sizeof *subcommands };

static const char *subcommand_name(const void *table, int index) {
  return ((const struct subcommand *)table)[index].name;
}

static const struct subcommand *find(int argc, char **argv) {
  for (int i = 0; argc > 1 && i < SUBCOMMANDS; i++)
    if (strcmp(argv[1], subcommands[i].name) == 0) return &subcommands[i];
  return NULL;
}

void bench_help(int argc, char **argv, FILE *stream) {
  const struct subcommand *subcommand = find(argc, argv);
  if (subcommand) {
    options_help(&subcommand->table, stream);
    return;
  }
  fprintf(stream, "usage: convoy bench COMMAND [options]\n\n");
  for (int i = 0; i < SUBCOMMANDS; i++)
    fprintf(stream, "  %-9s%s\n", subcommands[i].name, subcommands[i].table.summary);
  fprintf(stream, "\n'convoy bench COMMAND --help' lists a command's options.\n");
}

static enum status refuse(int argc, char **argv) {
  if (argc < 2) return RAISE(STATUS_INPUT, "convoy bench: no command, expected step, scaling or predict");
  int nearest = nearest_name(argv[1], subcommands, SUBCOMMANDS, subcommand_name);
  return RAISE(STATUS_INPUT, "unknown command 'bench %s'; did you mean 'bench %s'?", argv[1],
               subcommands[nearest].name);
}

enum status bench_command(int argc, char **argv, const struct world *world) {
  const struct subcommand *subcommand = find(argc, argv);
  struct bench_options options = {0};
  struct watchdog *watchdog;
  TRY(world_agree(world, subcommand ? options_parse(&subcommand->table, argc - 1, argv + 1, &options)
                                    : refuse(argc, argv)));
  enum status status = watchdog_start(world, (int)options.init_timeout, (int)options.comm_timeout, &watchdog);
  if (status == STATUS_OK) status = subcommand->run(world, &options);
  watchdog_stop(watchdog, status);
  return status;
}
