/* OUT/lock: two jobs on one folder would write into each other's checkpoints. The kernel drops the lock with
 * the process, however it ends, so that a left-over file never blocks a new run. */
#include "app/runlog_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/durable.h"
#include "model/base/log.h"

static void lock_path(const char *out, char path[PATH_MAX]) {
  snprintf(path, PATH_MAX, "%s/lock", out);
}

static enum status held(const char *out, int fd) {
  char holder[256];
  ssize_t got = pread(fd, holder, sizeof holder - 1, 0);
  holder[got > 0 ? got : 0] = '\0';
  holder[strcspn(holder, "\n")] = '\0';
  return RAISE(STATUS_INPUT, "%s is in use by another job (%s): wait for its end, or give another --out", out,
               holder[0] ? holder : "its holder did not leave a name");
}

static bool would_block(int error) {
  return error == EWOULDBLOCK || error == EACCES;
}

enum status runlog_lock_ask(const char *out) {
  char path[PATH_MAX];
  lock_path(out, path);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return STATUS_OK;
  enum status status = STATUS_OK;
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 && would_block(errno)) status = held(out, fd);
  close(fd);
  return status;
}

/* Whether `path` still names the open file: its last holder may have removed it in between. */
static bool still_named(const char *path, int fd) {
  struct stat a, b;
  return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Leaves who holds the lock, for the message that another job gives. */
static enum status sign(const char *path, int fd) {
  char text[160], host[64] = "";
  gethostname(host, sizeof host - 1);
  int length = snprintf(text, sizeof text, "host %s, process %ld\n", host, (long)getpid());
  if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)length, 0) != length)
    return RAISE(STATUS_STORAGE, "cannot write %s: %s", path, strerror(errno));
  return STATUS_OK;
}

enum status runlog_lock_take(const char *out, int *result) {
  char path[PATH_MAX];
  lock_path(out, path);
  for (;;) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return durable_cannot_open(path, errno);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      enum status status = STATUS_OK;
      if (would_block(errno))
        status = held(out, fd);
      else
        log_warning("cannot lock %s (%s): nothing stops a second job on this folder", path, strerror(errno));
      if (status != STATUS_OK) {
        close(fd);
        return status;
      }
    } else if (!still_named(path, fd)) {
      close(fd);
      continue;
    }
    enum status status = sign(path, fd);
    if (status == STATUS_OK)
      *result = fd;
    else
      runlog_lock_release(out, fd);
    return status;
  }
}

void runlog_lock_release(const char *out, int fd) {
  if (fd < 0) return;
  char path[PATH_MAX];
  lock_path(out, path);
  unlink(path); /* while it is held: the next holder makes its own */
  close(fd);
}
