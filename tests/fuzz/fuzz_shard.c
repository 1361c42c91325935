/* libFuzzer target: the bytes are a shard. Whatever they are, it is refused or read to its last row. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/shard_read.h"
#include "data/shard_tally.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads all rows in pieces, as the data set does. */
static void read_rows(struct shard *shard) {
  const struct shard_info *info = shard_describe(shard);
  size_t row_bytes = (size_t)info->height * (size_t)info->width * (size_t)info->channels;
  struct shard_tally tally;
  shard_tally_clear(&tally);
  for (int64_t begin = 0, end; begin < info->count; begin = end) {
    end = shard_piece_end(shard, begin, info->count);
    uint8_t *images = malloc((size_t)(end - begin) * row_bytes);
    int32_t *labels = malloc((size_t)(end - begin) * sizeof *labels);
    enum status status = STATUS_INPUT;
    if (images && labels) status = shard_tally_read(shard, begin, end, begin, 10, images, labels, &tally);
    free(images);
    free(labels);
    if (status != STATUS_OK) return;
  }
  if (shard_tally_labels(shard_path(shard), &tally, 10) == STATUS_OK)
    (void)shard_tally_digest(shard_path(shard), info, tally.shard_digest);
}

static void ignore(void *context, enum status status) {
  (void)context, (void)status;
  if (strchr(error_message(), '\n')) abort(); /* a refusal is one line */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[64];
  snprintf(path, sizeof path, "/dev/shm/convoy-fuzz-%d.h5", (int)getpid());
  int file = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0 || write(file, data, size) != (ssize_t)size) abort();
  close(file);
  struct shard *shard = NULL;
  enum status status = shard_open(path, &shard);
  if (status == STATUS_OK) {
    const struct shard_info *info = shard_describe(shard);
    if (info->named) {
      char(*name)[DATASET_CLASS_NAME] = calloc((size_t)info->classes, sizeof *name);
      if (name) (void)shard_class_names(shard, name);
      free(name);
    }
    read_rows(shard);
    shard_close(shard);
  } else {
    ignore(NULL, status);
    if (shard_inspect(path, ignore, NULL) != STATUS_OK) ignore(NULL, status);
  }
  error_clear();
  unlink(path);
  return 0;
}
