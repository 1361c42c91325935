/* A run's folder: its lock, run.json, loss.csv and epochs.csv (formats: README in this folder). Rank 0 only.
 *
 * Order of use: runlog_check (early; reads only) · runlog_open (folder and lock) · checkpoint_newest on
 * runlog_checkpoints · runlog_start (removes or cuts what is there, opens the logs) · rows · runlog_close.
 * Until runlog_start nothing that was in the folder is changed. */
#ifndef CONVOY_APP_RUNLOG_H
#define CONVOY_APP_RUNLOG_H

#include <stdbool.h>
#include <stdint.h>

#include "model/base/error.h"

enum runlog_mode {
  RUNLOG_NEW,       /* the folder must be empty or absent */
  RUNLOG_RESUME,    /* continue what is there; an empty or absent folder is a new run */
  RUNLOG_OVERWRITE, /* remove a former run's files (only those that Convoy makes) */
};

struct runlog;

/* Whether a run gives this name to a file or folder of its own. */
bool runlog_owns(const char *name);

/* STATUS_INPUT if a run in this mode would be refused: the folder holds something (RUNLOG_NEW), is no folder,
 * or is locked by another job. Creates and changes nothing. */
enum status runlog_check(const char *out, enum runlog_mode mode);

/* Creates OUT (with its parents) and OUT/checkpoints and takes OUT/lock, which lasts until runlog_close or
 * the end of the process, however it ends. Another job's lock: STATUS_INPUT naming its host and process. A
 * file system that has no locks: warning. Cannot create: STATUS_STORAGE. */
enum status runlog_open(const char *out, enum runlog_mode mode, struct runlog **runlog);

/* Releases the lock; folders that runlog_open made and nothing was written to are removed again. NULL:
 * nothing. */
void runlog_close(struct runlog *runlog);

const char *runlog_checkpoints(const struct runlog *runlog); /* "OUT/checkpoints" */

/* Makes the logs ready for a run that continues after `step` steps and `epochs` finished epochs (0, 0: from
 * the start). RUNLOG_OVERWRITE removes the former run's files first. RUNLOG_RESUME keeps the rows of loss.csv
 * with step <= `step` and those of epochs.csv with epoch <= `epochs` and step <= `step`; a torn last line is
 * dropped; a file is replaced atomically, or left as it is where nothing changes. A log with another header:
 * STATUS_INPUT. */
enum status runlog_start(struct runlog *runlog, int64_t step, int64_t epochs);

/* Rows; a non-finite value becomes an empty field. Each is in the file (one write) when the call returns, or
 * STATUS_STORAGE. */
struct runlog_loss {
  int64_t step;  /* steps done, from 1 */
  int64_t epoch; /* from 1 */
  double loss, lr, images_per_s, seconds;
};
struct runlog_epoch {
  int64_t epoch; /* from 1 */
  int64_t step;  /* steps done at its end */
  double train_loss, train_accuracy, test_loss, test_accuracy, images_per_s, seconds; /* NAN: not measured */
};
enum status runlog_loss(struct runlog *runlog, const struct runlog_loss *row);
enum status runlog_epoch(struct runlog *runlog, const struct runlog_epoch *row);

/* Makes the rows so far durable; to be called before a checkpoint is written. */
enum status runlog_sync(struct runlog *runlog);

/* What run.json holds: objects of typed values. All pointers are borrowed for the call only. */
enum runlog_type { RUNLOG_TEXT, RUNLOG_INTEGER, RUNLOG_REAL, RUNLOG_BOOL };
struct runlog_value {
  const char *name;
  enum runlog_type type;
  int count;        /* 0: one value; else a list of so many, from texts, integers or reals */
  const char *text; /* NULL: null */
  int64_t integer;  /* also RUNLOG_BOOL */
  double real;      /* non-finite: null */
  const char *const *texts;
  const int64_t *integers;
  const double *reals;
};
struct runlog_section {
  const char *name; /* "options", "versions", "world", "data", "precision", … */
  const struct runlog_value *values;
  int count;
};
struct runlog_value runlog_text(const char *name, const char *text);
struct runlog_value runlog_integer(const char *name, int64_t integer);
struct runlog_value runlog_real(const char *name, double real);
struct runlog_value runlog_bool(const char *name, bool value);
struct runlog_value runlog_texts(const char *name, const char *const *texts, int count);
struct runlog_value runlog_reals(const char *name, const double *reals, int count);

/* Writes OUT/run.json (atomically) with these sections and "status": "running". */
enum status runlog_describe(struct runlog *runlog, const struct runlog_section *sections, int count);

/* Rewrites it with another status, "complete", "stopped" or "failed", and a section "result" (replaced each
 * time; count 0: left as it is). Needs runlog_describe before. */
enum status runlog_finish(struct runlog *runlog, const char *status, const struct runlog_value *result,
                          int count);

#endif
