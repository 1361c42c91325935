/* The program: finds the command, starts the ranks, runs it, reports its error, ends the ranks with its
 * status. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/bench.h"
#include "app/binding.h"
#include "app/check.h"
#include "app/data_command.h"
#include "app/evaluate.h"
#include "app/export.h"
#include "app/import_weights.h"
#include "app/options.h"
#include "app/predict.h"
#include "app/quota.h"
#include "app/report.h"
#include "app/signals.h"
#include "app/train.h"
#include "app/watchdog.h"
#include "data/child.h"
#include "model/base/cores.h"
#include "model/base/deadline.h"
#include "model/base/log.h"
#include "model/base/nearest.h"

struct command {
  const char *name, *summary;
  const struct option_table *table; /* NULL: it has subcommands, and help lists them or one's options */
  void (*help)(int argc, char **argv, FILE *stream);
  bool watched;   /* it starts a watchdog with time-outs of its own, until then the start's deadline holds */
  bool stoppable; /* it looks for the signals that ask it to stop; others end by them at once */
  /* argv[0] is the command's name. Collective: all ranks return the same status, see world_agreed. */
  enum status (*run)(int argc, char **argv, const struct world *world);
};

static const struct command commands[] = {
    {"train", "train a model; the main job", &train_table, NULL, true, true, train_command},
    {"eval", "accuracy and loss of a checkpoint on the test shards", &eval_table, NULL, true, true,
     eval_command},
    {"data", "make, check and describe shards", NULL, data_help, false, false, data_command},
    {"predict", "tell the classes of image files", &predict_table, NULL, false, false, predict_command},
    {"report", "make a page of runs' curves and options", &report_table, NULL, false, false, report_command},
    {"import-weights", "make a checkpoint of a safetensors file", &import_weights_table, NULL, false, false,
     import_weights_command},
    {"export", "write a checkpoint's model as ONNX or safetensors", &export_table, NULL, false, false,
     export_command},
    {"check", "is this machine, job and data ready to train?", &check_table, NULL, false, false,
     check_command},
    {"bench", "time a training step and its parts, its scaling, and predict it", NULL, bench_help, true,
     false, bench_command},
};
/* For MPI to start, for a rank that is silent, and for all ranks to leave MPI. */
enum { START_SECONDS = 180, SILENT_SECONDS = 120, PART_SECONDS = 60 };
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static const char *command_name(const void *table, int index) {
  return ((const struct command *)table)[index].name;
}

static const struct command *find_command(const char *name) {
  for (int i = 0; i < COMMAND_COUNT; i++)
    if (strcmp(commands[i].name, name) == 0) return &commands[i];
  return NULL;
}

/* What was printed is out, or the exit code says that it is not. */
static enum status flush_output(void) {
  if (fflush(stdout) == 0 && !ferror(stdout)) return STATUS_OK;
  return RAISE(STATUS_STORAGE, "cannot write to standard output");
}

static void print_help(void) {
  printf("usage: convoy COMMAND [options]\n\nTrains convolutional networks by MPI, one rank a GPU or a share "
         "of the CPU.\n\n");
  for (int i = 0; i < COMMAND_COUNT; i++) printf("  %-16s%s\n", commands[i].name, commands[i].summary);
  printf("\n'convoy COMMAND --help' lists a command's options; 'convoy --version' the versions.\n");
}

static void print_command_help(const struct command *command, int argc, char **argv) {
  if (command->table)
    options_help(command->table, stdout);
  else
    command->help(argc, argv, stdout);
}

static void print_version(void) {
  char library[160];
  world_library(library, sizeof library);
  printf("convoy %s\nbackends:", CONVOY_VERSION);
#ifdef CONVOY_CPU
  printf(" cpu");
#endif
#ifdef CONVOY_CUDA
  printf(" cuda");
#endif
  printf("\nbuilt with: %s\nmpi: %s\n", CONVOY_BUILT_WITH, library);
}

static enum status refuse(int argc, char **argv) {
  if (argc < 2) return RAISE(STATUS_INPUT, "no command; expected one of those that 'convoy --help' lists");
  int nearest = nearest_name(argv[1], commands, COMMAND_COUNT, command_name);
  return RAISE(STATUS_INPUT, "unknown command '%s'; did you mean '%s'? 'convoy --help' lists all", argv[1],
               commands[nearest].name);
}

/* MPI's own start cannot be watched: it gets as long as the command line says, before options are read. */
static void limit_start(int argc, char **argv) {
  static const char option[] = "--init-timeout",
                    late[] = "error: MPI has not started within --init-timeout; a rank or "
                             "host is missing, frozen or cannot be reached\n";
  const char *text = NULL, *rank = getenv("OMPI_COMM_WORLD_RANK");
  size_t length = sizeof option - 1;
  for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
    if (strncmp(argv[i], option, length) != 0) continue;
    if (argv[i][length] == '=') text = argv[i] + length + 1;
    if (argv[i][length] == '\0' && i + 1 < argc) text = argv[i + 1];
  }
  long seconds = text ? strtol(text, NULL, 10) : 0;
  if (!rank) rank = getenv("PMIX_RANK");
  deadline_set(seconds > 0 && seconds <= 86400 ? (unsigned)seconds : START_SECONDS, STATUS_COMM,
               !rank || strcmp(rank, "0") == 0 ? late : NULL);
}

/* Any other command ends if a rank dies or freezes; what one does while the others wait may take its time. */
static enum status run_watched(const struct command *command, int argc, char **argv,
                               const struct world *world) {
  struct watchdog *watchdog;
  world_set_patient(world, true);
  enum status status = watchdog_start(world, START_SECONDS, SILENT_SECONDS, &watchdog);
  if (status == STATUS_OK) status = command->run(argc, argv, world);
  watchdog_stop(watchdog, status);
  return status;
}

/* Runs the command on all ranks and returns the exit code. */
static int run(int argc, char **argv) {
  struct world world;
  const struct command *command = argc < 2 ? NULL : find_command(argv[1]);
  if (command && command->stoppable) signals_install(); /* first of all: MPI's start takes its time */
  signals_ignore_size_limit();
  children_prepare(argv[0], argc > 0 ? (size_t)(argv[argc - 1] + strlen(argv[argc - 1]) - argv[0]) : 0);
  limit_start(argc, argv);
  binding_lift();
  enum status status = world_open(&world);
  if (status == STATUS_OK) {
    const double limit = quota_cpus("");
    world.cpu_limit = isfinite(limit) ? limit : 0;
    world.memory_limit = quota_memory("");
    status = cores_share(&world, &world.cores);
  }
  if (status != STATUS_OK) {
    error_print(stderr);
    if (status == STATUS_COMM && world.size > 0) world_abort(&world, (int)status);
    return (int)status;
  }
  log_open(world.rank, world.host, false);
  if (command && command->watched)
    status = command->run(argc - 1, argv + 1, &world);
  else if (command)
    status = run_watched(command, argc - 1, argv + 1, &world);
  else
    status = world_agree(&world, refuse(argc, argv));
  if (status == STATUS_OK)
    status = flush_output();
  else
    fflush(stdout);
  if (status != STATUS_OK) error_print(stderr);
  if (!world_agreed(&world, status)) world_abort(&world, (int)status);
  deadline_set(PART_SECONDS, status == STATUS_OK ? STATUS_COMM : (int)status,
               status == STATUS_OK && world.rank == 0 ? "error: the other ranks do not end\n" : NULL);
  if (status != STATUS_OK) signals_ignore(); /* the first rank that leaves may have the others signalled */
  world_close(&world);
  children_finish();
  return (int)status;
}

/* What needs no ranks: help and versions. False if the command line asks for neither. */
static bool print_text(int argc, char **argv) {
  if (argc < 2) return false;
  const struct command *command = find_command(argv[1]);
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
    print_help();
  else if (strcmp(argv[1], "--version") == 0)
    print_version();
  else if (command && options_help_wanted(argc - 1, argv + 1))
    print_command_help(command, argc - 1, argv + 1);
  else
    return false;
  return true;
}

/* A standard stream that is closed stays so: else the next file or pipe opened has its number, and gets what
 * is printed. */
static void hold_streams(void) {
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv) {
  hold_streams();
  if (!print_text(argc, argv)) return run(argc, argv);
  enum status status = flush_output();
  if (status != STATUS_OK) error_print(stderr);
  return (int)status;
}
