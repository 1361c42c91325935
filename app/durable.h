/* Files that are whole or not there, also after a crash or on a full disk. */
#ifndef CONVOY_APP_DURABLE_H
#define CONVOY_APP_DURABLE_H

#include <stddef.h>

#include "model/base/error.h"

struct durable_part {
  const void *data;
  size_t bytes;
};

/* STATUS_INPUT if PATH names a device, a pipe or a link in /dev, which renaming would replace by a file. */
enum status durable_check_target(const char *path);

/* Writes the parts to PATH.tmp, synchronises it, renames it to PATH and synchronises the folder. On failure
 * (STATUS_STORAGE, with path, reason, bytes needed and free) PATH.tmp is gone and a former PATH is untouched.
 * As durable_check_target before that. */
enum status durable_write(const char *path, const struct durable_part *parts, int count);

/* The error (STATUS_STORAGE) of a file that cannot be opened for writing for an errno. */
enum status durable_cannot_open(const char *path, int reason);

/* Makes a folder and its parents. *made (NULL: not wanted; else 0 before) becomes the length of the outermost
 * one's path that was missing, if any was. STATUS_INPUT: a part of the path is a file. */
enum status durable_make_folders(const char *path, size_t *made);

/* Makes renames and removals in a folder durable; file systems that cannot are taken as they are. */
enum status durable_sync_folder(const char *folder);

#endif
