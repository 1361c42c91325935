/* What a person watching sees between the lines of a run: one live line on a terminal, plain lines in a file
 * or pipe.
 *
 * The live line is redrawn in place, fits the terminal's width and is cleared before any other line of log.h
 * (through log_on_line). The cursor waits where it begins. A terminal that became narrower has wrapped it:
 * only then is an escape code written, which erases from there on. Elsewhere a plain line comes with the
 * first update and then about every ten seconds, without `\r` or escape codes. The ranks of mpirun stand on a
 * pseudo-terminal even when mpirun's own output is a file: there the launcher's output decides. */
#ifndef CONVOY_APP_PROGRESS_H
#define CONVOY_APP_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress_values {
  int64_t epoch, epochs; /* epoch from 1 */
  int64_t step, steps;   /* steps done in all, and the run's last step */
  double loss;
  double images_per_s;
  double seconds; /* since progress_open, by any steady clock of the caller */
};

struct progress {
  bool quiet, live;
  int fd;             /* where the terminal's width is asked; -1: none */
  int64_t first_step; /* steps done before this session */
  double next;        /* seconds of the next redraw or line */
  int drawn;          /* columns of the live line now on the terminal */
};

/* Only rank 0 shows anything; `quiet`: nothing at all. `first_step`: steps already done, for the time left.
 */
void progress_open(struct progress *progress, bool quiet, int64_t first_step);

/* Cheap to call after every step: draws only when it is time. */
void progress_update(struct progress *progress, const struct progress_values *values);

/* Whether progress_update at this time would show something, so that the caller can read the loss only then.
 */
bool progress_due(const struct progress *progress, double seconds);

/* Removes the live line and forgets it, also on an error path, twice or without open on a zeroed struct. */
void progress_close(struct progress *progress);

/* The text of one line, at most `columns` wide, no line end: for tests and other displays. Returns its
 * length. */
int progress_text(const struct progress_values *values, int64_t first_step, int columns, char *text,
                  int capacity);

#endif
