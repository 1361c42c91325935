/* A data directory written all or nothing; see shard_set.h. */
#include "data/shard_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/sampler.h"
#include "data/shard_publish.h"
#include "data/shard_stage.h"
#include "data/shard_tally.h"
#include "model/base/disk.h"
#include "model/base/folder.h"
#include "model/base/log.h"

enum { PIECE_ROWS = 256, FRAME_BYTES = 8192 /* of a shard, beside rows and names */ };

/* One file, under its temporary path. */
struct target {
  char *temporary; /* owned */
  int split;
  int64_t first, count;
};

static bool ends_with(const char *name, const char *end) {
  size_t a = strlen(name), b = strlen(end);
  return a >= b && strcmp(name + a - b, end) == 0;
}

enum status shard_set_check(const char *directory, bool overwrite) {
  TRY(shard_stage_recover(directory));
  DIR *folder = opendir(directory);
  if (!folder && errno == ENOENT) return STATUS_OK;
  if (!folder) return RAISE(STATUS_INPUT, "output folder %s cannot be read: %s", directory, strerror(errno));
  char found[SHARD_NAME] = "", aside[SHARD_NAME] = "";
  const char *name;
  int failed;
  while ((failed = folder_next(folder, &name)) == 0 && name) {
    if (!ends_with(name, ".h5.tmp") && !found[0]) snprintf(found, sizeof found, "%s", name);
    if (shard_stage_is_aside(name)) snprintf(aside, sizeof aside, "%s", name);
  }
  closedir(folder);
  if (failed) return RAISE(STATUS_INPUT, "output folder %s cannot be read: %s", directory, strerror(failed));
  if (aside[0])
    return RAISE(
        STATUS_INPUT,
        "%s holds %s, an old shard that an import which was killed had renamed: name such files back or "
        "remove them",
        directory, aside);
  if (!found[0] || overwrite) return STATUS_OK;
  return RAISE(STATUS_INPUT,
               "output folder %s is not empty (it holds %s); choose another or give --overwrite", directory,
               found);
}

static int split_shards(const struct shard_rows *rows) {
  return rows->count < rows->shards ? (int)rows->count : rows->shards;
}

static enum status plan_targets(const struct shard_set *set, const char *folder, struct target *target,
                                char (*name)[SHARD_NAME]) {
  for (int split = 0; split < SPLIT_COUNT; split++) {
    int shards = split_shards(&set->split[split]);
    for (int i = 0; i < shards; i++, target++, name++) {
      target->split = split;
      sampler_part(set->split[split].count, i, shards, &target->first, &target->count);
      char temporary[SHARD_NAME + 4];
      snprintf(*name, SHARD_NAME, "%s-%05d-of-%05d.h5", split_name(split), i, shards);
      snprintf(temporary, sizeof temporary, "%s.tmp", *name);
      target->temporary = shard_list_path(folder, temporary);
      if (!target->temporary) return RAISE(STATUS_INPUT, "no memory for a path");
    }
  }
  return STATUS_OK;
}

static enum status write_shard(const struct shard_set *set, const struct target *target,
                               struct shard_tally *tally) {
  const struct shard_rows *rows = &set->split[target->split];
  size_t row_bytes = (size_t)set->shape.height * (size_t)set->shape.width * (size_t)set->shape.channels;
  uint8_t *images = malloc(PIECE_ROWS * row_bytes);
  int32_t labels[PIECE_ROWS];
  struct shard_writer *writer = NULL;
  enum status status = STATUS_OK;
  if (!images) TRY_OUT(RAISE(STATUS_INPUT, "no memory to write %s", target->temporary));
  TRY_OUT(shard_writer_create(target->temporary, &set->shape, target->count, &writer));
  for (int64_t done = 0; done < target->count;) {
    int64_t count = target->count - done < PIECE_ROWS ? target->count - done : PIECE_ROWS;
    for (int64_t i = 0; i < count; i++) {
      uint8_t *image = images + (size_t)i * row_bytes;
      TRY_OUT(rows->get(rows->context, target->first + done + i, image, &labels[i]));
      if (target->split == SPLIT_TRAIN) shard_tally_pixels(image, row_bytes, set->shape.channels, tally);
    }
    TRY_OUT(shard_writer_append(writer, count, images, labels));
    done += count;
  }
  TRY_OUT(shard_writer_finish(writer));
out:
  shard_writer_destroy(writer);
  free(images);
  return status;
}

/* Mean and std of the training images are known only now. */
static enum status write_moments(const struct shard_set *set, const struct shard_tally *tally,
                                 const struct target *target, int count) {
  const struct shard_shape *shape = &set->shape;
  double mean[4], std[4], pixels = (double)set->split[SPLIT_TRAIN].count * shape->height * shape->width;
  if (pixels == 0) return STATUS_OK;
  shard_tally_moments(tally->sum, tally->square, shape->channels, pixels, mean, std);
  for (int i = 0; i < count; i++) TRY(shard_write_moments(target[i].temporary, shape->channels, mean, std));
  return STATUS_OK;
}

/* What is there stays until the new shards are whole. */
static enum status check_space(const struct shard_set *set, int shards, const char *folder,
                               const char *directory) {
  const struct shard_shape *shape = &set->shape;
  int64_t row = (int64_t)shape->height * shape->width * shape->channels + (int64_t)sizeof(uint16_t);
  int64_t frame = FRAME_BYTES + (int64_t)shape->classes * DATASET_CLASS_NAME, room;
  int64_t need = (set->split[SPLIT_TRAIN].count + set->split[SPLIT_TEST].count) * row + shards * frame;
  TRY(disk_free(folder, &room));
  if (room >= need) return STATUS_OK;
  return RAISE(STATUS_STORAGE,
               "%s has %.1f MB free; the shards need %.1f MB; free some or choose another --out", directory,
               (double)room * 1e-6, (double)need * 1e-6);
}

enum status shard_set_write(const struct shard_set *set, const char *directory, bool overwrite) {
  struct shard_publish *publish = NULL;
  struct shard_tally tally;
  shard_tally_clear(&tally);
  TRY(shard_set_check(directory, overwrite));
  int count = split_shards(&set->split[SPLIT_TRAIN]) + split_shards(&set->split[SPLIT_TEST]);
  struct target *target = calloc((size_t)count + 1, sizeof *target);
  char(*name)[SHARD_NAME] = calloc((size_t)count + 1, sizeof *name);
  enum status status = STATUS_OK;
  if (!target || !name) TRY_OUT(RAISE(STATUS_INPUT, "no memory for %d shards", count));
  TRY_OUT(shard_publish_begin(directory, &publish));
  TRY_OUT(check_space(set, count, shard_publish_folder(publish), directory));
  TRY_OUT(plan_targets(set, shard_publish_folder(publish), target, name));
  for (int i = 0; i < count; i++) {
    TRY_OUT(write_shard(set, &target[i], &tally));
    log_info("%s/%s: %lld images", directory, name[i], (long long)target[i].count);
  }
  TRY_OUT(write_moments(set, &tally, target, count));
  TRY_OUT(shard_publish_commit(publish, name, count));
out:
  for (int i = 0; target && i < count; i++) {
    if (status != STATUS_OK && target[i].temporary) unlink(target[i].temporary);
    free(target[i].temporary);
  }
  free(target);
  free(name);
  shard_publish_end(publish);
  return status;
}
