/* Room on disks; see disk.h. */
#include "model/base/disk.h"

#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>

enum status disk_free(const char *folder, int64_t *bytes) {
  struct statvfs info;
  if (statvfs(folder, &info) != 0)
    return RAISE(STATUS_STORAGE, "cannot ask for the free space of %s: %s", folder, strerror(errno));
  *bytes = (int64_t)info.f_bavail * (int64_t)info.f_frsize;
  return STATUS_OK;
}
