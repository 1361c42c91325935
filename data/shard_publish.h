/* How a finished set of shards gets its names, or takes the place of an older one: at each moment, also of a
 * crash, the folder holds the one or the other set, whole. */
#ifndef CONVOY_DATA_SHARD_PUBLISH_H
#define CONVOY_DATA_SHARD_PUBLISH_H

#include "data/shard_list.h"

struct shard_publish;

/* Creates the directory where needed and chooses the folder that the new files are to be written to, each as
 * NAME.tmp: beside the directory where it holds shards, to be exchanged with it in one call; else, or where
 * nothing can be written beside it, inside. */
enum status shard_publish_begin(const char *directory, struct shard_publish **publish);
const char *shard_publish_folder(const struct shard_publish *publish);

/* The files name[0..count) are complete: they become the set, and older shards are removed; other files of
 * the directory stay. A failure (STATUS_STORAGE) leaves the old set. Beside: the folders are exchanged at
 * once (renameat2), or, where the file system cannot, by two renames. Inside: the old shards are first
 * renamed to NAME.old, and back if that fails; only a crash just then leaves them so. */
enum status shard_publish_commit(struct shard_publish *publish, char (*name)[SHARD_NAME], int count);

/* Removes what was not committed, and a directory that was created for it. NULL: nothing. */
void shard_publish_end(struct shard_publish *publish);

#endif
