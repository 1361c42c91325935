/* The file of choices and what the ranks tell each other; see plan_cache.h.
 *
 * The file: one line "convoy-plans-1 DIGEST BYTES" (XXH64 of all that follows the line, in hexadecimal), one
 * line with the key, then the bytes. */
#include "app/plan_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "model/base/file.h"
#include "model/base/log.h"

enum { LARGEST = 64 << 20, LINE = 64 };

static const char format[] = "convoy-plans-1";

/* ---- the file ---- */

bool plan_cache_path(const char *option, const char *key, char path[PLAN_CACHE_PATH]) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  uint64_t name = XXH64(key, strlen(key), 0);
  int length = 0;
  if (strcmp(option, "none") == 0) return false;
  if (option[0])
    length = snprintf(path, PLAN_CACHE_PATH, "%s/%016" PRIx64 ".plans", option, name);
  else if (cache && cache[0] == '/')
    length = snprintf(path, PLAN_CACHE_PATH, "%s/convoy/%016" PRIx64 ".plans", cache, name);
  else if (home && home[0] == '/')
    length = snprintf(path, PLAN_CACHE_PATH, "%s/.cache/convoy/%016" PRIx64 ".plans", home, name);
  return length > 0 && length < PLAN_CACHE_PATH;
}

/* The whole file with a zero behind it, NULL with errno. */
static char *read_file(const char *path, size_t *count) {
  struct stat facts;
  char *text = NULL;
  int fault = 0, file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return NULL;
  if (fstat(file, &facts) != 0)
    fault = errno;
  else if (!S_ISREG(facts.st_mode) || facts.st_size > LARGEST)
    fault = EINVAL;
  else if (!(text = malloc((size_t)facts.st_size + 1)))
    fault = ENOMEM;
  *count = 0;
  if (!fault) fault = file_read(file, text, (size_t)facts.st_size, count);
  close(file);
  if (fault) {
    free(text);
    errno = fault;
    return NULL;
  }
  text[*count] = '\0';
  return text;
}

/* Where the bytes begin in a file's text, NULL with a reason. */
static const char *check(const char *text, size_t count, const char *key, const char **why) {
  uint64_t digest;
  size_t bytes, name = sizeof format - 1, length = strlen(key);
  int line = 0;
  *why = "it is no file of plans of this version";
  if (strncmp(text, format, name) != 0 ||
      sscanf(text + name, " %16" SCNx64 " %zu%n", &digest, &bytes, &line) != 2 ||
      text[name + (size_t)line] != '\n')
    return NULL;
  const char *rest = text + name + line + 1;
  size_t left = count - (size_t)(rest - text);
  *why = "it is damaged";
  if (XXH64(rest, left, 0) != digest) return NULL;
  *why = "it was written for something else";
  if (left < length + 1 || memcmp(rest, key, length) != 0 || rest[length] != '\n') return NULL;
  *why = "its length is wrong";
  return left - length - 1 == bytes ? rest + length + 1 : NULL;
}

void plan_cache_read(const char *path, const char *key, void **bytes, size_t *count) {
  const char *why = NULL, *begin = NULL;
  size_t length = 0;
  char *text = read_file(path, &length);
  *bytes = NULL;
  *count = 0;
  if (!text && (errno == ENOENT || errno == ENOTDIR)) return;
  if (text)
    begin = check(text, length, key, &why);
  else
    why = strerror(errno);
  size_t rest = begin ? length - (size_t)(begin - text) : 0;
  if (begin) *bytes = malloc(rest + 1);
  if (*bytes) {
    memcpy(*bytes, begin, rest);
    *count = rest;
    (void)utimensat(AT_FDCWD, path, NULL, 0); /* it is in use, see prune */
  } else {
    log_warning("%s is not used: %s; algorithms are timed anew", path, begin ? "out of memory" : why);
  }
  free(text);
}

/* Makes the folder that `path` lies in, and the one above. */
static void make_folder(const char *path) {
  char folder[PLAN_CACHE_PATH];
  snprintf(folder, sizeof folder, "%s", path);
  for (int up = 0; up < 2; up++) {
    char *slash = strrchr(folder, '/');
    if (!slash || slash == folder) return;
    *slash = '\0';
    if (mkdir(folder, 0700) == 0) {
      if (up == 0) return;
      make_folder(path);
      return;
    }
    if (errno != ENOENT) return; /* opening the file will tell */
  }
}

/* 0, or errno. */
static int write_file(const char *path, const char *key, const void *bytes, size_t count) {
  char temporary[PLAN_CACHE_PATH + 8], line[LINE];
  XXH64_state_t *state = XXH64_createState();
  if (!state) return ENOMEM;
  XXH64_reset(state, 0);
  XXH64_update(state, key, strlen(key));
  XXH64_update(state, "\n", 1);
  XXH64_update(state, bytes, count);
  snprintf(line, sizeof line, "%s %016" PRIx64 " %zu\n", format, XXH64_digest(state), count);
  XXH64_freeState(state);
  snprintf(temporary, sizeof temporary, "%s.XXXXXX", path); /* several hosts may write the same file */
  int file = mkostemp(temporary, O_CLOEXEC);
  if (file < 0) return errno;
  int fault = file_write(file, line, strlen(line), NULL);
  if (!fault) fault = file_write(file, key, strlen(key), NULL);
  if (!fault) fault = file_write(file, "\n", 1, NULL);
  if (!fault) fault = file_write(file, bytes, count, NULL);
  if (close(file) != 0 && !fault) fault = errno;
  if (!fault && rename(temporary, path) != 0) fault = errno;
  if (fault) unlink(temporary);
  return fault;
}

/* Whether it is what write_file calls a file, or a temporary one, which a kill may leave. */
static bool is_ours(const char *name) {
  return strspn(name, "0123456789abcdef") == 16 && strncmp(name + 16, ".plans", 6) == 0;
}

/* The folder's number of such files and, if there are any, the one whose last use is longest ago. */
static int find_oldest(DIR *folder, char oldest[NAME_MAX + 1]) {
  struct stat facts;
  time_t least = 0;
  int count = 0;
  rewinddir(folder);
  for (struct dirent *entry; (entry = readdir(folder));) {
    if (!is_ours(entry->d_name) || fstatat(dirfd(folder), entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    if (count++ > 0 && facts.st_mtime >= least) continue;
    least = facts.st_mtime;
    snprintf(oldest, NAME_MAX + 1, "%s", entry->d_name);
  }
  return count;
}

/* Deletes files of the folder that `path` lies in until PLAN_CACHE_FILES stay, as far as it may. */
static void prune(const char *path) {
  char name[PLAN_CACHE_PATH], oldest[NAME_MAX + 1];
  const char *slash = strrchr(path, '/');
  snprintf(name, sizeof name, "%.*s", slash ? (int)(slash - path) : 0, path);
  DIR *folder = opendir(name);
  if (!folder) return;
  while (find_oldest(folder, oldest) > PLAN_CACHE_FILES && unlinkat(dirfd(folder), oldest, 0) == 0) continue;
  closedir(folder);
}

void plan_cache_write(const char *path, const char *key, const void *bytes, size_t count) {
  make_folder(path);
  int fault = write_file(path, key, bytes, count);
  if (fault)
    log_warning(
        "cannot write %s: %s; the next start times its algorithms anew (--plan-cache none: say no more)",
        path, strerror(fault));
  else
    prune(path);
}

/* ---- between ranks ---- */

/* Root's bytes to all ranks' backends. */
static enum status share(const struct plan_cache *cache, struct backend *backend, void *bytes, int64_t count,
                         int root) {
  const struct world *world = cache->world;
  enum status status = STATUS_OK;
  TRY(world_broadcast(world, &count, sizeof count, root));
  if (count == 0) return STATUS_OK;
  void *copy = world->rank == root ? bytes : malloc((size_t)count);
  if (!copy) status = RAISE(STATUS_INPUT, "out of memory");
  TRY_OUT(world_agree(world, status));
  TRY_OUT(world_broadcast(world, copy, (size_t)count, root));
  if (cache->same && backend->table->choices_put(backend, copy, (size_t)count) != STATUS_OK) {
    log_warning("chosen algorithms are not used: %s", error_message());
    error_clear();
  }
out:
  if (copy != bytes) free(copy);
  return status;
}

enum status plan_cache_begin(struct plan_cache *cache, const char *option, const char *key,
                             struct backend *backend) {
  const struct world *world = backend->world;
  struct {
    char kind[BACKEND_KIND], path[PLAN_CACHE_PATH], key[sizeof cache->key];
  } root;
  void *bytes = NULL;
  size_t count = 0;
  memset(&root, 0, sizeof root);
  *cache = (struct plan_cache){.world = world};
  if (world->rank == 0 && backend->kind[0]) {
    memcpy(root.kind, backend->kind, sizeof root.kind);
    snprintf(root.key, sizeof root.key, "%s; %s", backend->kind, key);
    if (!plan_cache_path(option, root.key, root.path)) root.path[0] = '\0';
    if (root.path[0]) plan_cache_read(root.path, root.key, &bytes, &count);
  }
  enum status status;
  TRY_OUT(world_broadcast(world, &root, sizeof root, 0));
  memcpy(cache->path, root.path, sizeof cache->path);
  memcpy(cache->key, root.key, sizeof cache->key);
  if (!cache->key[0]) goto out;
  cache->same = strcmp(backend->kind, root.kind) == 0;
  int64_t length = (int64_t)count;
  TRY_OUT(world_broadcast(world, &length, sizeof length, 0));
  cache->known = length > 0;
  if (cache->known || world->rank > 0) TRY_OUT(share(cache, backend, bytes, length, 0));
out:
  free(bytes);
  return status;
}

/* What this rank's backend chose; after a failure, which is kept for later, nothing. */
static void take(struct backend *backend, bool fresh, void **bytes, size_t *count, enum status *status) {
  enum status taken = backend->table->choices_get(backend, fresh, bytes, count);
  if (taken == STATUS_OK) return;
  *status = taken;
  *bytes = NULL;
  *count = 0;
}

/* Rank 0 tells those that wait in plan_cache_begin. */
static enum status tell(struct plan_cache *cache, struct backend *backend, enum status *status) {
  void *bytes;
  size_t count;
  if (cache->known || cache->world->rank > 0) return STATUS_OK;
  take(backend, true, &bytes, &count, status);
  enum status told = share(cache, backend, bytes, (int64_t)count, 0);
  free(bytes);
  return told;
}

/* Each rank's to all others; *any: there were some. */
static enum status gather(struct plan_cache *cache, struct backend *backend, enum status *status, bool *any) {
  const struct world *world = cache->world;
  void *bytes = NULL;
  size_t count = 0;
  int64_t mine = 0, *all = calloc((size_t)world->size, sizeof *all);
  enum status shared = world_agree(world, all ? STATUS_OK : RAISE(STATUS_INPUT, "out of memory"));
  if (shared == STATUS_OK && cache->same) {
    take(backend, true, &bytes, &count, status);
    mine = (int64_t)count;
  }
  if (shared == STATUS_OK) shared = world_allgather(world, &mine, sizeof mine, all);
  for (int r = 0; r < world->size && shared == STATUS_OK; r++) {
    if (all[r] == 0) continue;
    *any = true;
    shared = share(cache, backend, bytes, mine, r);
  }
  free(bytes);
  free(all);
  return shared;
}

static enum status finish(struct plan_cache *cache, struct backend *backend) {
  enum status status = STATUS_OK; /* of what goes wrong on this rank alone */
  bool any = false;
  void *bytes = NULL;
  size_t count = 0;
  TRY(tell(cache, backend, &status));
  TRY(gather(cache, backend, &status, &any));
  if (status == STATUS_OK && any && cache->path[0] && cache->same && cache->world->local_rank == 0) {
    take(backend, false, &bytes, &count, &status);
    if (status == STATUS_OK) plan_cache_write(cache->path, cache->key, bytes, count);
    free(bytes);
  }
  return world_agree(cache->world, status);
}

enum status plan_cache_end(struct plan_cache *cache, struct backend *backend, enum status made) {
  struct error_record record;
  if (!cache->key[0]) return made;
  error_save(&record);
  enum status status = finish(cache, backend);
  if (made == STATUS_OK) return status;
  error_restore(&record);
  return made;
}
