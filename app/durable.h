/* Files that are whole or not there, also after a crash or on a full disk. */
#ifndef CONVOY_APP_DURABLE_H
#define CONVOY_APP_DURABLE_H

#include <stddef.h>
#include <stdint.h>

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

/* Whether a file of so many bytes may be written to PATH: makes PATH.tmp, reserves them where the file system
 * can, which quotas and limits may refuse although there is room, and removes it. Else as durable_write. */
enum status durable_try(const char *path, int64_t bytes);

/* The error (STATUS_STORAGE) of a file that cannot be opened for writing for an errno. */
enum status durable_cannot_open(const char *path, int reason);

#endif
