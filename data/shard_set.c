/* A data directory written all or nothing; see shard_set.h. */
#include "data/shard_set.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/sampler.h"
#include "data/shard_tally.h"
#include "model/base/log.h"

enum { PIECE_ROWS = 256 };

/* One file: the temporary and the final path. */
struct target {
  char *path, *temporary; /* owned */
  char name[SHARD_NAME];
  int split;
  int64_t first, count;
  bool renamed;
};

static bool ends_with(const char *name, const char *end) {
  size_t a = strlen(name), b = strlen(end);
  return a >= b && strcmp(name + a - b, end) == 0;
}

enum status shard_set_check(const char *directory, bool overwrite) {
  DIR *folder = opendir(directory);
  if (!folder && errno == ENOENT) return STATUS_OK;
  if (!folder) return RAISE(STATUS_INPUT, "output folder %s cannot be read: %s", directory, strerror(errno));
  char found[SHARD_NAME] = "";
  for (struct dirent *entry; !found[0] && (entry = readdir(folder)) != NULL;)
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
        !ends_with(entry->d_name, ".h5.tmp"))
      snprintf(found, sizeof found, "%s", entry->d_name);
  closedir(folder);
  if (!found[0] || overwrite) return STATUS_OK;
  return RAISE(STATUS_INPUT,
               "output folder %s is not empty (it holds %s); choose another or give --overwrite", directory,
               found);
}

/* mkdir -p; *created tells whether the last folder is new. */
static enum status make_folder(const char *directory, bool *created) {
  char *path = strdup(directory);
  if (!path) return RAISE(STATUS_INPUT, "no memory for a path");
  *created = false;
  for (char *at = path + 1;; at++) {
    if (*at != '/' && *at != '\0') continue;
    char end = *at;
    *at = '\0';
    *created = mkdir(path, 0777) == 0;
    if (!*created && errno != EEXIST) {
      enum status status = RAISE(STATUS_STORAGE, "cannot create folder %s: %s", path, strerror(errno));
      free(path);
      return status;
    }
    *at = end;
    if (end == '\0') break;
    if (at[1] == '\0') break; /* a trailing slash */
  }
  free(path);
  return STATUS_OK;
}

static enum status sync_folder(const char *directory) {
  int folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  bool good = folder >= 0 && (fsync(folder) == 0 || errno == EINVAL);
  int error = errno;
  if (folder >= 0) close(folder);
  return good ? STATUS_OK : RAISE(STATUS_STORAGE, "cannot sync folder %s: %s", directory, strerror(error));
}

static int split_shards(const struct shard_rows *rows) {
  return rows->count < rows->shards ? (int)rows->count : rows->shards;
}

static enum status plan_targets(const struct shard_set *set, const char *directory, struct target *target) {
  for (int split = 0; split < SPLIT_COUNT; split++) {
    int shards = split_shards(&set->split[split]);
    for (int i = 0; i < shards; i++, target++) {
      target->split = split;
      sampler_part(set->split[split].count, i, shards, &target->first, &target->count);
      char temporary[SHARD_NAME + 4];
      snprintf(target->name, sizeof target->name, "%s-%05d-of-%05d.h5", split_name(split), i, shards);
      snprintf(temporary, sizeof temporary, "%s.tmp", target->name);
      target->path = shard_list_path(directory, target->name);
      target->temporary = shard_list_path(directory, temporary);
      if (!target->path || !target->temporary) return RAISE(STATUS_INPUT, "no memory for a path");
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

/* Removes the shards that are there and not among the new names. */
static enum status remove_others(const char *directory, const struct target *target, int count) {
  struct shard_list list;
  TRY(shard_list_read(directory, &list));
  enum status status = STATUS_OK;
  for (int split = 0; split < SPLIT_COUNT; split++)
    for (int i = 0; i < list.count[split] && status == STATUS_OK; i++) {
      bool fresh = false;
      for (int t = 0; t < count; t++) fresh = fresh || strcmp(target[t].name, list.name[split][i]) == 0;
      if (fresh) continue;
      char *path = shard_list_path(directory, list.name[split][i]);
      if (!path || unlink(path) != 0)
        status = RAISE(STATUS_STORAGE, "cannot remove the old shard %s/%s: %s", directory,
                       list.name[split][i], path ? strerror(errno) : "no memory");
      free(path);
    }
  shard_list_free(&list);
  return status;
}

static enum status publish(const char *directory, struct target *target, int count) {
  TRY(remove_others(directory, target, count));
  for (int i = 0; i < count; i++) {
    if (rename(target[i].temporary, target[i].path) != 0)
      return RAISE(STATUS_STORAGE, "cannot rename %s: %s", target[i].temporary, strerror(errno));
    target[i].renamed = true;
  }
  return sync_folder(directory);
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

enum status shard_set_write(const struct shard_set *set, const char *directory, bool overwrite) {
  bool created = false;
  struct shard_tally tally;
  shard_tally_clear(&tally);
  TRY(shard_set_check(directory, overwrite));
  int count = split_shards(&set->split[SPLIT_TRAIN]) + split_shards(&set->split[SPLIT_TEST]);
  struct target *target = calloc(count ? (size_t)count : 1, sizeof *target);
  if (!target) return RAISE(STATUS_INPUT, "no memory for %d shards", count);
  enum status status = STATUS_OK;
  TRY_OUT(make_folder(directory, &created));
  TRY_OUT(plan_targets(set, directory, target));
  for (int i = 0; i < count; i++) {
    TRY_OUT(write_shard(set, &target[i], &tally));
    log_info("%s/%s: %lld images", directory, target[i].name, (long long)target[i].count);
  }
  TRY_OUT(write_moments(set, &tally, target, count));
  TRY_OUT(publish(directory, target, count));
out:
  for (int i = 0; i < count; i++) {
    if (status != STATUS_OK && target[i].temporary) unlink(target[i].temporary);
    if (status != STATUS_OK && target[i].renamed) unlink(target[i].path);
    free(target[i].path);
    free(target[i].temporary);
  }
  free(target);
  if (status != STATUS_OK && created) rmdir(directory);
  return status;
}
