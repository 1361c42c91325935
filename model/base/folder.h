/* Folders: made with their parents, listed, synchronised. */
#ifndef CONVOY_MODEL_BASE_FOLDER_H
#define CONVOY_MODEL_BASE_FOLDER_H

#include <dirent.h>
#include <stddef.h>

#include "model/base/error.h"

/* Makes a folder and its parents. *made (NULL: not wanted; else 0 before) becomes the length of the outermost
 * one's path that was missing, if any was. STATUS_INPUT: a part of the path is a file. STATUS_STORAGE: it
 * cannot be made. */
enum status folder_make(const char *path, size_t *made);

/* Removes what folder_make made, as far as it is empty. `made` 0: nothing. */
void folder_remove(const char *path, size_t made);

/* The next entry of an open folder but . and .., NULL after the last one: *name lasts until the next call.
 * 0, or the errno for which the rest cannot be told: a folder that cannot be listed is not an empty one. */
int folder_next(DIR *folder, const char **name);

/* Makes renames and removals in a folder durable; file systems that cannot are taken as they are.
 * STATUS_STORAGE: it failed. */
enum status folder_sync(const char *path);

#endif
