/* The folder beside a data directory, DIRECTORY.convoy-XXXXXX, in which a set is written that takes the
 * directory's place. It is locked while its maker lives, so that what a killed one left is known as such. */
#ifndef CONVOY_DATA_SHARD_STAGE_H
#define CONVOY_DATA_SHARD_STAGE_H

#include <stdbool.h>

#include "model/base/error.h"

/* Locks a folder for as long as this process lives or until *lock is closed; -1 where the file system has no
 * locks. STATUS_INPUT: another process has it. */
enum status shard_stage_lock(const char *folder, int *lock);

/* Makes and locks one, on the directory's file system; NULL: there can be none. malloc. */
char *shard_stage_create(const char *directory, int *lock);

/* Empties and removes a stage of which nothing is needed any more: shards are deleted, other files go to the
 * directory, where they came from. What fails is a warning. */
void shard_stage_clear(const char *stage, const char *directory);

/* Puts in order what makers that were killed left beside the directory: the old set comes back where it had
 * been moved aside and the directory is missing; stages are cleared where the directory has a set. Anything
 * else, and what may be in use, is told and left. */
enum status shard_stage_recover(const char *directory);

/* Whether a file's name is that of a shard or of one that is being written; of one that was renamed to
 * NAME.old. */
bool shard_stage_is_shard(const char *name);
bool shard_stage_is_aside(const char *name);

/* A text with an ending, malloc; NULL: no memory. */
char *shard_stage_join(const char *text, const char *end);

#endif
