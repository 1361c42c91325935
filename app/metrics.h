/* `--metrics FILE.prom`: where a run stands, in Prometheus' text format, for node_exporter's textfile
 * collector or anything else that reads it. The file is replaced by renaming, so a reader sees a whole one.
 * Rank 0 only. */
#ifndef CONVOY_APP_METRICS_H
#define CONVOY_APP_METRICS_H

#include "app/runlog.h"
#include "model/backend/backend.h"

struct metrics_run {
  const char *run, *model, *host; /* labels */
  int ranks;
  int64_t steps, epochs; /* planned */
};

struct metrics;

/* STATUS_INPUT if the file is one that may not be replaced (output.h). Writes nothing. */
enum status metrics_check(const char *path);

/* STATUS_STORAGE if the file cannot be written: it is tried at once. */
enum status metrics_open(const char *path, const struct metrics_run *run, struct metrics **metrics);

/* Take the rows of loss.csv and epochs.csv; at most one write a second, but each epoch is written. A failure
 * is told once and ends nothing. NULL: nothing. */
void metrics_loss(struct metrics *metrics, const struct runlog_loss *row);
void metrics_epoch(struct metrics *metrics, const struct runlog_epoch *row);
/* Rank 0's device, for the next write. */
void metrics_usage(struct metrics *metrics, const struct backend_usage *usage);

/* Writes how the run ended and frees; a recorded error stays. NULL: nothing. */
void metrics_close(struct metrics *metrics, enum status status);

#endif
