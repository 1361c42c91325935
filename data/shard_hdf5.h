/* A shard opened by HDF5. The library crashes on some damaged files, so these functions are called in child
 * processes only (shard_survey.c, shard_child.c); included by the files that share HDF5. One thread of a
 * process at a time. */
#ifndef CONVOY_DATA_SHARD_HDF5_H
#define CONVOY_DATA_SHARD_HDF5_H

#include <limits.h>

#include <hdf5.h>

#include "data/shard_read.h"

struct shard_file {
  char path[PATH_MAX];
  struct shard_info info;
  hid_t file, images, labels; /* invalid where not opened */
};

/* Opens and checks everything but the rows themselves, and goes on after a fault: fault(context, status) is
 * called for each, with the error's record set. *opened: NULL if there was one. */
void shard_file_open(const char *path, void (*fault)(void *context, enum status status), void *context,
                     struct shard_file **opened);
void shard_file_close(struct shard_file *shard); /* NULL: nothing */

/* Reads the attributes `format`, `classes`, `digest`, `mean` and `std` into shard->info; a file without them
 * is a plain one. */
enum status shard_attributes(struct shard_file *shard);

/* The names of the classes, name[info.classes]; only where info.named. */
enum status shard_class_names(struct shard_file *shard, char (*name)[DATASET_CLASS_NAME]);

/* Rows [first, first + count) as stored (N,H,W,C, or N,C,H,W where info.planar); labels widened. */
enum status shard_file_read(struct shard_file *shard, int64_t first, int64_t count, uint8_t *images,
                            int64_t *labels);

/* The innermost reason that HDF5 recorded for its last failure, in text[capacity]. */
const char *shard_reason(char *text, size_t capacity);

#endif
