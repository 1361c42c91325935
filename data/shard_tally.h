/* What is learnt of rows while they are read: digest, sums of pixels, range of labels. Rows may be read in
 * any pieces and by any ranks: tallies add up. */
#ifndef CONVOY_DATA_SHARD_TALLY_H
#define CONVOY_DATA_SHARD_TALLY_H

#include <stddef.h>
#include <stdint.h>

#include "data/shard_read.h"

struct shard_tally {
  uint64_t shard_digest;      /* rows numbered within their shard */
  uint64_t global_digest;     /* rows numbered within their split */
  int64_t sum[4], square[4];  /* of the pixels 0..255, per channel: exact */
  int64_t label_max;          /* -1: no row yet */
  int64_t bad_count;          /* labels outside 0..limit-1 */
  int64_t bad_row, bad_label; /* the first of them */
};

void shard_tally_clear(struct shard_tally *tally);
/* `later` is of later rows of the shard. */
void shard_tally_add(struct shard_tally *tally, const struct shard_tally *later);

/* A row's digest: XXH3-64 of the image's bytes in H,W,C order with the label as seed. */
uint64_t shard_row_digest(const uint8_t *image, size_t bytes, int64_t label);

/* A row's term in a digest over rows: XXH3-64 of its digest and its number (two little-endian 64-bit words).
 * The digest of a shard or split is the sum of its rows' terms modulo 2^64, so any order and split of the
 * work gives it. */
uint64_t shard_digest_term(uint64_t row_digest, int64_t row);

/* Adds one image's pixels to sum and square only. */
void shard_tally_pixels(const uint8_t *image, size_t bytes, int channels, struct shard_tally *tally);

/* Mean and standard deviation of each channel over all `pixels` pixels, scaled to 0..1, from the exact sums.
 */
void shard_tally_moments(const int64_t sum[4], const int64_t square[4], int channels, double pixels,
                         double mean[4], double std[4]);

/* Reads rows [first, last) of the shard into images and labels (of row `first`), and adds them to the tally.
 * global_first is the number of row `first` in its split; labels outside 0..limit-1 are counted, not refused.
 */
enum status shard_tally_read(struct shard *shard, int64_t first, int64_t last, int64_t global_first,
                             int64_t limit, uint8_t *images, int32_t *labels, struct shard_tally *tally);

/* STATUS_INPUT with the row and label if the tally found a label outside 0..limit-1. */
enum status shard_tally_labels(const char *path, const struct shard_tally *tally, int64_t limit);

/* STATUS_INPUT if the digest over all rows is not the one the shard gives (where it gives one). */
enum status shard_tally_digest(const char *path, const struct shard_info *info, uint64_t found);

#endif
