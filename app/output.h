/* The one rule for files that a user names for writing, so that no output destroys what it did not make: a
 * name that a run or a data set gives its own files is never used, and a file that is there is replaced only
 * if it is empty or of the kind that the command writes. */
#ifndef CONVOY_APP_OUTPUT_H
#define CONVOY_APP_OUTPUT_H

#include <stdbool.h>

#include "model/base/error.h"

/* A kind of file that Convoy writes. */
struct output_kind {
  const char *name; /* "page of convoy report" */
  const char *mark; /* text that stands within the first 512 bytes of every such file and of no other */
};

extern const struct output_kind output_svg, output_png; /* pictures by gnuplot */

/* STATUS_INPUT if PATH may not be written, or if PATH.tmp, which it is written under first, is in use. To be
 * asked before any long work. */
enum status output_check(const char *path, const struct output_kind *kind);

/* Only the name, which may also be a folder's: STATUS_INPUT for loss.csv, checkpoints, NAME.h5, NAME.tmp, …
 */
enum status output_check_name(const char *path);

/* Whether two paths name one file, which need not be there. */
bool output_same(const char *a, const char *b);

/* Whether what PATH names, which exists, is the folder or lies in it. */
bool output_inside(const char *path, const char *folder);

#endif
