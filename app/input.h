/* Files that a user names for reading. */
#ifndef CONVOY_APP_INPUT_H
#define CONVOY_APP_INPUT_H

#include <stdint.h>
#include <stdio.h>

enum { INPUT_REASON = 96 };

/* Opens a plain file, or a link to one, for reading; *bytes is its size. NULL: reason[INPUT_REASON] says why
 * ("No such file or directory", "it is a folder, not a file"), and errno is ENOENT only if nothing is there.
 * Pipes, devices and folders are refused at once: it never waits for somebody to write into a pipe. */
FILE *input_open(const char *path, int64_t *bytes, char *reason);

#endif
