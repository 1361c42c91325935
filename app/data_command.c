/* The data commands and their options; see data_command.h. */
#include "app/data_command.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "app/option_rows.h"
#include "app/subcommand.h"
#include "data/check.h"
#include "data/dataset.h"
#include "data/import.h"
#include "data/import_shards.h"
#include "data/shard_list.h"
#include "data/synth.h"
#include "model/base/log.h"

/* The options of all four; each command's table has only its own. */
struct data_options {
  char from[OPTION_TEXT], out[OPTION_TEXT], data[OPTION_TEXT];
  int64_t shards, test_shards, seed, train, test, classes, size;
  char keep[OPTION_TEXT];
  double fraction;
  bool overwrite, rechunk;
};

#define OPTION_STRUCT struct data_options
/* clang-format off */
#define OPERAND (OPTION_REQUIRED | OPTION_OPERAND)
#define ROW_OUT TEXT("out", out, NULL, "DIR", OPERAND, "folder for the shards; new or empty")
#define ROWS_SHARDS(unless) \
    INTEGER("shards", shards, 1, 99999, NULL, "N", 0, "training shards (default: 5" unless ")"), \
    INTEGER("test-shards", test_shards, 1, 99999, NULL, "N", 0, "test shards (default: 1" unless ")")
#define ROW_SEED(of) INTEGER("seed", seed, 0, 0x1p53, "0", "N", 0, of)
#define ROW_OVERWRITE FLAG("overwrite", overwrite, 0, "replace the shards of a folder that is not empty")

static const struct option_row import_rows[] = {
    TEXT("from", from, NULL, "PATH", OPERAND,
         "folder or archive: train|test/CLASS/NAME.jpg|png, CIFAR-10's data_batch_*.bin; or a folder of shards"),
    ROW_OUT,
    ROWS_SHARDS("; --rechunk: as there are"),
    ROW_SEED("of the order in which the images are stored, or of --fraction's choice"),
    FLAG("rechunk", rechunk, 0, "from shards: rewritten so that they read fast, as many as there are unless told otherwise"),
    TEXT("keep-classes", keep, NULL, "NAMES", 0, "from shards: only these classes, e.g. cat,dog"),
    REAL("fraction", fraction, 0, 1, "1", "X", ABOVE, "from shards: only this part of each class"),
    ROW_OVERWRITE,
};
static const struct option_row synth_rows[] = {
    ROW_OUT,
    INTEGER("train", train, 1, UINT32_MAX, "10000", "N", 0, "training images"),
    INTEGER("test", test, 0, UINT32_MAX, "2000", "N", 0, "test images"),
    INTEGER("classes", classes, 2, DATASET_MAX_CLASSES, "10", "N", 0, "classes"),
    INTEGER("size", size, 8, 1024, "32", "N", 0, "pixels of a side"),
    ROW_SEED("of the images"),
    ROWS_SHARDS(""),
    ROW_OVERWRITE,
};
static const struct option_row data_rows[] = {TEXT("data", data, NULL, "DIR", OPERAND, "folder of shards")};
/* clang-format on */

enum { TRAIN_SHARDS = 5, TEST_SHARDS = 1 }; /* unless told otherwise */

static int shards_or(int64_t given, int otherwise) {
  return given > 0 ? (int)given : otherwise;
}

static enum status run_import_shards(const struct data_options *options) {
  int train = shards_or(options->shards, options->rechunk ? 0 : TRAIN_SHARDS),
      test = shards_or(options->test_shards, options->rechunk ? 0 : TEST_SHARDS);
  struct import_shards_options import = {.from = options->from,
                                         .out = options->out,
                                         .train_shards = train,
                                         .test_shards = test,
                                         .classes = options->keep[0] ? options->keep : NULL,
                                         .fraction = options->fraction,
                                         .seed = (uint64_t)options->seed,
                                         .overwrite = options->overwrite};
  TRY(import_shards_run(&import));
  log_info("done: convoy train --data %s", options->out);
  return STATUS_OK;
}

static enum status run_import(const struct data_options *options) {
  if (shard_list_any(options->from)) return run_import_shards(options);
  if (options->rechunk || options->keep[0] || options->fraction < 1)
    return RAISE(STATUS_INPUT,
                 "%s holds no shards (train-*.h5), which --rechunk, --keep-classes and --fraction are for",
                 options->from);
  struct import_options import = {.from = options->from,
                                  .out = options->out,
                                  .train_shards = shards_or(options->shards, TRAIN_SHARDS),
                                  .test_shards = shards_or(options->test_shards, TEST_SHARDS),
                                  .seed = (uint64_t)options->seed,
                                  .overwrite = options->overwrite};
  TRY(import_run(&import));
  log_info("done: convoy train --data %s", options->out);
  return STATUS_OK;
}

static enum status run_synth(const struct data_options *options) {
  struct synth_options synth = {.out = options->out,
                                .train = options->train,
                                .test = options->test,
                                .train_shards = shards_or(options->shards, TRAIN_SHARDS),
                                .test_shards = shards_or(options->test_shards, TEST_SHARDS),
                                .classes = (int)options->classes,
                                .size = (int)options->size,
                                .seed = (uint64_t)options->seed,
                                .overwrite = options->overwrite};
  TRY(synth_run(&synth));
  log_info("done: convoy train --data %s", options->out);
  return STATUS_OK;
}

static void print_fault(void *context, const char *line) {
  (void)context;
  log_info("fault: %s", line);
}

static enum status run_check(const struct data_options *options) {
  int64_t faults;
  TRY(dataset_check(options->data, print_fault, NULL, &faults));
  if (faults > 0)
    return RAISE(STATUS_INPUT, "data directory %s has %" PRId64 " fault%s, listed above", options->data,
                 faults, faults == 1 ? "" : "s");
  log_info("%s: every shard is good", options->data);
  return STATUS_OK;
}

static void print_split(const struct dataset *dataset, const char *name, const struct split *split) {
  log_info("%s: %" PRId64 " images in %d shards", name, split->count, split->shard_count);
  int64_t *seen = calloc((size_t)dataset->classes, sizeof *seen);
  if (!seen) return;
  for (int64_t i = 0; i < split->count; i++) seen[split->labels[i]]++;
  for (int c = 0; c < dataset->classes; c++)
    if (split->count > 0) log_info("  %-4d %-20s %" PRId64, c, dataset->class_name[c], seen[c]);
  free(seen);
}

static void print_moments(const struct dataset *dataset, const char *name, const double *value) {
  char text[128] = "";
  size_t used = 0;
  for (int c = 0; c < dataset->channels; c++)
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%.6f", c ? "," : "", value[c]);
  log_info("%s: %s", name, text);
}

static enum status run_info(const struct data_options *options, const struct world *world) {
  struct dataset *dataset;
  TRY(dataset_open(world, options->data, DATASET_CHECKED, &dataset));
  log_info("images: %dx%dx%d (height, width, channels)", dataset->height, dataset->width, dataset->channels);
  log_info("classes: %d%s", dataset->classes, dataset->classes_given ? "" : " (not given by the shards)");
  print_split(dataset, "train", &dataset->train);
  print_split(dataset, "test", &dataset->test);
  print_moments(dataset, "mean", dataset->mean);
  print_moments(dataset, "std", dataset->std);
  if (dataset->moments_stored > 0)
    log_info("stored: mean and std in %d of %d shards", dataset->moments_stored,
             dataset->train.shard_count + dataset->test.shard_count);
  log_info("digest: %016" PRIx64, dataset->digest);
  if (dataset->note[0]) log_info("note: %s", dataset->note);
  dataset_close(dataset);
  return STATUS_OK;
}

static const struct option_table tables[] = {
    OPTION_TABLE("data import", "Makes shards from image files or an archive of them.", import_rows),
    OPTION_TABLE("data synth", "Generates a set that a small network learns.", synth_rows),
    OPTION_TABLE("data check", "Verifies every byte of a folder of shards and names all faults.", data_rows),
    OPTION_TABLE("data info", "Describes a folder of shards.", data_rows),
};
enum { SUBCOMMANDS = sizeof tables / sizeof *tables };
static const struct {
  enum status (*run)(const struct data_options *options);                                /* on rank 0 */
  enum status (*run_all)(const struct data_options *options, const struct world *world); /* or on all ranks */
} runs[SUBCOMMANDS] = {{run_import, NULL}, {run_synth, NULL}, {run_check, NULL}, {NULL, run_info}};
static const struct subcommand_set set = {"data", tables, SUBCOMMANDS};

/* Rows marked OPTION_OPERAND may be given by name or as plain words: by name where the name is there. */
enum { MOST_ROWS = 12 };
_Static_assert(sizeof import_rows / sizeof *import_rows <= MOST_ROWS &&
                   sizeof synth_rows / sizeof *synth_rows <= MOST_ROWS,
               "room for a copy of each table");

static bool given_by_name(int argc, char **argv, const char *name) {
  size_t length = strlen(name);
  for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
    if (strncmp(argv[i], "--", 2) == 0 && strncmp(argv[i] + 2, name, length) == 0 &&
        (argv[i][2 + length] == '\0' || argv[i][2 + length] == '='))
      return true;
  return false;
}

static struct option_table choose_operands(const struct option_table *table, int argc, char **argv,
                                           bool all_named, struct option_row rows[MOST_ROWS]) {
  struct option_table chosen = *table;
  chosen.rows = rows;
  for (int i = 0; i < table->count; i++) {
    rows[i] = table->rows[i];
    if (all_named || given_by_name(argc, argv, rows[i].name)) rows[i].flags &= ~(unsigned)OPTION_OPERAND;
  }
  return chosen;
}

/* Plain words come first, `import FROM OUT --seed 1`, or behind `--`. */
static bool has_operand(int argc, char **argv) {
  for (int i = 1; i + 1 < argc; i++)
    if (strcmp(argv[i], "--") == 0) return true;
  return argc > 1 && argv[1][0] != '-';
}

void data_help(int argc, char **argv, FILE *stream) {
  int found = subcommand_find(&set, argc, argv);
  struct option_row rows[MOST_ROWS];
  if (found < 0) {
    subcommand_list(&set, stream);
    return;
  }
  struct option_table named = choose_operands(&tables[found], argc, argv, true, rows);
  options_help(&named, stream);
}

enum status data_command(int argc, char **argv, const struct world *world) {
  int found = subcommand_find(&set, argc, argv);
  struct option_row rows[MOST_ROWS];
  if (found < 0) return world_agree(world, subcommand_refuse(&set, argc, argv));
  struct data_options options = {.seed = 0};
  bool all_named = !has_operand(argc - 1, argv + 1);
  struct option_table table = choose_operands(&tables[found], argc, argv, all_named, rows);
  TRY(options_agree(world, &table, &options, options_parse(&table, argc - 1, argv + 1, &options)));
  if (runs[found].run_all) return runs[found].run_all(&options, world);
  return world_agree(world, world->rank == 0 ? runs[found].run(&options) : STATUS_OK);
}
