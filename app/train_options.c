/* The table of `convoy train`'s options: the one place that names them. */
#include "app/train_options.h"

#include <inttypes.h>
#include <string.h>

#include "app/option_rows.h"
#include "app/schedule.h"
#include "model/backend/backend.h"
#include "model/base/log.h"

const char *const backend_choices[] = {"auto", "cpu", "cuda", NULL};
const char *const precision_choices[] = {"fp32", "tf32", "bf16", NULL};
const char *const optimizer_choices[] = {"sgd", "adam", "adamw", NULL};
static const char *const schedule_choices[] = {"constant", "linear", "cosine", NULL};
static const char *const scale_choices[] = {"none", "linear", "sqrt", NULL};
static const char *const augment_choices[] = {
    "none",   "flip",        "crop",        "flip,crop", /* by sum of enum augment */
    "cutout", "flip,cutout", "crop,cutout", "flip,crop,cutout", NULL};
static const char *const shuffle_choices[] = {"full", "chunk", NULL};
static const char *const fill_choices[] = {"zero", "reflect", NULL};
static const char *const allreduce_choices[] = {"fp32", "bf16", NULL};
static const char *const switch_choices[] = {"off", "on", NULL};

static const char models[] = "one of"
#define MODEL(name, summary) " " #name
#include "model/zoo/zoo.def"
#undef MODEL
    ;

#define OPTION_STRUCT struct train_options
// clang-format off
static const struct option_row rows[] = {
    TEXT("data", data, NULL, "DIR", OPTION_REQUIRED, "folder of shards", .heading = "what"),
    TEXT("out", out, NULL, "DIR", OPTION_REQUIRED, "the run's folder: logs and checkpoints"),
    ROW_CONFIG,
    TEXT("model", model, "simplecnn", "NAME", RESULT, models),
    TEXT("init", init, NULL, "FILE|RUNDIR", 0, "start from this checkpoint's weights; other classes: a new last layer"),
    TEXT("freeze", freeze, NULL, "GLOBS", RESULT, "do not train parameters of these names: layer1.*,*.bias"),
    INTEGER("lora", lora, 1, 1024, NULL, "RANK", RESULT, "train low-rank adapters of the layers and the last layer only"),
    REAL("lora-alpha", lora_alpha, 0, 1e6, NULL, "X", RESULT | ABOVE, "adapters count alpha / rank (default: the rank)"),
    INTEGER("epochs", epochs, 1, 1e6, "2", "N", RESULT, "passes over the training images"),
    INTEGER("steps", steps, 1, 1e12, NULL, "N", 0, "end after N steps in all; the schedule stays that of --epochs"),
    INTEGER("batch", batch, 1, 1e6, "128", "N", RESULT, "images a step over all ranks"),
    INTEGER("seed", seed, 0, 9007199254740992.0, "0", "N", RESULT, "of weights, order and augmentation"),
    CHOICE("shuffle", shuffle, shuffle_choices, "full", RESULT, "chunk: large pieces in random order, shuffled inside"),
    REAL("memory-limit", memory_limit, 0, 1e12, NULL, "MIB", ABOVE, "more training images are streamed (default: half the memory that there is)"),
    CHOICE("augment", augment, augment_choices, "none", RESULT, "of the training images"),
    INTEGER("crop-pad", crop_pad, 1, 64, "4", "N", RESULT, "a crop shifts by up to N pixels each way"),
    CHOICE("crop-fill", crop_fill, fill_choices, "zero", RESULT, "what a crop has outside of the image"),
    INTEGER("cutout-size", cutout_size, 1, 4096, "8", "N", RESULT, "cutout sets a square of N pixels to zero"),
    TRIPLE("mean", mean, -10, 10, NULL, "R,G,B", 0, "subtracted from pixels in 0..1 (default: measured)"),
    TRIPLE("std", std, 0, 10, NULL, "R,G,B", ABOVE, "divides them (default: measured)"),

    CHOICE("optimizer", optimizer, optimizer_choices, "adam", RESULT, "the update rule", .heading = "how it learns"),
    REAL("lr", lr, 0, 3e38, "0.001", "X", RESULT | ABOVE, "learning rate, the highest of the schedule"),
    REAL("momentum", momentum, 0, 0.99999, "0.9", "X", RESULT, "of sgd"),
    FLAG("nesterov", nesterov, RESULT, "Nesterov's form of sgd's momentum"),
    REAL("beta1", beta1, 0, 0.99999, "0.9", "X", RESULT, "of adam and adamw"),
    REAL("beta2", beta2, 0, 0.9999999, "0.999", "X", RESULT, "of adam and adamw"),
    REAL("epsilon", epsilon, 0, 1, "1e-8", "X", RESULT | ABOVE, "of adam and adamw"),
    REAL("weight-decay", weight_decay, 0, 1000, "0", "X", RESULT, "of filters and matrices"),
    REAL("label-smoothing", label_smoothing, 0, 0.99, "0", "X", RESULT, "part of a label spread over all classes"),
    CHOICE("schedule", schedule, schedule_choices, "constant", RESULT, "of the learning rate, over --epochs"),
    INTEGER("warmup-steps", warmup_steps, 0, 1e12, "0", "N", RESULT, "the rate rises linearly over N steps"),
    CHOICE("scale-lr", scale_lr, scale_choices, "none", RESULT, "multiply --lr by batch / base-batch or its root"),
    INTEGER("base-batch", base_batch, 1, 1e6, NULL, "N", RESULT, "the batch that --lr was tuned for"),

    CHOICE("backend", backend, backend_choices, "auto", 0, "auto: cuda where a GPU is visible", .heading = "where it runs"),
    CHOICE("precision", precision, precision_choices, "fp32", RESULT, "of activations and products"),
    CHOICE("allreduce", allreduce, allreduce_choices, "fp32", RESULT, "type of gradients between ranks; bf16: half the bytes"),
    FLAG("deterministic", deterministic, RESULT, "the same bits in each run on the same ranks"),
    CHOICE("fuse", fuse, switch_choices, "on", RESULT, "one op for convolution, batchnorm, add, activation"),
    INTEGER("threads", threads, 1, 4096, NULL, "N", OPTION_OWN, "CPU threads a rank (default: its share of the cores)"),
    INTEGER("expect-ranks", expect_ranks, 1, 1e6, NULL, "N", 0, "refuse to start with another number of ranks"),
    ROW_INIT_TIMEOUT,
    ROW_COMM_TIMEOUT,
    INTEGER("lanes", lanes, 0, 65536, "0", "N", RESULT, "cut steps in N parts: the same bits on 1, 2, 4, … N ranks; one CPU thread"),
    ROW_PLAN_CACHE,

    FLAG("resume", resume, 0, "continue from the newest checkpoint; none yet: start", .heading = "the run's files"),
    FLAG("overwrite", overwrite, 0, "remove a former run's files in --out"),
    INTEGER("checkpoint-every", checkpoint_every, 1, 1e12, NULL, "STEPS", 0, "save so often (default: each epoch)"),
    REAL("checkpoint-minutes", checkpoint_minutes, 0, 1e6, NULL, "M", ABOVE, "and M minutes after the last"),
    INTEGER("keep", keep, 0, 1e6, "3", "N", 0, "newest checkpoints that stay; 0: all"),
    INTEGER("eval-every", eval_every, 0, 1e6, "1", "EPOCHS", 0, "test so often and at the end; 0: only at the end"),
    INTEGER("eval-batch", eval_batch, 1, 1e6, "250", "N", RESULT, "test images that a rank takes at once"),
    INTEGER("log-every", log_every, 1, 1e9, "10", "STEPS", 0, "steps a row of loss.csv"),
    TEXT("metrics", metrics, NULL, "FILE", 0, "keep where the run stands in FILE.prom, as Prometheus reads it"),
    TEXT("tensorboard", tensorboard, NULL, "DIR", 0, "write event files for TensorBoard there, a folder a run"),
    FLAG("check", check, OPTION_NOT_IN_FILE, "check all, print the plan, train nothing"),
    FLAG("quiet", quiet, OPTION_OWN, "only warnings and errors", .letter = 'q'),
    FLAG("verbose", verbose, OPTION_OWN, "a line for each row of loss.csv", .letter = 'v'),
};
// clang-format on

_Static_assert(sizeof rows / sizeof *rows <= OPTION_ROWS, "room for all in run.json");
const struct option_table train_table = OPTION_TABLE(
    "train", "Trains a model on a folder of shards, on all ranks that the launcher started.", rows);

/* Warns where `name` was changed from its default although it does nothing `beside`. */
static enum status warn_unused(const struct train_options *options, const char *name, const char *beside) {
  struct train_options defaults = {0};
  TRY(options_defaults(&train_table, &defaults));
  char given[OPTION_TEXT], initial[OPTION_TEXT];
  const struct option_row *row = options_find(&train_table, name);
  options_text(row, options, given, sizeof given);
  options_text(row, &defaults, initial, sizeof initial);
  if (strcmp(given, initial) != 0) log_warning("--%s %s has no effect with %s", name, given, beside);
  return STATUS_OK;
}

enum status train_options_warn(const struct train_options *options) {
  if (options->optimizer != OPTIMIZER_SGD) {
    TRY(warn_unused(options, "momentum", "this --optimizer"));
    TRY(warn_unused(options, "nesterov", "this --optimizer"));
  } else {
    TRY(warn_unused(options, "beta1", "--optimizer sgd"));
    TRY(warn_unused(options, "beta2", "--optimizer sgd"));
    TRY(warn_unused(options, "epsilon", "--optimizer sgd"));
  }
  if (options->lanes > 0 && options->threads > 1)
    log_warning("--threads %" PRId64
                " has no effect with --lanes: a CPU rank then has one thread; use more ranks",
                options->threads);
  if (!(options->augment & AUGMENT_CROP)) {
    TRY(warn_unused(options, "crop-pad", "this --augment"));
    TRY(warn_unused(options, "crop-fill", "this --augment"));
  }
  if ((options->lora > 0 || options->freeze[0]) && !options->init[0] && !options->resume)
    log_warning("--%s without --init keeps weights as chance made them",
                options->lora > 0 ? "lora" : "freeze");
  if (!(options->augment & AUGMENT_CUTOUT)) TRY(warn_unused(options, "cutout-size", "this --augment"));
  return STATUS_OK;
}

/* A tree of sums halves the lanes down to one. */
static enum status check_lanes(int64_t lanes) {
  if (lanes == 0 || (lanes & (lanes - 1)) == 0) return STATUS_OK;
  return RAISE(STATUS_INPUT, "--lanes is %" PRId64 "; expected a power of two, at least the number of ranks",
               lanes);
}

static enum status check_together(const struct train_options *options) {
  if (options->resume && options->overwrite)
    return RAISE(STATUS_INPUT, "found both --resume and --overwrite; expected at most one of them");
  if (options->quiet && options->verbose)
    return RAISE(STATUS_INPUT, "found both --quiet and --verbose; expected at most one of them");
  if (options->scale_lr != SCHEDULE_SCALE_NONE && options->base_batch == 0)
    return RAISE(STATUS_INPUT, "--scale-lr needs --base-batch N: the batch that --lr was tuned for");
  if (options->scale_lr == SCHEDULE_SCALE_NONE && options->base_batch != 0)
    return RAISE(STATUS_INPUT, "--base-batch %" PRId64 " has no effect without --scale-lr linear or sqrt",
                 options->base_batch);
  if (options->nesterov && options->optimizer == OPTIMIZER_SGD && options->momentum == 0)
    return RAISE(STATUS_INPUT, "--nesterov needs --momentum above 0");
  if (options->lora_alpha > 0 && options->lora == 0)
    return RAISE(STATUS_INPUT, "--lora-alpha %g has no effect without --lora RANK", options->lora_alpha);
  if (options->lanes > 0 && options->allreduce == 1)
    return RAISE(STATUS_INPUT,
                 "--allreduce bf16 cannot be had with --lanes %" PRId64
                 ", which sum in fp32 in one order; leave one of them out",
                 options->lanes);
  return check_lanes(options->lanes);
}

enum status train_options_parse(int argc, char **argv, struct train_options *options) {
  *options = (struct train_options){0};
  TRY(options_parse(&train_table, argc, argv, options));
  if (options->lanes > 0) options->deterministic = true; /* what else would they be for */
  TRY(check_together(options));
  if (options->lora_alpha == 0) options->lora_alpha = (double)options->lora;
  return STATUS_OK;
}
