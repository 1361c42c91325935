/* Preloaded into a run, makes the FAIL_AT-th call that writes under the folder FAIL_UNDER fail, as a full
 * disk or a broken one does: FAIL_ERRNO=ENOSPC, EDQUOT or EROFS fails it and all that follow, and a write
 * takes half of its bytes first but for EROFS; FAIL_ERRNO=EIO fails it alone; FAIL_ERRNO=KILL kills the
 * process instead; FAIL_ERRNO=ENOMEM fails no write, but every stream in memory from then on. Counted are
 * creating opens, writes, fsyncs, renames and links. When the call comes, the file FAIL_REPORT is made, so
 * that a suite knows when N has passed the last one. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int calls;

static bool is_under(const char *path) {
  const char *under = getenv("FAIL_UNDER");
  return under && strncmp(path, under, strlen(under)) == 0;
}

static bool is_open_under(int fd) {
  char name[64], path[4096];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(name, path, sizeof path - 1);
  if (length < 0) return false;
  path[length] = '\0';
  return is_under(path);
}

/* The errno that FAIL_ERRNO names. */
static int wanted_errno(void) {
  static const struct {
    const char *name;
    int number;
  } kinds[] = {{"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EROFS", EROFS}, {"ENOMEM", ENOMEM}};
  const char *kind = getenv("FAIL_ERRNO");
  for (size_t i = 0; kind && i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(kind, kinds[i].name) == 0) return kinds[i].number;
  return EIO;
}

/* Counts one call; true if it is to fail, with errno set. *first: it is the first one. */
static bool fails(bool *first) {
  const char *at = getenv("FAIL_AT"), *report = getenv("FAIL_REPORT");
  int call = atomic_fetch_add(&calls, 1) + 1, wanted = at ? atoi(at) : 0;
  bool stays = wanted_errno() != EIO;
  *first = call == wanted;
  if (wanted == 0 || call < wanted || (call > wanted && !stays)) return false;
  if (*first && report) {
    long fd = syscall(SYS_openat, AT_FDCWD, report, O_WRONLY | O_CREAT, 0666);
    if (fd >= 0) syscall(SYS_close, fd);
  }
  const char *kind = getenv("FAIL_ERRNO");
  if (kind && strcmp(kind, "KILL") == 0) raise(SIGKILL);
  errno = wanted_errno();
  return errno != ENOMEM;
}

FILE *open_memstream(char **text, size_t *bytes) {
  const char *at = getenv("FAIL_AT");
  if (at && wanted_errno() == ENOMEM && atomic_load(&calls) >= atoi(at)) {
    errno = ENOMEM;
    return NULL;
  }
  FILE *(*real)(char **, size_t *);
  void *found = dlsym(RTLD_NEXT, "open_memstream");
  memcpy(&real, &found, sizeof real);
  return real(text, bytes);
}

ssize_t write(int fd, const void *data, size_t bytes) {
  bool first;
  if (is_open_under(fd) && fails(&first)) {
    if (!first || (errno != ENOSPC && errno != EDQUOT) || bytes < 2) return -1;
    return syscall(SYS_write, fd, data, bytes / 2);
  }
  return syscall(SYS_write, fd, data, bytes);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset) {
  bool first;
  if (is_open_under(fd) && fails(&first)) return -1;
  return syscall(SYS_pwrite64, fd, data, bytes, offset);
}

int fsync(int fd) {
  bool first;
  if (is_open_under(fd) && fails(&first)) return -1;
  return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd) {
  bool first;
  if (is_open_under(fd) && fails(&first)) return -1;
  return (int)syscall(SYS_fdatasync, fd);
}

int rename(const char *from, const char *to) {
  bool first;
  if (is_under(to) && fails(&first)) return -1;
  return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int link(const char *from, const char *to) {
  bool first;
  if (is_under(to) && fails(&first)) return -1;
  return (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int open(const char *path, int flags, ...) {
  bool first;
  va_list arguments;
  va_start(arguments, flags);
  int mode = flags & O_CREAT ? va_arg(arguments, int) : 0;
  va_end(arguments);
  if ((flags & O_CREAT) && is_under(path) && fails(&first)) return -1;
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
