/* Reads and writes of an open file that go on where a call was interrupted or did a part only. */
#ifndef CONVOY_MODEL_BASE_FILE_H
#define CONVOY_MODEL_BASE_FILE_H

#include <stddef.h>

/* 0, or an errno; *done: the bytes read, fewer than wanted also at the end of the file. */
int file_read(int file, void *data, size_t bytes, size_t *done);

/* 0, or an errno; *done (NULL: not asked): the bytes written. */
int file_write(int file, const void *data, size_t bytes, size_t *done);

#endif
