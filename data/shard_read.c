/* Reading the rows of one shard; see shard_read.h. */
#include "data/shard_read.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/shard_child.h"
#include "data/shard_raw.h"
#include "data/shard_survey.h"

enum { PIECE_BYTES = 1 << 20 };

struct shard {
  char path[PATH_MAX];
  struct shard_info info;
  struct shard_raw *raw;     /* owned: info.contiguous */
  struct shard_child *child; /* owned: else */
  uint8_t *scratch;          /* owned: a piece of N,C,H,W rows before they are transposed */
  size_t scratch_bytes;
};

enum status shard_open_known(const char *path, const struct shard_info *info, struct shard **opened) {
  struct shard *shard = calloc(1, sizeof *shard);
  if (!shard) return RAISE(STATUS_INPUT, "no memory to open %s", path);
  snprintf(shard->path, sizeof shard->path, "%s", path);
  shard->info = *info;
  enum status status = STATUS_OK;
  TRY_OUT(shard_info_check(path, info));
  TRY_OUT(info->contiguous ? shard_raw_open(path, info, &shard->raw)
                           : shard_child_open(shard->path, info, &shard->child));
  *opened = shard;
  return STATUS_OK;
out:
  shard_close(shard);
  return status;
}

enum status shard_open(const char *path, struct shard **opened) {
  struct shard_metadata metadata;
  enum status status = shard_survey(&path, 1, &metadata);
  if (status == STATUS_OK) status = shard_metadata_refuse(&metadata);
  if (status == STATUS_OK) status = shard_open_known(path, &metadata.info, opened);
  shard_metadata_free(&metadata, 1);
  return status;
}

void shard_close(struct shard *shard) {
  if (!shard) return;
  shard_raw_close(shard->raw);
  shard_child_close(shard->child);
  free(shard->scratch);
  free(shard);
}

const struct shard_info *shard_describe(const struct shard *shard) {
  return &shard->info;
}
const char *shard_path(const struct shard *shard) {
  return shard->path;
}

int64_t shard_piece_end(const struct shard_info *info, int64_t first, int64_t last) {
  int64_t chunk = info->chunk_rows > 0 ? info->chunk_rows : 1;
  int64_t rows = PIECE_BYTES / ((int64_t)info->height * info->width * info->channels);
  if (chunk >= last) return last;
  int64_t end = (first + (rows > 1 ? rows : 1) + chunk - 1) / chunk * chunk;
  return end < last ? end : last;
}

void shard_interleave(const struct shard_info *info, int64_t count, const uint8_t *planar, uint8_t *images) {
  size_t pixels = (size_t)info->height * (size_t)info->width, channels = (size_t)info->channels;
  for (int64_t n = 0; n < count; n++, planar += pixels * channels, images += pixels * channels)
    for (size_t p = 0; p < pixels; p++)
      for (size_t c = 0; c < channels; c++) images[p * channels + c] = planar[c * pixels + p];
}

static enum status read_stored(struct shard *shard, int64_t first, int64_t count, uint8_t *images,
                               int64_t *labels) {
  if (!shard->raw) return shard_child_read(shard->child, first, count, images, labels);
  TRY(shard_raw_labels(shard->raw, first, count, labels));
  return shard_raw_images(shard->raw, first, count, images);
}

enum status shard_read(struct shard *shard, int64_t first, int64_t count, uint8_t *images, int64_t *labels) {
  const struct shard_info *info = &shard->info;
  if (count == 0) return STATUS_OK;
  if (!info->planar) return read_stored(shard, first, count, images, labels);
  size_t bytes = (size_t)count * (size_t)info->height * (size_t)info->width * (size_t)info->channels;
  if (bytes > shard->scratch_bytes) {
    free(shard->scratch);
    shard->scratch_bytes = 0;
    shard->scratch = malloc(bytes);
    if (!shard->scratch) return RAISE(STATUS_INPUT, "no memory to read %s", shard->path);
    shard->scratch_bytes = bytes;
  }
  TRY(read_stored(shard, first, count, shard->scratch, labels));
  shard_interleave(info, count, shard->scratch, images);
  return STATUS_OK;
}
