/* What may be written; see output.h. */
#include "app/output.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "app/durable.h"
#include "app/input.h"
#include "app/runlog.h"

enum { LOOK_BYTES = 512 };

const struct output_kind output_svg = {"picture by gnuplot", "<title>Gnuplot</title>"},
                         output_png = {"PNG picture", "\x89PNG\r\n\x1a\n"};

static bool ends_with(const char *name, const char *end) {
  size_t a = strlen(name), b = strlen(end);
  return a > b && strcmp(name + a - b, end) == 0;
}

/* The path's folder ("." if it names none) and its last name, without slashes behind it. */
static void split(const char *path, char folder[PATH_MAX], char name[NAME_MAX + 1]) {
  snprintf(folder, PATH_MAX, "%s", path);
  for (size_t length = strlen(folder); length > 1 && folder[length - 1] == '/';) folder[--length] = '\0';
  char *slash = strrchr(folder, '/');
  snprintf(name, NAME_MAX + 1, "%s", slash ? slash + 1 : folder);
  if (!slash)
    snprintf(folder, PATH_MAX, ".");
  else
    slash[slash == folder ? 1 : 0] = '\0';
}

enum status output_check_name(const char *path) {
  char folder[PATH_MAX], name[NAME_MAX + 1];
  split(path, folder, name);
  if (!runlog_owns(name) && !ends_with(name, ".h5") && !ends_with(name, ".tmp")) return STATUS_OK;
  return RAISE(STATUS_INPUT, "%s: a run or a data set calls its own files '%s'; give another name", path,
               name);
}

static enum status check_content(const char *path, const struct output_kind *kind) {
  char reason[INPUT_REASON], head[LOOK_BYTES];
  int64_t bytes;
  FILE *file = input_open(path, &bytes, reason);
  if (!file && errno == ENOENT) return STATUS_OK;
  if (!file) return RAISE(STATUS_INPUT, "%s cannot be replaced: %s; give another name", path, reason);
  size_t count = fread(head, 1, sizeof head, file);
  bool readable = ferror(file) == 0;
  fclose(file);
  if (readable && (bytes == 0 || memmem(head, count, kind->mark, strlen(kind->mark)))) return STATUS_OK;
  return RAISE(STATUS_INPUT,
               "%s is there and is no %s, which would replace it; give another name or remove it", path,
               kind->name);
}

enum status output_check(const char *path, const struct output_kind *kind) {
  char temporary[PATH_MAX];
  struct stat info;
  TRY(output_check_name(path));
  TRY(durable_check_target(path));
  TRY(check_content(path, kind));
  if (snprintf(temporary, sizeof temporary, "%s.tmp", path) >= (int)sizeof temporary)
    return RAISE(STATUS_INPUT, "%.200s…: the path is too long", path);
  if (lstat(temporary, &info) == 0 && S_ISLNK(info.st_mode))
    return RAISE(STATUS_INPUT, "%s, which %s is written under first, is a link; remove it", temporary, path);
  return check_content(temporary, kind);
}

bool output_same(const char *a, const char *b) {
  char folder_a[PATH_MAX], folder_b[PATH_MAX], name_a[NAME_MAX + 1], name_b[NAME_MAX + 1];
  struct stat at_a, at_b;
  split(a, folder_a, name_a);
  split(b, folder_b, name_b);
  if (strcmp(name_a, name_b) != 0) return false;
  if (stat(folder_a, &at_a) != 0 || stat(folder_b, &at_b) != 0) return strcmp(folder_a, folder_b) == 0;
  return at_a.st_dev == at_b.st_dev && at_a.st_ino == at_b.st_ino;
}

bool output_inside(const char *path, const char *folder) {
  char *inner = realpath(path, NULL), *outer = realpath(folder, NULL);
  size_t length = outer ? strlen(outer) : 0;
  bool inside =
      inner && outer && strncmp(inner, outer, length) == 0 && (inner[length] == '/' || inner[length] == '\0');
  free(inner);
  free(outer);
  return inside;
}
