/* What shards say of themselves, read by HDF5 in a child process: a damaged file on which the library
 * crashes, hangs or takes all memory is a fault of that file like any other. After this, nothing of a file is
 * read but rows. */
#ifndef CONVOY_DATA_SHARD_SURVEY_H
#define CONVOY_DATA_SHARD_SURVEY_H

#include "data/shard_read.h"

struct shard_metadata {
  struct shard_info info;                 /* only if there is no fault */
  char (*class_name)[DATASET_CLASS_NAME]; /* owned: info.classes names, only where info.named */
  int faults;
  char *fault; /* owned: the faults' lines, one after the other, each with its '\0' */
};

/* Opens and checks everything but the rows of path[0..count): faults are in metadata[0..count), which is
 * zeroed first and freed by the caller. One child reads all; if it dies, the shard that it was at gets one of
 * its own, to see whose fault it was, and another reads the rest. A status other than OK says that the survey
 * itself failed. */
enum status shard_survey(const char *const *path, int count, struct shard_metadata *metadata);
void shard_metadata_free(struct shard_metadata *metadata, int count);

/* The first fault as an error; STATUS_OK if there is none. */
enum status shard_metadata_refuse(const struct shard_metadata *metadata);

/* STATUS_INPUT if what a child or a rank says of a shard cannot be. Whatever passes can be read without harm.
 */
enum status shard_info_check(const char *path, const struct shard_info *info);

#endif
