/* Runs gnuplot, which draws the pictures. */
#ifndef CONVOY_APP_GNUPLOT_H
#define CONVOY_APP_GNUPLOT_H

#include <stdbool.h>

#include "model/base/error.h"

struct gnuplot_job {
  const char *folder; /* it runs there; NULL: here */
  char *script;       /* its argument; NULL: it reads `input` */
  int input, output;  /* descriptors of its standard streams; -1: /dev/null */
  bool quiet;         /* its complaints go nowhere, else to stderr */
};

enum { GNUPLOT_SECONDS = 60 /* far more than a picture takes */ };

/* Waits for its end, at most `seconds`, then it is killed. STATUS_INPUT: it is not in PATH. STATUS_INTERNAL:
 * it cannot be started, failed, or took too long. */
enum status gnuplot_run(const struct gnuplot_job *job, double seconds);

#endif
