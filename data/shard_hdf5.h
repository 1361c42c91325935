/* An open shard as its reader sees it; included only by shard_read.c and shard_attribute.c, which share HDF5.
 */
#ifndef CONVOY_DATA_SHARD_HDF5_H
#define CONVOY_DATA_SHARD_HDF5_H

#include <limits.h>

#include <hdf5.h>

#include "data/shard_read.h"

struct shard {
  char path[PATH_MAX];
  struct shard_info info;
  hid_t file, images, labels; /* all invalid for one opened by shard_open_known */
  struct shard_raw *raw;      /* owned: info.contiguous; rows are read through it */
  uint8_t *scratch;           /* owned: a piece of N,C,H,W rows before they are transposed */
  size_t scratch_bytes;
};

/* Reads the attributes `format`, `classes`, `digest`, `mean` and `std` into shard->info; a file without them
 * is a plain one.
 */
enum status shard_attributes(struct shard *shard);

#endif
