/* Reads all rows of an open shard in pieces, as the data set does; for the fuzz targets. */
#ifndef CONVOY_TESTS_FUZZ_ROWS_H
#define CONVOY_TESTS_FUZZ_ROWS_H

#include <stdlib.h>
#include <string.h>

#include "data/shard_read.h"
#include "data/shard_tally.h"

/* A refusal is one line. */
static void one_line(void) {
  if (error_message()[0] == '\0' || strchr(error_message(), '\n')) abort();
  error_clear();
}

static void read_rows(struct shard *shard) {
  const struct shard_info *info = shard_describe(shard);
  size_t row_bytes = (size_t)info->height * (size_t)info->width * (size_t)info->channels;
  struct shard_tally tally;
  shard_tally_clear(&tally);
  for (int64_t begin = 0, end; begin < info->count; begin = end) {
    end = shard_piece_end(info, begin, info->count);
    uint8_t *images = malloc((size_t)(end - begin) * row_bytes);
    int32_t *labels = malloc((size_t)(end - begin) * sizeof *labels);
    enum status status = STATUS_OK;
    if (images && labels) status = shard_tally_read(shard, begin, end, begin, 10, images, labels, &tally);
    if (status != STATUS_OK) one_line();
    bool stop = status != STATUS_OK || !images || !labels;
    free(images);
    free(labels);
    if (stop) return;
  }
  if (shard_tally_labels(shard_path(shard), &tally, 10) != STATUS_OK) one_line();
  if (shard_tally_digest(shard_path(shard), info, tally.shard_digest) != STATUS_OK) one_line();
}

#endif
