/* Requests to stop: SIGUSR1, SIGUSR2, SIGTERM, SIGINT (Ctrl-C) and SIGHUP (the terminal is gone) set
 * a flag that the loops look at. */
#ifndef CONVOY_APP_SIGNALS_H
#define CONVOY_APP_SIGNALS_H

#include <stdbool.h>

/* From now on the first of these signals sets the flag, and a further one, half a second or more later, ends
 * the process at once as it would have without a handler. (Launchers may deliver one request twice.) */
void signals_install(void);

/* From now on a file-size limit is a write error like any other, also to MPI, and not the process's death. */
void signals_ignore_size_limit(void);

/* From now on a reader of the output that is gone (`| head`, a dead `tee`) is a write error and not the
 * process's death: a run goes on, and its exit code tells. */
void signals_ignore_closed_output(void);

/* From now on they are ignored: the run has ended and its status is decided. A launcher that ends a job at
 * its first rank's exit code (srun --kill-on-bad-exit) would otherwise replace that of the ranks that part
 * last.
 */
void signals_ignore(void);

bool signals_stop_wanted(void);

#endif
