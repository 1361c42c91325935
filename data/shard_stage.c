/* Making, clearing and finding the folders that new sets are written to; see shard_stage.h. */
#include "data/shard_stage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/shard_list.h"
#include "model/base/folder.h"
#include "model/base/log.h"

static const char infix[] = ".convoy-", aside_end[] = ".old";
enum { RANDOM_LETTERS = 6 /* mkdtemp(3) */ };

char *shard_stage_join(const char *text, const char *end) {
  size_t bytes = strlen(text) + strlen(end) + 1;
  char *joined = malloc(bytes);
  if (joined) snprintf(joined, bytes, "%s%s", text, end);
  return joined;
}

bool shard_stage_is_shard(const char *name) {
  size_t length = strlen(name);
  bool known = strncmp(name, "train-", 6) == 0 || strncmp(name, "test-", 5) == 0;
  return (known && length > 3 && strcmp(name + length - 3, ".h5") == 0) ||
         (length > 7 && strcmp(name + length - 7, ".h5.tmp") == 0);
}

bool shard_stage_is_aside(const char *name) {
  char shard[SHARD_NAME];
  size_t length = strlen(name), end = sizeof aside_end - 1;
  if (length <= end || length >= sizeof shard || strcmp(name + length - end, aside_end) != 0) return false;
  snprintf(shard, sizeof shard, "%.*s", (int)(length - end), name);
  return shard_stage_is_shard(shard);
}

/* ---- making ---- */

/* 0, or the errno of what failed: EWOULDBLOCK if another process has the lock. */
static int lock_folder(const char *folder, int *lock) {
  *lock = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (*lock < 0) return errno;
  if (flock(*lock, LOCK_EX | LOCK_NB) == 0) return 0;
  int error = errno;
  close(*lock);
  *lock = -1;
  return error;
}

enum status shard_stage_lock(const char *folder, int *lock) {
  if (lock_folder(folder, lock) != EWOULDBLOCK) return STATUS_OK;
  return RAISE(STATUS_INPUT, "%s is being written by another convoy data; wait for its end", folder);
}

char *shard_stage_create(const char *directory, int *lock) {
  struct stat own, above;
  char end[32];
  snprintf(end, sizeof end, "%sXXXXXX", infix);
  char *parent = shard_stage_join(directory, "/.."), *stage = shard_stage_join(directory, end);
  bool good = parent && stage && stat(directory, &own) == 0 && stat(parent, &above) == 0 &&
              own.st_dev == above.st_dev && mkdtemp(stage);
  free(parent);
  if (good) {
    (void)lock_folder(stage, lock); /* nobody else knows it yet */
    return stage;
  }
  free(stage);
  return NULL;
}

/* ---- clearing ---- */

/* Moves a file back to where it came from, unless there is a new one of that name. */
static bool move_back(const char *from, const char *to) {
  if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  if (access(to, F_OK) == 0) errno = EEXIST;
  return access(to, F_OK) != 0 && rename(from, to) == 0;
}

void shard_stage_clear(const char *stage, const char *directory) {
  DIR *folder = opendir(stage);
  if (!folder) return;
  const char *name;
  int failed;
  while ((failed = folder_next(folder, &name)) == 0 && name) {
    bool shard = shard_stage_is_shard(name);
    char *from = shard_list_path(stage, name), *to = shard_list_path(directory, name);
    bool good = from && to && (shard ? unlink(from) == 0 : move_back(from, to));
    if (!good)
      log_warning("%s cannot be %s: %s", from ? from : name, shard ? "removed" : "moved back",
                  strerror(errno));
    free(from);
    free(to);
  }
  closedir(folder);
  if (failed) log_warning("%s cannot be read: %s", stage, strerror(failed));
  if (rmdir(stage) != 0) log_warning("%s is left: %s", stage, strerror(errno));
}

/* ---- what was left ---- */

/* Whether an entry beside the directory called `base` is a stage, or an old set that was moved aside. */
static bool is_left(const char *name, const char *base, bool aside) {
  size_t length = strlen(base), begin = length + sizeof infix - 1, end = begin + RANDOM_LETTERS;
  return strlen(name) >= end && strncmp(name, base, length) == 0 &&
         strncmp(name + length, infix, sizeof infix - 1) == 0 &&
         strspn(name + begin, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") ==
             RANDOM_LETTERS &&
         strcmp(name + end, aside ? aside_end : "") == 0;
}

static void put_in_order(const char *left, const char *directory, bool aside) {
  int lock, error = lock_folder(left, &lock);
  if (error == EWOULDBLOCK) return; /* its maker lives */
  if (error == 0 && aside && access(directory, F_OK) != 0 && rename(left, directory) == 0)
    log_warning("%s is back: an import that was killed had moved it to %s", directory, left);
  else if (error == 0 && !aside && shard_list_any(directory)) {
    shard_stage_clear(left, directory);
    log_info("removed: %s, which an import that was killed had left", left);
  } else
    log_warning("%s was left by an import that was killed%s; look at it and remove it", left,
                error ? ", or is in use" : "");
  if (lock >= 0) close(lock);
}

enum status shard_stage_recover(const char *directory) {
  char *path = realpath(directory, NULL), *parent = NULL;
  enum status status = STATUS_OK;
  DIR *folder = NULL;
  if (!path) path = strdup(directory); /* missing: perhaps moved aside */
  if (!path) TRY_OUT(RAISE(STATUS_INPUT, "no memory for a path"));
  for (size_t length = strlen(path); length > 1 && path[length - 1] == '/';) path[--length] = '\0';
  char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
  if (!base[0]) goto out; /* the root */
  parent = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
  if (!parent) TRY_OUT(RAISE(STATUS_INPUT, "no memory for a path"));
  folder = opendir(parent);
  for (int aside = 1; folder && aside >= 0; aside--) { /* first what may come back */
    const char *name;
    int failed;
    rewinddir(folder);
    while ((failed = folder_next(folder, &name)) == 0 && name) {
      char *left = is_left(name, base, aside) ? shard_list_path(parent, name) : NULL;
      if (left) put_in_order(left, path, aside);
      free(left);
    }
    if (failed) log_warning("%s cannot be read: %s", parent, strerror(failed));
  }
out:
  if (folder) closedir(folder);
  free(parent);
  free(path);
  return status;
}
