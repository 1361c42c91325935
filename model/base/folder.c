/* Folders; see folder.h. */
#include "model/base/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum status folder_make(const char *path, size_t *made) {
  char part[PATH_MAX];
  size_t length = strlen(path);
  if (length >= sizeof part) return RAISE(STATUS_INPUT, "%.200s…: the path is too long", path);
  for (size_t end = 1; end <= length; end++) {
    if (path[end] != '/' && path[end] != '\0') continue;
    memcpy(part, path, end);
    part[end] = '\0';
    struct stat info;
    int reason = mkdir(part, 0777) == 0 ? 0 : errno;
    if (reason == 0) {
      if (made && *made == 0) *made = end;
    } else if (stat(part, &info) != 0) {
      return RAISE(STATUS_STORAGE, "cannot make the folder %s: %s", part,
                   reason == EEXIST ? "it is a link to nothing" : strerror(reason));
    } else if (!S_ISDIR(info.st_mode)) {
      return RAISE(STATUS_INPUT, "cannot make the folder %s: %s is a file", path, part);
    }
  }
  return STATUS_OK;
}

void folder_remove(const char *path, size_t made) {
  char part[PATH_MAX];
  size_t length = strlen(path);
  if (made == 0 || length >= sizeof part) return;
  memcpy(part, path, length + 1);
  for (size_t end = length; end >= made; end--) {
    if (path[end] != '/' && path[end] != '\0') continue;
    part[end] = '\0';
    if (rmdir(part) != 0 && errno != ENOENT) return; /* the path may end with a slash */
  }
}

int folder_next(DIR *folder, const char **name) {
  const struct dirent *entry;
  do {
    errno = 0;
    entry = readdir(folder);
  } while (entry && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
  *name = entry ? entry->d_name : NULL;
  return entry ? 0 : errno;
}

enum status folder_sync(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return RAISE(STATUS_STORAGE, "cannot open the folder %s: %s", path, strerror(errno));
  int failed = fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS ? errno : 0;
  close(fd);
  if (failed) return RAISE(STATUS_STORAGE, "cannot synchronise the folder %s: %s", path, strerror(failed));
  return STATUS_OK;
}
