/* Whole reads and writes; see file.h. */
#include "model/base/file.h"

#include <errno.h>
#include <sys/types.h>
#include <unistd.h>

int file_read(int file, void *data, size_t bytes, size_t *done) {
  for (*done = 0; *done < bytes;) {
    ssize_t got = read(file, (char *)data + *done, bytes - *done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) break;
    *done += (size_t)got;
  }
  return 0;
}

int file_write(int file, const void *data, size_t bytes, size_t *done) {
  int fault = 0;
  size_t written = 0;
  while (written < bytes && !fault) {
    ssize_t put = write(file, (const char *)data + written, bytes - written);
    if (put > 0)
      written += (size_t)put;
    else if (put == 0)
      fault = EIO;
    else if (errno != EINTR)
      fault = errno;
  }
  if (done) *done = written;
  return fault;
}
