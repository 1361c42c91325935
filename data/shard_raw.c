/* Rows of contiguous data sets, read from the file without HDF5: a rank that was told where they lie needs no
 * metadata, and the bytes go straight to where they are wanted; see shard_raw.h. */
#include "data/shard_raw.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct shard_raw {
  int file;
  struct shard_info info;
  uint8_t *labels; /* owned: as stored, before they are widened */
  int64_t label_capacity;
  char path[]; /* owned with the struct */
};

enum status shard_raw_open(const char *path, const struct shard_info *info, struct shard_raw **opened) {
  size_t length = strlen(path) + 1;
  struct shard_raw *raw = calloc(1, sizeof *raw + length);
  if (!raw) return RAISE(STATUS_INPUT, "no memory to open %s", path);
  memcpy(raw->path, path, length);
  raw->info = *info;
  raw->file = open(path, O_RDONLY | O_CLOEXEC);
  struct stat file;
  enum status status = STATUS_OK;
  if (raw->file < 0 || fstat(raw->file, &file) != 0)
    status = RAISE(STATUS_INPUT, "%s cannot be opened: %s", path, strerror(errno));
  else if (file.st_size != info->file_bytes)
    status =
        RAISE(STATUS_INPUT,
              "%s has %lld bytes, but %lld on rank 0: it changed while it was read, or differs between the "
              "hosts",
              path, (long long)file.st_size, (long long)info->file_bytes);
  if (status != STATUS_OK) {
    shard_raw_close(raw);
    return status;
  }
  *opened = raw;
  return STATUS_OK;
}

void shard_raw_close(struct shard_raw *raw) {
  if (!raw) return;
  if (raw->file >= 0) close(raw->file);
  free(raw->labels);
  free(raw);
}

static enum status read_all(const struct shard_raw *raw, const char *name, int64_t offset, size_t bytes,
                            void *memory) {
  for (size_t done = 0; done < bytes;) {
    ssize_t got = pread(raw->file, (char *)memory + done, bytes - done, (off_t)(offset + (int64_t)done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      return RAISE(STATUS_INPUT, "%s: data set '%s' cannot be read at byte %lld: %s; copy the file again",
                   raw->path, name, (long long)offset + (long long)done,
                   got == 0 ? "the file ends there" : strerror(errno));
    done += (size_t)got;
  }
  return STATUS_OK;
}

/* One stored integer of 1 to 8 bytes. */
static int64_t widen(const uint8_t *from, const struct shard_info *info) {
  uint64_t value = 0;
  int bytes = info->label_bytes;
  for (int i = 0; i < bytes; i++)
    value |= (uint64_t)from[info->label_big_endian ? bytes - 1 - i : i] << (8 * i);
  if (info->label_signed && bytes < 8 && value >> (8 * bytes - 1)) value |= ~(uint64_t)0 << (8 * bytes);
  return value > INT64_MAX && !info->label_signed ? INT64_MAX : (int64_t)value;
}

enum status shard_raw_labels(struct shard_raw *raw, int64_t first, int64_t count, int64_t *labels) {
  const struct shard_info *info = &raw->info;
  size_t bytes = (size_t)info->label_bytes;
  if (count > raw->label_capacity) {
    free(raw->labels);
    raw->label_capacity = 0;
    raw->labels = malloc((size_t)count * bytes);
    if (!raw->labels) return RAISE(STATUS_INPUT, "no memory to read %s", raw->path);
    raw->label_capacity = count;
  }
  TRY(read_all(raw, "labels", info->label_offset + first * info->label_bytes, (size_t)count * bytes,
               raw->labels));
  for (int64_t i = 0; i < count; i++) labels[i] = widen(raw->labels + (size_t)i * bytes, info);
  return STATUS_OK;
}

enum status shard_raw_images(const struct shard_raw *raw, int64_t first, int64_t count, uint8_t *images) {
  const struct shard_info *info = &raw->info;
  int64_t row_bytes = (int64_t)info->height * info->width * info->channels;
  return read_all(raw, "images", info->image_offset + first * row_bytes, (size_t)(count * row_bytes), images);
}

enum status shard_raw_scatter(const struct shard_raw *raw, int64_t first, int count, uint8_t *const *to) {
  const struct shard_info *info = &raw->info;
  size_t row_bytes = (size_t)info->height * (size_t)info->width * (size_t)info->channels;
  struct iovec part[IOV_MAX];
  if (count < 1 || count > IOV_MAX) return RAISE(STATUS_INTERNAL, "%d rows at once", count);
  for (int i = 0; i < count; i++) part[i] = (struct iovec){.iov_base = to[i], .iov_len = row_bytes};
  ssize_t got = preadv(raw->file, part, count, (off_t)(info->image_offset + first * (int64_t)row_bytes));
  if (got == (ssize_t)((size_t)count * row_bytes)) return STATUS_OK;
  for (int i = 0; i < count; i++) TRY(shard_raw_images(raw, first + i, 1, to[i])); /* it came in parts */
  return STATUS_OK;
}
