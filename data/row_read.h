/* Reads and tallies rows of one shard that is known from rank 0, by several threads where it is contiguous.
 */
#ifndef CONVOY_DATA_ROW_READ_H
#define CONVOY_DATA_ROW_READ_H

#include "data/shard_tally.h"
#include "model/base/world.h"

/* Rows of a shard and where they go. */
struct row_range {
  const char *path;
  const struct shard_info *info;
  int64_t first, last;  /* rows [first, last) of the shard */
  int64_t global_first; /* number of row `first` in its split */
  int64_t limit;        /* labels are 0..limit-1 */
  uint8_t *images;      /* of row `first`; NULL: see `shared` */
  int32_t *labels;
  struct world_shared *shared; /* the images go there, at `at`; NULL, too: they are only tallied */
  size_t at;
};

/* Fills images and labels and the (cleared) tally, on up to `threads` threads (a few at most: more read no
 * faster). A label out of range is STATUS_INPUT, with its row. */
enum status row_read(const struct row_range *range, int threads, struct shard_tally *tally);

#endif
