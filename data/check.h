/* Verifies every byte of a data directory and names all faults, not the first only (`convoy data check`). */
#ifndef CONVOY_DATA_CHECK_H
#define CONVOY_DATA_CHECK_H

#include <stdint.h>

#include "model/base/error.h"

/* Calls fault(context, line) for each fault; *faults is their number. Not collective: one rank does it. A
 * status other than OK says that the check itself failed. */
enum status dataset_check(const char *directory, void (*fault)(void *context, const char *line),
                          void *context, int64_t *faults);

#endif
