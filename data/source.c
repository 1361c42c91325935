/* Members of a folder; see source.h. */
#include "data/source.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/base/file.h"

static enum status read_file(const char *path, const char *name, uint8_t **data, size_t *bytes) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  struct stat info;
  if (file < 0 || fstat(file, &info) != 0) {
    int error = errno;
    if (file >= 0) close(file);
    return RAISE(STATUS_INPUT, "%s cannot be read: %s", name, strerror(error));
  }
  enum status status = STATUS_OK;
  uint8_t *buffer = NULL;
  size_t size = (size_t)info.st_size, used;
  if (info.st_size > SOURCE_MAX_BYTES)
    TRY_OUT(RAISE(STATUS_INPUT, "%s has %lld bytes, expected at most %d", name, (long long)info.st_size,
                  SOURCE_MAX_BYTES));
  buffer = malloc(size ? size : 1);
  if (!buffer) TRY_OUT(RAISE(STATUS_INPUT, "%s: no memory for its %zu bytes", name, size));
  int failed = file_read(file, buffer, size, &used);
  if (failed || used != size)
    TRY_OUT(
        RAISE(STATUS_INPUT, "%s cannot be read: %s", name, failed ? strerror(failed) : "it became shorter"));
  *data = buffer;
  *bytes = size;
  buffer = NULL;
out:
  free(buffer);
  close(file);
  return status;
}

static enum source_kind kind_of(const FTSENT *entry) {
  if (entry->fts_info == FTS_D) return SOURCE_FOLDER;
  if (entry->fts_info == FTS_F) return SOURCE_FILE;
  return entry->fts_info == FTS_SLNONE ? SOURCE_LINK : SOURCE_SPECIAL;
}

static enum status visit(const FTSENT *entry, const char *name, const struct source_visitor *visitor) {
  if (entry->fts_info == FTS_DP || name[0] == '\0') return STATUS_OK;
  if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_NS || entry->fts_info == FTS_ERR)
    return RAISE(STATUS_INPUT, "%s cannot be read: %s", name, strerror(entry->fts_errno));
  if (entry->fts_info == FTS_DC) return RAISE(STATUS_INPUT, "%s is a link to a folder that it lies in", name);
  enum source_kind kind = kind_of(entry);
  bool wanted = false;
  TRY(visitor->member(visitor->context, name, kind, &wanted));
  if (!wanted || kind != SOURCE_FILE) return STATUS_OK;
  uint8_t *data;
  size_t bytes;
  TRY(read_file(entry->fts_accpath, name, &data, &bytes));
  return visitor->data(visitor->context, name, data, bytes);
}

static enum status walk_folder(const char *path, const struct source_visitor *visitor) {
  char *root = strdup(path);
  if (!root) return RAISE(STATUS_INPUT, "no memory for a path");
  size_t length = strlen(root);
  while (length > 1 && root[length - 1] == '/') root[--length] = '\0';
  char *roots[2] = {root, NULL};
  enum status status = STATUS_OK;
  FTS *walk = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, NULL);
  if (!walk) TRY_OUT(RAISE(STATUS_INPUT, "folder %s cannot be read: %s", path, strerror(errno)));
  for (FTSENT *entry; errno = 0, (entry = fts_read(walk)) != NULL;) {
    const char *name = entry->fts_path + length;
    while (*name == '/') name++;
    TRY_OUT(visit(entry, name, visitor));
  }
  if (errno != 0) TRY_OUT(RAISE(STATUS_INPUT, "folder %s cannot be read: %s", path, strerror(errno)));
out:
  if (walk) fts_close(walk);
  free(root);
  return status;
}

enum status source_walk(const char *path, const struct source_visitor *visitor) {
  struct stat info;
  if (stat(path, &info) != 0) return RAISE(STATUS_INPUT, "%s cannot be read: %s", path, strerror(errno));
  if (S_ISDIR(info.st_mode)) return walk_folder(path, visitor);
  return source_archive(path, visitor);
}
