/* Which shards a data directory holds: train-*.h5 and test-*.h5 in name order. Plain file names, nothing is
 * opened. */
#ifndef CONVOY_DATA_SHARD_LIST_H
#define CONVOY_DATA_SHARD_LIST_H

#include <stdbool.h>

#include "model/base/error.h"

enum { SHARD_NAME = 256 };

/* The splits in the order in which they stand everywhere. */
enum { SPLIT_TRAIN, SPLIT_TEST, SPLIT_COUNT };

struct shard_list {
  int count[SPLIT_COUNT];
  char (*name[SPLIT_COUNT])[SHARD_NAME]; /* owned: file names in the directory, sorted */
};

const char *split_name(int split); /* "train", "test" */

/* STATUS_INPUT if the directory cannot be read. An empty list is no fault here. */
enum status shard_list_read(const char *directory, struct shard_list *list);
void shard_list_free(struct shard_list *list);

/* Whether a path is a directory that holds shards. */
bool shard_list_any(const char *directory);

/* STATUS_INPUT if names of the form train-00003-of-00005.h5 disagree on the total or leave one out. */
enum status shard_list_complete(const char *directory, const struct shard_list *list, int split);

/* Joins "directory/name" into a new string that the caller frees; NULL without memory. */
char *shard_list_path(const char *directory, const char *name);

/* The paths of all shards, the training shards first, into path[0..total), which is zeroed.
 * shard_list_free_paths frees the strings and the array; NULL: nothing. */
enum status shard_list_paths(const char *directory, const struct shard_list *list, char **path);
void shard_list_free_paths(char **path, int total);

#endif
