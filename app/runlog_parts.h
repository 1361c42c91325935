/* The parts of a run's folder, shared by app/runlog*.c only. */
#ifndef CONVOY_APP_RUNLOG_PARTS_H
#define CONVOY_APP_RUNLOG_PARTS_H

#include <limits.h>
#include <locale.h>
#include <stdbool.h>
#include <stdint.h>

#include "app/runlog.h"

struct cJSON;

struct runlog {
  enum runlog_mode mode;
  char out[PATH_MAX], checkpoints[PATH_MAX];
  size_t made;      /* length of the outermost folder that was made here, as a prefix of `out`; 0: none */
  int lock;         /* descriptor of OUT/lock, locked where the file system can */
  int loss, epochs; /* descriptors of the logs; -1: not open */
  locale_t locale;  /* "C": numbers are written with a point whatever the user's locale */
  struct cJSON *json;
};

/* OUT/NAME. */
const char *runlog_path(const struct runlog *runlog, const char *name, char path[PATH_MAX]);

/* runlog_lock.c: takes OUT/lock, as runlog_open describes; or only asks (nothing is created, no lock file:
 * free). */
enum status runlog_lock_take(const char *out, int *fd);
enum status runlog_lock_ask(const char *out);
void runlog_lock_release(const char *out, int fd); /* fd -1: nothing */

/* runlog_csv.c: opens a log for appending rows. A former file is kept up to `step` (column `step_column`)
 * and, where epoch_column >= 0, up to `epoch`; then the header is written if it is empty. */
struct runlog_csv {
  const char *header; /* without line end */
  int step_column, epoch_column;
};
enum status runlog_csv_open(const char *path, const struct runlog_csv *csv, int64_t step, int64_t epoch,
                            int *fd);
enum status runlog_csv_append(int fd, const char *path, const char *line, size_t length);

#endif
