/* The algorithms that a backend chose by timing, kept in a file so that the next start of the same work on
 * the same kind of device times nothing. A file that cannot be read or written costs only time: it is a
 * warning, never an error. */
#ifndef CONVOY_APP_PLAN_CACHE_H
#define CONVOY_APP_PLAN_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "model/backend/backend.h"

enum { PLAN_CACHE_PATH = 4096, PLAN_CACHE_FILES = 256 };

/* The file for `key` in `option`: a folder; "": convoy in $XDG_CACHE_HOME or ~/.cache; false: there is none
 * ("none", or no home). The folder need not exist. */
bool plan_cache_path(const char *option, const char *key, char path[PLAN_CACHE_PATH]);

/* The file's content if it was written whole and for this key; else *bytes is NULL, with a warning unless
 * there is no file. *bytes is the caller's. */
void plan_cache_read(const char *path, const char *key, void **bytes, size_t *count);

/* Replaces the file, and makes its folder (and one above it) if it is not there. Of a folder's files the
 * PLAN_CACHE_FILES last written or read stay. */
void plan_cache_write(const char *path, const char *key, const void *bytes, size_t count);

/* Around the creation of a net's ops: begin gives the backend what was chosen earlier. If that is nothing,
 * the ranks other than 0 wait in it for what rank 0 then chooses, which rank 0 tells in end. There what any
 * rank had to choose anew is gathered and written, once a host. So ranks of one kind of device run the same
 * plans for the same shapes. A rank whose begin was STATUS_OK calls end. `made` is how the ops' creation went
 * there: where it failed, end returns that, and its record stays. Collective; else the same status on all
 * ranks, but that rank 0 may learn from end why the others' begin failed. `key` is rank 0's. */
struct plan_cache {
  const struct world *world; /* borrowed */
  char path[PLAN_CACHE_PATH];
  char key[2 * BACKEND_KIND]; /* ""; nothing is timed */
  bool same;                  /* this rank's device is of rank 0's kind */
  bool known;                 /* there were choices of an earlier start */
};
enum status plan_cache_begin(struct plan_cache *cache, const char *option, const char *key,
                             struct backend *backend);
enum status plan_cache_end(struct plan_cache *cache, struct backend *backend, enum status made);

#endif
