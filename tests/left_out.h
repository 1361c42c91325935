/* What a cmocka suite leaves out for want of something on this machine: where all else passed it ends with 77
 * then, which ctest counts as skipped, not as passed. The same rule as leave_out in program/lib.sh. Include
 * after cmocka.h. */
#pragma once
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool something_left_out;

/* Ends the test that calls it, which is left out for want of NAME; it fails if tests/run.sh has seen to NAME.
 */
static inline void leave_out(const char *name) {
  const char *provided = getenv("CONVOY_PROVIDED"); /* words between spaces */
  size_t length = strlen(name);
  for (const char *at = provided; at && (at = strstr(at, name)); at += length)
    if ((at == provided || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
      fail_msg("tests/run.sh has installed %s, but it is not found", name);
  print_message("left out: what needs %s\n", name);
  something_left_out = true;
  skip();
}

/* The exit status of a suite of whose tests FAILED failed. */
static inline int suite_status(int failed) {
  return failed == 0 && something_left_out ? 77 : failed;
}
