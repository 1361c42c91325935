/* Checkpoints: HDF5 files that are either whole or not there (format: README in this folder).
 *
 * One process writes (rank 0). A file is built in memory, written to NAME.tmp, synchronised and renamed; a
 * digest over every byte is verified before anything in it is used. Nothing here knows about ranks, backends
 * or the command line. */
#ifndef CONVOY_APP_CHECKPOINT_H
#define CONVOY_APP_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/base/error.h"
#include "model/base/tensor.h"

/* Where a run stands. Resuming restores all of it; what is not used stays 0. */
struct checkpoint_progress {
  int64_t epoch;    /* epochs finished: trained, evaluated and in epochs.csv */
  int64_t position; /* steps done of the epoch after those; may be all of its steps, not yet evaluated */
  int64_t step;     /* steps done in all; names the file */
  uint64_t seed;
  bool complete;        /* the run has reached its last step and evaluation */
  double best_accuracy; /* best test accuracy so far, 0..1; negative: none yet */
  double seconds;       /* training time so far */
  /* Sums over the steps of the unfinished epoch, and over those since the last row of loss.csv. */
  double epoch_loss_sum, epoch_correct, epoch_seconds;
  int64_t epoch_samples;
  double row_loss_sum, row_seconds;
  int64_t row_samples;
};

/* One option that fixes the result, or a fact about the data, as text: {"model", "resnet18"}, {"classes",
 * "a\nb"}. Any length, UTF-8. Reals are best given as %.9g or %.17g, so that equal values are equal texts. */
struct checkpoint_option {
  const char *name;
  const char *value;
};

enum checkpoint_group {
  CHECKPOINT_PARAMETERS, /* /parameters/NAME */
  CHECKPOINT_MOMENTUM,   /* /optimizer/momentum/NAME */
  CHECKPOINT_ADAM_M,     /* /optimizer/adam_m/NAME */
  CHECKPOINT_ADAM_V,     /* /optimizer/adam_v/NAME */
  CHECKPOINT_STATISTICS, /* /statistics/NAME */
};

/* One array of tensor_count(&tensor) floats (dtype DTYPE_F32) in its true shape. `data` is read by
 * checkpoint_write and filled by checkpoint_read; borrowed. */
struct checkpoint_item {
  enum checkpoint_group group;
  const char *name; /* "layer1.0.conv1.weight" */
  struct tensor tensor;
  float *data;
};

struct checkpoint_content {
  struct checkpoint_progress progress;
  const struct checkpoint_option *options;
  int option_count;
  const struct checkpoint_item *items;
  int item_count;
};

enum { CHECKPOINT_PATH = 4096 };

/* Bytes that a checkpoint of these items takes, slightly too high. A run holds keep + 2 of them at most. */
int64_t checkpoint_estimate(const struct checkpoint_item *items, int item_count);

/* Writes directory/step-NNNNNNNN.h5 (replacing one of that step), then, if `best`, makes best.h5 the same
 * file, then deletes left-over .tmp files and all but the newest `keep` checkpoints of steps up to this one
 * (keep 0: deletes none). Returns when the file is durable. On failure (STATUS_STORAGE; a full disk is named
 * with the bytes needed and free) the temporary is gone and all former checkpoints stand untouched. */
enum status checkpoint_write(const char *directory, const struct checkpoint_content *content, int keep,
                             bool best);

/* STATUS_INPUT if the folder holds a checkpoint: what is not a run's own goes to a folder without any. */
enum status checkpoint_check_none(const char *directory);

/* Writes the name of step's file, "DIRECTORY/step-00000042.h5", to path[CHECKPOINT_PATH] and returns path. */
const char *checkpoint_path(const char *directory, int64_t step, char *path);

/* An open, verified checkpoint. */
struct checkpoint;

/* Opens one file. No such file: STATUS_INPUT. Damaged, truncated, not a checkpoint: STATUS_STORAGE with the
 * reason. */
enum status checkpoint_open(const char *path, struct checkpoint **checkpoint);

/* The newest checkpoint of a folder that verifies; warns about each newer one that does not, by name and
 * reason. Order: highest step first, best.h5 last. No folder or no checkpoint in it: STATUS_OK and NULL. Some
 * there, but none loads: STATUS_STORAGE. Nothing in the folder is changed. */
enum status checkpoint_newest(const char *directory, struct checkpoint **checkpoint);

/* For commands that take FILE or RUNDIR: a file; a run's folder (its checkpoints/) or a folder of
 * checkpoints: the newest. Nothing there: STATUS_INPUT. */
enum status checkpoint_find(const char *path, struct checkpoint **checkpoint);

void checkpoint_close(struct checkpoint *checkpoint); /* NULL: nothing */

const char *checkpoint_name(const struct checkpoint *checkpoint); /* the path it was opened by */
const struct checkpoint_progress *checkpoint_progress(const struct checkpoint *checkpoint);
/* An option's value, NULL if it has none of that name; lives as long as the checkpoint. */
const char *checkpoint_option(const struct checkpoint *checkpoint, const char *name);

/* STATUS_INPUT if a value differs from the checkpoint's: names the option, both values and what to do;
 * further differences follow as detail. An option that the checkpoint does not have differs. */
enum status checkpoint_compare(const struct checkpoint *checkpoint, const struct checkpoint_option *options,
                               int option_count);

/* Whether the checkpoint has that array (its optimizer state may be absent). */
bool checkpoint_has(const struct checkpoint *checkpoint, enum checkpoint_group group, const char *name);

/* Fills each item's data. An array that is missing or has another shape: STATUS_INPUT with both shapes.
 * Arrays of the checkpoint that are not asked for are left alone. */
enum status checkpoint_read(const struct checkpoint *checkpoint, const struct checkpoint_item *items,
                            int item_count);

/* Removes the checkpoints in `directory` (step-*.h5, best.h5 and their .tmp), nothing else; no folder:
 * nothing. */
enum status checkpoint_remove_all(const char *directory);

#endif
