/* Write, fsync, rename, fsync the folder; see durable.h. */
#include "app/durable.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/base/disk.h"
#include "model/base/file.h"
#include "model/base/folder.h"

enum { PIECE = 8 << 20 /* bytes written at once */ };

/* The folder of a path: "." where it names none. */
static void folder_of(const char *path, char folder[PATH_MAX]) {
  snprintf(folder, PATH_MAX, "%s", path);
  char *slash = strrchr(folder, '/');
  if (!slash)
    snprintf(folder, PATH_MAX, ".");
  else
    slash[slash == folder ? 1 : 0] = '\0';
}

/* The disk begins with the first bytes while the next ones are copied. 0, or the errno of what failed. */
static int write_parts(int fd, const struct durable_part *parts, int count) {
  off_t end = 0;
  for (int i = 0; i < count; i++) {
    const char *data = parts[i].data;
    for (size_t done = 0, some; done < parts[i].bytes; done += some) {
      some = parts[i].bytes - done < PIECE ? parts[i].bytes - done : PIECE;
      int failed = file_write(fd, data + done, some, NULL);
      if (failed) return failed;
      (void)sync_file_range(fd, end, (off_t)some, SYNC_FILE_RANGE_WRITE); /* only a hint */
      end += (off_t)some;
    }
  }
  return fsync(fd) == 0 ? 0 : errno;
}

static bool not_allowed(int reason) {
  return reason == EACCES || reason == EPERM || reason == EROFS;
}

enum status durable_cannot_open(const char *path, int reason) {
  return RAISE(STATUS_STORAGE, "cannot write %s: %s%s", path, strerror(reason),
               not_allowed(reason) ? "; its folder must be one that this user may write to" : "");
}

static enum status cannot_write(const char *path, int reason, int64_t needed) {
  char folder[PATH_MAX];
  int64_t available;
  folder_of(path, folder);
  if (not_allowed(reason)) return durable_cannot_open(path, reason);
  if (disk_free(folder, &available) != STATUS_OK)
    return RAISE(STATUS_STORAGE, "cannot write %s: %s", path, strerror(reason));
  return RAISE(STATUS_STORAGE,
               "cannot write %s: %s (needed %" PRId64 " bytes, free %" PRId64
               "): make room or check quota and limits; what was there is untouched",
               path, strerror(reason), needed, available);
}

enum status durable_check_target(const char *path) {
  struct stat target, link;
  bool is_there = stat(path, &target) == 0,
       is_device_link = strncmp(path, "/dev/", 5) == 0 && lstat(path, &link) == 0 && S_ISLNK(link.st_mode);
  if (!is_device_link && (!is_there || S_ISREG(target.st_mode) || S_ISDIR(target.st_mode))) return STATUS_OK;
  return RAISE(STATUS_INPUT,
               "%s is a device or pipe, which a file would replace; expected the name of a file", path);
}

/* Opens PATH.tmp, which is new and empty. */
static enum status open_temporary(const char *path, int64_t needed, char temporary[PATH_MAX], int *fd) {
  TRY(durable_check_target(path));
  if (snprintf(temporary, PATH_MAX, "%s.tmp", path) >= PATH_MAX)
    return RAISE(STATUS_STORAGE, "cannot write %.200s…: the path is too long", path);
  (void)unlink(temporary); /* left by a kill, or a link or a pipe, which are not to be written into */
  *fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  return *fd < 0 ? cannot_write(path, errno, needed) : STATUS_OK;
}

enum status durable_try(const char *path, int64_t bytes) {
  char temporary[PATH_MAX];
  int fd;
  TRY(open_temporary(path, bytes, temporary, &fd));
  int failed = fallocate(fd, 0, 0, bytes) == 0 ? 0 : errno;
  if (failed == EOPNOTSUPP || failed == ENOSYS || failed == EINVAL)
    failed = 0; /* not every file system can */
  close(fd);
  unlink(temporary);
  return failed ? cannot_write(path, failed, bytes) : STATUS_OK;
}

enum status durable_write(const char *path, const struct durable_part *parts, int count) {
  char temporary[PATH_MAX], folder[PATH_MAX];
  int64_t needed = 0;
  int fd;
  for (int i = 0; i < count; i++) needed += (int64_t)parts[i].bytes;
  TRY(open_temporary(path, needed, temporary, &fd));
  int failed = write_parts(fd, parts, count);
  if (close(fd) != 0 && !failed) failed = errno;
  if (!failed && rename(temporary, path) != 0) failed = errno;
  if (failed) {
    unlink(temporary); /* before the free space is asked */
    return cannot_write(path, failed, needed);
  }
  folder_of(path, folder);
  return folder_sync(folder);
}
