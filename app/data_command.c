/* The data commands and their options; see data_command.h. */
#include "app/data_command.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "app/options.h"
#include "app/subcommand.h"
#include "data/check.h"
#include "data/dataset.h"
#include "data/import.h"
#include "data/import_shards.h"
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

#define FIELD(member) .offset = offsetof(struct data_options, member)
/* clang-format off */
#define ROW_OUT                                                                                               \
  {.name = "out", .type = OPTION_TEXT_VALUE, FIELD(out), .value = "DIR", .flags = OPTION_REQUIRED | OPTION_OPERAND, \
   .help = "folder for the shards; new or empty"}
#define ROW_SHARDS(unless)                                                                                    \
  {.name = "shards", .type = OPTION_INTEGER, FIELD(shards), .least = 1, .most = 99999, .value = "N",          \
   .help = "training shards (default: 5" unless ")"},                                                         \
  {.name = "test-shards", .type = OPTION_INTEGER, FIELD(test_shards), .least = 1, .most = 99999,              \
   .value = "N", .help = "test shards (default: 1" unless ")"}
#define ROW_OVERWRITE                                                                                         \
  {.name = "overwrite", .type = OPTION_FLAG, FIELD(overwrite), .help = "replace the shards of a folder that is not empty"}
#define ROW_DATA                                                                                              \
  {.name = "data", .type = OPTION_TEXT_VALUE, FIELD(data), .value = "DIR", .flags = OPTION_REQUIRED | OPTION_OPERAND, \
   .help = "folder of shards"}

static const struct option_row import_rows[] = {
    {.name = "from", .type = OPTION_TEXT_VALUE, FIELD(from), .value = "PATH",
     .flags = OPTION_REQUIRED | OPTION_OPERAND,
     .help = "folder or archive: train|test/CLASS/NAME.jpg|png, CIFAR-10's data_batch_*.bin; or a folder of shards"},
    ROW_OUT,
    ROW_SHARDS("; --rechunk: as there are"),
    {.name = "seed", .type = OPTION_INTEGER, FIELD(seed), .least = 0, .most = 0x1p53, .initial = "0", .value = "N",
     .help = "of the order in which the images are stored, or of --fraction's choice"},
    {.name = "rechunk", .type = OPTION_FLAG, FIELD(rechunk),
     .help = "from shards: rewritten so that they read fast, as many as there are unless told otherwise"},
    {.name = "keep-classes", .type = OPTION_TEXT_VALUE, FIELD(keep), .value = "NAMES",
     .help = "from shards: only these classes, e.g. cat,dog"},
    {.name = "fraction", .type = OPTION_REAL, FIELD(fraction), .least = 0, .most = 1, .initial = "1", .value = "X",
     .flags = OPTION_ABOVE, .help = "from shards: only this part of each class"},
    ROW_OVERWRITE,
};
static const struct option_row synth_rows[] = {
    ROW_OUT,
    {.name = "train", .type = OPTION_INTEGER, FIELD(train), .least = 1, .most = UINT32_MAX, .initial = "10000",
     .value = "N", .help = "training images"},
    {.name = "test", .type = OPTION_INTEGER, FIELD(test), .least = 0, .most = UINT32_MAX, .initial = "2000",
     .value = "N", .help = "test images"},
    {.name = "classes", .type = OPTION_INTEGER, FIELD(classes), .least = 2, .most = DATASET_MAX_CLASSES,
     .initial = "10", .value = "N", .help = "classes"},
    {.name = "size", .type = OPTION_INTEGER, FIELD(size), .least = 8, .most = 1024, .initial = "32",
     .value = "N", .help = "pixels of a side"},
    {.name = "seed", .type = OPTION_INTEGER, FIELD(seed), .least = 0, .most = 0x1p53, .initial = "0", .value = "N",
     .help = "of the images"},
    ROW_SHARDS(""),
    ROW_OVERWRITE,
};
static const struct option_row data_rows[] = {ROW_DATA};
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
  if (import_shards_known(options->from)) return run_import_shards(options);
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

#define TABLE(name, words, table_rows)                                                                       \
  {                                                                                                          \
    .command = "convoy data " name, .summary = words, .rows = table_rows,                                    \
    .count = sizeof table_rows / sizeof *table_rows                                                          \
  }

static const struct option_table tables[] = {
    TABLE("import", "Makes shards from image files or an archive of them.", import_rows),
    TABLE("synth", "Generates a set that a small network learns.", synth_rows),
    TABLE("check", "Verifies every byte of a folder of shards and names all faults.", data_rows),
    TABLE("info", "Describes a folder of shards.", data_rows),
};
enum { SUBCOMMANDS = sizeof tables / sizeof *tables };
static const struct {
  enum status (*run)(const struct data_options *options);                                /* on rank 0 */
  enum status (*run_all)(const struct data_options *options, const struct world *world); /* or on all ranks */
} runs[SUBCOMMANDS] = {{run_import, NULL}, {run_synth, NULL}, {run_check, NULL}, {NULL, run_info}};
static const struct subcommand_set set = {"data", tables, SUBCOMMANDS};

/* Rows marked OPTION_OPERAND may be given by name or as plain words: by name where the name is there. */
enum { MOST_ROWS = 12 };

static bool given_by_name(int argc, char **argv, const char *name) {
  size_t length = strlen(name);
  for (int i = 1; i < argc; i++)
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

/* Plain words come first: `import FROM OUT --seed 1`. */
static bool has_operand(int argc, char **argv) {
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
  TRY(world_agree(world, options_parse(&table, argc - 1, argv + 1, &options)));
  if (runs[found].run_all) return runs[found].run_all(&options, world);
  return world_agree(world, world->rank == 0 ? runs[found].run(&options) : STATUS_OK);
}
