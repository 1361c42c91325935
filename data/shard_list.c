/* The shards of a data directory by name; see shard_list.h. */
#include "data/shard_list.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/folder.h"

const char *split_name(int split) {
  return split == SPLIT_TRAIN ? "train" : "test";
}

/* The split that a file name belongs to, -1 for none. */
static int split_of(const char *name) {
  size_t length = strlen(name);
  if (length < 4 || length >= SHARD_NAME || strcmp(name + length - 3, ".h5") != 0) return -1;
  if (strncmp(name, "train-", 6) == 0) return SPLIT_TRAIN;
  if (strncmp(name, "test-", 5) == 0) return SPLIT_TEST;
  return -1;
}

static int compare(const void *a, const void *b) {
  return strcmp(a, b);
}

static bool append(struct shard_list *list, int split, const char *name) {
  int count = list->count[split];
  if ((count & (count - 1)) == 0) { /* full at each power of two */
    size_t capacity = count ? 2 * (size_t)count : 1;
    void *larger = realloc(list->name[split], capacity * SHARD_NAME);
    if (!larger) return false;
    list->name[split] = larger;
  }
  snprintf(list->name[split][count], SHARD_NAME, "%s", name);
  list->count[split]++;
  return true;
}

enum status shard_list_read(const char *directory, struct shard_list *list) {
  *list = (struct shard_list){.count = {0}};
  DIR *folder = opendir(directory);
  if (!folder)
    return RAISE(STATUS_INPUT,
                 "data directory %s cannot be read: %s; make one with `convoy data import` or `synth`",
                 directory, strerror(errno));
  const char *name;
  int error;
  while ((error = folder_next(folder, &name)) == 0 && name) {
    int split = split_of(name);
    if (split < 0 || append(list, split, name)) continue;
    error = ENOMEM;
    break;
  }
  closedir(folder);
  if (error) {
    shard_list_free(list);
    return RAISE(STATUS_INPUT, "data directory %s cannot be read: %s", directory, strerror(error));
  }
  for (int split = 0; split < SPLIT_COUNT; split++)
    if (list->count[split]) qsort(list->name[split], (size_t)list->count[split], SHARD_NAME, compare);
  return STATUS_OK;
}

void shard_list_free(struct shard_list *list) {
  for (int split = 0; split < SPLIT_COUNT; split++) free(list->name[split]);
  *list = (struct shard_list){.count = {0}};
}

/* The number and total of a name of the form train-00003-of-00005.h5; false for another name. */
static bool numbered(const char *name, int split, int *number, int *total) {
  const char *rest = name + strlen(split_name(split));
  int end = 0;
  return sscanf(rest, "-%5d-of-%5d.h5%n", number, total, &end) == 2 && end > 0 && rest[end] == '\0';
}

enum status shard_list_complete(const char *directory, const struct shard_list *list, int split) {
  const char *prefix = split_name(split);
  int count = list->count[split], expected = 0, number, total;
  for (int i = 0; i < count; i++) {
    const char *name = list->name[split][i];
    if (!numbered(name, split, &number, &total)) continue;
    if (total < count)
      return RAISE(STATUS_INPUT, "%s/%s: one of %d shards, but %d %s shards are there; keep one set only",
                   directory, name, total, count, prefix);
    if (number != expected || (i == count - 1 && total > count))
      return RAISE(STATUS_INPUT, "%s: %s-%05d-of-%05d.h5 is missing (%d of %d shards are there)", directory,
                   prefix, number != expected ? expected : count, total, count, total);
    expected++;
  }
  return STATUS_OK;
}

char *shard_list_path(const char *directory, const char *name) {
  size_t bytes = strlen(directory) + strlen(name) + 2;
  char *path = malloc(bytes);
  if (path) snprintf(path, bytes, "%s/%s", directory, name);
  return path;
}

enum status shard_list_paths(const char *directory, const struct shard_list *list, char **path) {
  for (int split = 0, at = 0; split < SPLIT_COUNT; split++)
    for (int i = 0; i < list->count[split]; i++, at++) {
      path[at] = shard_list_path(directory, list->name[split][i]);
      if (!path[at]) return RAISE(STATUS_INPUT, "no memory to open %s", list->name[split][i]);
    }
  return STATUS_OK;
}

void shard_list_free_paths(char **path, int total) {
  for (int i = 0; path && i < total; i++) free(path[i]);
  free(path);
}

bool shard_list_any(const char *directory) {
  struct shard_list list;
  if (shard_list_read(directory, &list) != STATUS_OK) {
    error_clear();
    return false;
  }
  bool some = list.count[SPLIT_TRAIN] + list.count[SPLIT_TEST] > 0;
  shard_list_free(&list);
  return some;
}
