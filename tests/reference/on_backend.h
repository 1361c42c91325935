/* What the suites that run once a backend share: which backend the argument names, and when they are skipped.
 */
#ifndef CONVOY_TESTS_REFERENCE_ON_BACKEND_H
#define CONVOY_TESTS_REFERENCE_ON_BACKEND_H

#include "model/backend/backend.h"

enum { SUITE_SKIPPED = 77 };

/* Finds the backend argv[1] and opens the world; argv[2], if there, names the tests to run (* and ?). 0: go
 * on (the caller closes the world); else the exit code, and the reason is printed: 77 only if the backend is
 * not built in, or it is cuda and no device is visible.
 */
int suite_open(int argc, char **argv, const struct backend_table **table, struct world *world);

#endif
