/* Digest, pixel sums and label range of rows; see shard_tally.h. */
#include "data/shard_tally.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

enum {
  LANES = 48
}; /* a multiple of every channel count 1..4: byte j of a block belongs to channel j % channels */

void shard_tally_clear(struct shard_tally *tally) {
  *tally = (struct shard_tally){.label_max = -1, .bad_row = -1};
}

void shard_tally_add(struct shard_tally *tally, const struct shard_tally *later) {
  tally->shard_digest += later->shard_digest;
  tally->global_digest += later->global_digest;
  for (int c = 0; c < 4; c++) {
    tally->sum[c] += later->sum[c];
    tally->square[c] += later->square[c];
  }
  if (later->label_max > tally->label_max) tally->label_max = later->label_max;
  if (tally->bad_count == 0) {
    tally->bad_row = later->bad_row;
    tally->bad_label = later->bad_label;
  }
  tally->bad_count += later->bad_count;
}

uint64_t shard_row_digest(const uint8_t *image, size_t bytes, int64_t label) {
  return XXH3_64bits_withSeed(image, bytes, (uint64_t)label);
}

uint64_t shard_digest_term(uint64_t row_digest, int64_t row) {
  uint8_t pair[16];
  for (int i = 0; i < 8; i++) {
    pair[i] = (uint8_t)(row_digest >> (8 * i));
    pair[8 + i] = (uint8_t)((uint64_t)row >> (8 * i));
  }
  return XXH3_64bits(pair, sizeof pair);
}

/* Compiled for each instruction set; the program picks at its start (sanitizers run before it could). */
#if defined(__x86_64__) && !defined(CONVOY_SANITIZE)
#define CLONES __attribute__((target_clones("avx2", "default")))
#else
#define CLONES
#endif

/* Within a run, no 16-bit sum of pixels (255 * 256 < 2^16) and no 32-bit sum of squares overflows; a square
 * is itself 16 bits (255 * 255). Narrow numbers, so that one instruction takes many. */
CLONES void shard_tally_pixels(const uint8_t *image, size_t bytes, int channels, struct shard_tally *tally) {
  const size_t run = (size_t)LANES << 8;
  for (size_t begin = 0; begin < bytes; begin += run) {
    size_t end = bytes - begin < run ? bytes : begin + run, at = begin;
    uint16_t sum[LANES] = {0};
    uint32_t square[LANES] = {0};
    for (; at + LANES <= end; at += LANES)
      for (int j = 0; j < LANES; j++) {
        uint16_t value = image[at + (size_t)j];
        sum[j] = (uint16_t)(sum[j] + value);
        square[j] += (uint16_t)(value * value);
      }
    for (int j = 0; at < end; at++, j++) {
      uint16_t value = image[at];
      sum[j] = (uint16_t)(sum[j] + value);
      square[j] += (uint16_t)(value * value);
    }
    for (int j = 0; j < LANES; j++) {
      tally->sum[j % channels] += sum[j];
      tally->square[j % channels] += square[j];
    }
  }
}

void shard_tally_moments(const int64_t sum[4], const int64_t square[4], int channels, double pixels,
                         double mean[4], double std[4]) {
  for (int c = 0; c < channels && pixels > 0; c++) {
    double first = (double)sum[c] / pixels, second = (double)square[c] / pixels;
    double variance = second - first * first;
    mean[c] = first / 255;
    std[c] = variance > 0 ? sqrt(variance) / 255 : 0;
  }
}

static void add_label(int64_t row, int64_t label, int64_t limit, struct shard_tally *tally) {
  if (label > tally->label_max) tally->label_max = label;
  if (label >= 0 && label < limit) return;
  if (tally->bad_count++ == 0) {
    tally->bad_row = row;
    tally->bad_label = label;
  }
}

enum status shard_tally_read(struct shard *shard, int64_t first, int64_t last, int64_t global_first,
                             int64_t limit, uint8_t *images, int32_t *labels, struct shard_tally *tally) {
  const struct shard_info *info = shard_describe(shard);
  size_t row_bytes = (size_t)info->height * (size_t)info->width * (size_t)info->channels;
  int64_t *wide = NULL, capacity = 0;
  enum status status = STATUS_OK;
  for (int64_t begin = first, end; begin < last; begin = end) {
    end = shard_piece_end(info, begin, last);
    if (end - begin > capacity) {
      free(wide);
      capacity = end - begin;
      wide = malloc((size_t)capacity * sizeof *wide);
      if (!wide) return RAISE(STATUS_INPUT, "no memory to read %s", shard_path(shard));
    }
    uint8_t *piece = images + (size_t)(begin - first) * row_bytes;
    TRY_OUT(shard_read(shard, begin, end - begin, piece, wide));
    for (int64_t i = 0; i < end - begin; i++) {
      const uint8_t *image = piece + (size_t)i * row_bytes;
      uint64_t row_digest = shard_row_digest(image, row_bytes, wide[i]);
      tally->shard_digest += shard_digest_term(row_digest, begin + i);
      tally->global_digest += shard_digest_term(row_digest, global_first + begin - first + i);
      shard_tally_pixels(image, row_bytes, info->channels, tally);
      add_label(begin + i, wide[i], limit, tally);
      labels[begin - first + i] = (int32_t)wide[i];
    }
  }
out:
  free(wide);
  return status;
}

enum status shard_tally_labels(const char *path, const struct shard_tally *tally, int64_t limit) {
  if (tally->bad_count == 0) return STATUS_OK;
  char more[64] = "";
  if (tally->bad_count > 1)
    snprintf(more, sizeof more, " (and %lld more rows)", (long long)tally->bad_count - 1);
  return RAISE(STATUS_INPUT, "%s: data set 'labels', row %lld: label %lld, expected 0..%lld%s", path,
               (long long)tally->bad_row, (long long)tally->bad_label, (long long)limit - 1, more);
}

enum status shard_tally_digest(const char *path, const struct shard_info *info, uint64_t found) {
  if (!info->has_digest || info->digest == found) return STATUS_OK;
  return RAISE(STATUS_INPUT,
               "%s: its images or labels are damaged: digest %016llx, expected %016llx; copy the file again",
               path, (unsigned long long)found, (unsigned long long)info->digest);
}
