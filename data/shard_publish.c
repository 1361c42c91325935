/* A finished set of shards takes its place; see shard_publish.h. */
#include "data/shard_publish.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/shard_stage.h"
#include "model/base/folder.h"
#include "model/base/log.h"

struct shard_publish {
  char *directory;   /* owned: without symbolic links */
  char *stage;       /* owned: a new folder beside it; NULL: files are written inside */
  mode_t mode;       /* of the directory */
  int lock[2];       /* of the directory and the stage; -1: none */
  const char *given; /* the directory as it was named; borrowed */
  size_t made;       /* as folder_make gives it */
  bool committed;
};

/* ---- where to write ---- */

enum status shard_publish_begin(const char *directory, struct shard_publish **begun) {
  struct stat info;
  enum status status = STATUS_OK;
  struct shard_publish *publish = calloc(1, sizeof *publish);
  if (!publish) return RAISE(STATUS_INPUT, "no memory for %s", directory);
  publish->lock[0] = publish->lock[1] = -1;
  publish->given = directory;
  TRY_OUT(folder_make(directory, &publish->made));
  publish->directory = realpath(directory, NULL);
  if (!publish->directory || stat(publish->directory, &info) != 0)
    TRY_OUT(RAISE(STATUS_STORAGE, "cannot use folder %s: %s", directory, strerror(errno)));
  publish->mode = info.st_mode & 07777;
  TRY_OUT(shard_stage_lock(publish->directory, &publish->lock[0]));
  if (shard_list_any(publish->directory))
    publish->stage = shard_stage_create(publish->directory, &publish->lock[1]);
  *begun = publish;
  return STATUS_OK;
out:
  shard_publish_end(publish);
  return status;
}

const char *shard_publish_folder(const struct shard_publish *publish) {
  return publish->stage ? publish->stage : publish->directory;
}

/* ---- renames ---- */

static enum status rename_in(const char *folder, const char *name, const char *from, const char *to) {
  char *old = shard_stage_join(name, from), *new = shard_stage_join(name, to), *old_path = NULL,
       *new_path = NULL;
  enum status status = STATUS_OK;
  if (old && new) {
    old_path = shard_list_path(folder, old);
    new_path = shard_list_path(folder, new);
  }
  if (!old_path || !new_path)
    status = RAISE(STATUS_INPUT, "no memory for a path");
  else if (rename(old_path, new_path) != 0)
    status = RAISE(STATUS_STORAGE, "cannot rename %s to %s: %s", old_path, new, strerror(errno));
  free(old);
  free(new);
  free(old_path);
  free(new_path);
  return status;
}

static void take_names(const char *folder, char (*name)[SHARD_NAME], int count) {
  for (int i = 0; i < count; i++) (void)rename_in(folder, name[i], "", ".tmp");
}

/* Gives the new files their names, for good; after a failure they have none. */
static enum status name_new(const char *folder, char (*name)[SHARD_NAME], int count) {
  enum status status = STATUS_OK;
  struct error_record record;
  int named = 0;
  while (status == STATUS_OK && named < count) {
    status = rename_in(folder, name[named], ".tmp", "");
    if (status == STATUS_OK) named++;
  }
  if (status == STATUS_OK) status = folder_sync(folder);
  if (status == STATUS_OK) return STATUS_OK;
  error_save(&record);
  take_names(folder, name, named);
  error_restore(&record);
  return status;
}

/* ---- inside ---- */

static void put_back(const char *folder, const struct shard_list *list, int until) {
  for (int split = 0, at = 0; split < SPLIT_COUNT; split++)
    for (int i = 0; i < list->count[split] && at < until; i++, at++)
      if (rename_in(folder, list->name[split][i], ".old", "") != STATUS_OK)
        log_warning("%s", error_message());
}

static void remove_old(const char *folder, const struct shard_list *list) {
  for (int split = 0; split < SPLIT_COUNT; split++)
    for (int i = 0; i < list->count[split]; i++) {
      char *name = shard_stage_join(list->name[split][i], ".old"),
           *path = name ? shard_list_path(folder, name) : NULL;
      if (path && unlink(path) != 0) log_warning("cannot remove the old shard %s: %s", path, strerror(errno));
      free(path);
      free(name);
    }
}

static enum status commit_inside(struct shard_publish *publish, char (*name)[SHARD_NAME], int count) {
  struct shard_list list;
  enum status status = STATUS_OK;
  int moved = 0;
  TRY(shard_list_read(publish->directory, &list));
  for (int split = 0; split < SPLIT_COUNT; split++)
    for (int i = 0; i < list.count[split]; i++, moved++)
      TRY_OUT(rename_in(publish->directory, list.name[split][i], "", ".old"));
  TRY_OUT(name_new(publish->directory, name, count));
  publish->committed = true;
  remove_old(publish->directory, &list);
out:
  if (status != STATUS_OK) {
    struct error_record record;
    error_save(&record);
    put_back(publish->directory, &list, moved);
    error_restore(&record);
  }
  shard_list_free(&list);
  return status;
}

/* ---- beside ---- */

/* The two folders change places. */
static enum status exchange(const struct shard_publish *publish) {
  if (renameat2(AT_FDCWD, publish->stage, AT_FDCWD, publish->directory, RENAME_EXCHANGE) == 0)
    return STATUS_OK;
  int error = errno;
  char *aside = shard_stage_join(publish->stage, ".old");
  bool moved = aside && rename(publish->directory, aside) == 0;
  if (moved && rename(publish->stage, publish->directory) == 0) {
    if (rename(aside, publish->stage) != 0) log_warning("the old shards are left in %s", aside);
    free(aside);
    return STATUS_OK;
  }
  if (moved) error = errno;
  if (moved && rename(aside, publish->directory) != 0)
    log_warning("the old shards are in %s, which cannot be named back: %s", aside, strerror(errno));
  free(aside);
  return RAISE(STATUS_STORAGE, "cannot exchange %s for the new shards: %s", publish->directory,
               strerror(error));
}

/* The old set gets its place again, since a crash might bring it back; the recorded error stays. */
static void take_back(struct shard_publish *publish) {
  struct error_record record;
  error_save(&record);
  if (exchange(publish) == STATUS_OK)
    publish->committed = false;
  else
    log_warning("%s", error_message());
  error_restore(&record);
}

static enum status commit_beside(struct shard_publish *publish, char (*name)[SHARD_NAME], int count) {
  char *parent = shard_stage_join(publish->directory, "/..");
  enum status status = parent ? STATUS_OK : RAISE(STATUS_INPUT, "no memory for a path");
  TRY_OUT(status);
  TRY_OUT(name_new(publish->stage, name, count));
  if (chmod(publish->stage, publish->mode) != 0)
    TRY_OUT(RAISE(STATUS_STORAGE, "cannot set the mode of %s: %s", publish->stage, strerror(errno)));
  TRY_OUT(exchange(publish));
  publish->committed = true;
  status = folder_sync(parent);
  if (status == STATUS_OK)
    shard_stage_clear(publish->stage, publish->directory);
  else
    take_back(publish);
out:
  free(parent);
  return status;
}

enum status shard_publish_commit(struct shard_publish *publish, char (*name)[SHARD_NAME], int count) {
  return publish->stage ? commit_beside(publish, name, count) : commit_inside(publish, name, count);
}

void shard_publish_end(struct shard_publish *publish) {
  if (!publish) return;
  if (!publish->committed && publish->stage) {
    DIR *folder = opendir(publish->stage); /* which holds new files only */
    const char *name;
    while (folder && folder_next(folder, &name) == 0 && name) {
      char *path = shard_stage_is_shard(name) ? shard_list_path(publish->stage, name) : NULL;
      if (path) (void)unlink(path);
      free(path);
    }
    if (folder) closedir(folder);
    (void)rmdir(publish->stage);
  }
  if (!publish->committed) folder_remove(publish->given, publish->made);
  for (int i = 0; i < 2; i++)
    if (publish->lock[i] >= 0) close(publish->lock[i]);
  free(publish->stage);
  free(publish->directory);
  free(publish);
}
