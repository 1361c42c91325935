/* Only plain files are read; see input.h. */
#include "app/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "folder";
  if (S_ISFIFO(mode)) return "pipe";
  return S_ISCHR(mode) || S_ISBLK(mode) ? "device" : "special file";
}

FILE *input_open(const char *path, int64_t *bytes, char *reason) {
  struct stat info;
  FILE *file = NULL;
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), error = errno;
  bool known = fd >= 0 ? fstat(fd, &info) == 0 : error != ENOENT && stat(path, &info) == 0;
  if (known && !S_ISREG(info.st_mode)) {
    snprintf(reason, INPUT_REASON, "it is a %s, not a file", kind_of(info.st_mode));
    error = EINVAL;
  } else if (fd < 0 || !known || !(file = fdopen(fd, "rb"))) {
    if (fd >= 0) error = errno;
    snprintf(reason, INPUT_REASON, "%s", strerror(error));
  }
  if (file)
    *bytes = (int64_t)info.st_size;
  else if (fd >= 0)
    close(fd);
  if (!file) errno = error;
  return file;
}
