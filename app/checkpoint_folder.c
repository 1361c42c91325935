/* The checkpoints of a run: writing one, keeping the newest, finding the newest that verifies. */
#include "app/checkpoint_format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/durable.h"
#include "model/base/folder.h"
#include "model/base/log.h"

static const char best_name[] = "best.h5";
static const int64_t best_step = -1; /* best.h5 in a list: after all others */

/* The checkpoints of a folder, highest step first. */
struct listing {
  int count;
  int64_t *steps;
  bool exists;
};

const char *checkpoint_path(const char *directory, int64_t step, char *path) {
  if (step == best_step)
    snprintf(path, CHECKPOINT_PATH, "%s/%s", directory, best_name);
  else
    snprintf(path, CHECKPOINT_PATH, "%s/step-%08" PRId64 ".h5", directory, step);
  return path;
}

/* Whether `name` is best.h5 or step-N.h5 with `suffix` after it; gives the step. */
static bool name_parse(const char *name, const char *suffix, int64_t *step) {
  char expected[64];
  long long number = best_step;
  if (strncmp(name, best_name, sizeof best_name - 1) != 0 && sscanf(name, "step-%18lld", &number) != 1)
    return false;
  if (number == best_step)
    snprintf(expected, sizeof expected, "%s%s", best_name, suffix);
  else
    snprintf(expected, sizeof expected, "step-%08lld.h5%s", number, suffix);
  *step = number;
  return strcmp(name, expected) == 0;
}

static int newest_first(const void *left, const void *right) {
  int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
  return (a < b) - (a > b);
}

static enum status list_open(const char *directory, const char *suffix, struct listing *listing) {
  *listing = (struct listing){0};
  DIR *folder = opendir(directory);
  if (!folder && errno == ENOENT) return STATUS_OK;
  if (!folder) return RAISE(STATUS_STORAGE, "cannot read the folder %s: %s", directory, strerror(errno));
  enum status status = STATUS_OK;
  const char *name;
  int failed;
  while ((failed = folder_next(folder, &name)) == 0 && name) {
    int64_t step;
    if (!name_parse(name, suffix, &step)) continue;
    int64_t *more = realloc(listing->steps, (size_t)(listing->count + 1) * sizeof *more);
    if (!more) {
      status = RAISE(STATUS_INPUT, "out of memory while reading the folder %s", directory);
      break;
    }
    listing->steps = more;
    more[listing->count++] = step;
  }
  if (failed) status = RAISE(STATUS_STORAGE, "cannot read the folder %s: %s", directory, strerror(failed));
  closedir(folder);
  if (status != STATUS_OK) {
    free(listing->steps);
    return status;
  }
  listing->exists = true;
  if (listing->count) qsort(listing->steps, (size_t)listing->count, sizeof *listing->steps, newest_first);
  return STATUS_OK;
}

static void list_close(struct listing *listing) {
  free(listing->steps);
}

enum status checkpoint_check_none(const char *directory) {
  struct listing listing;
  char path[CHECKPOINT_PATH];
  TRY(list_open(directory, "", &listing));
  enum status status = STATUS_OK;
  if (listing.count > 0)
    status = RAISE(STATUS_INPUT, "%s is there; expected a folder without checkpoints: give another --out",
                   checkpoint_path(directory, listing.steps[0], path));
  list_close(&listing);
  return status;
}

/* ---- writing ---- */

/* Makes best.h5 the same file as `path`: a second link, or a copy where the file system has no links. */
static enum status write_best(const char *directory, const char *path, const struct durable_part parts[2]) {
  char best[CHECKPOINT_PATH], temporary[CHECKPOINT_PATH + 8];
  checkpoint_path(directory, best_step, best);
  snprintf(temporary, sizeof temporary, "%s.tmp", best);
  if (unlink(temporary) != 0 && errno != ENOENT)
    return RAISE(STATUS_STORAGE, "cannot replace %s: %s", temporary, strerror(errno));
  bool linked = link(path, temporary) == 0 && rename(temporary, best) == 0;
  unlink(temporary); /* rename leaves it where both names are already one file */
  return linked ? folder_sync(directory) : durable_write(best, parts, 2);
}

/* Deletes left-over temporaries and all but the newest `keep` checkpoints of steps up to `step`. The new
 * checkpoint is safe by now, so that a failure is only worth a warning. */
static void prune(const char *directory, int64_t step, int keep) {
  static const char *const suffixes[] = {"", ".tmp"};
  for (int s = 0; s < 2; s++) {
    struct listing listing;
    if (list_open(directory, suffixes[s], &listing) != STATUS_OK) {
      log_warning("old checkpoints stay: %s", error_message());
      error_clear();
      return;
    }
    int kept = 0;
    for (int i = 0; i < listing.count; i++) {
      bool temporary = s == 1, old = listing.steps[i] >= 0 && listing.steps[i] <= step;
      if (!temporary && (keep == 0 || !old || kept++ < keep)) continue;
      char path[CHECKPOINT_PATH], name[CHECKPOINT_PATH + 8];
      snprintf(name, sizeof name, "%s%s", checkpoint_path(directory, listing.steps[i], path), suffixes[s]);
      if (unlink(name) != 0 && errno != ENOENT) log_warning("cannot delete %s: %s", name, strerror(errno));
    }
    list_close(&listing);
  }
}

enum status checkpoint_write(const char *directory, const struct checkpoint_content *content, int keep,
                             bool best) {
  char path[CHECKPOINT_PATH], header[CHECKPOINT_HEADER];
  struct checkpoint_memory image;
  size_t bytes;
  enum status status;
  TRY_OUT(checkpoint_image_create(content, &image, &bytes));
  checkpoint_header_make(image.data, bytes, header);
  const struct durable_part parts[2] = {{header, sizeof header}, {image.data, bytes}};
  checkpoint_path(directory, content->progress.step, path);
  TRY_OUT(durable_write(path, parts, 2));
  if (best) TRY_OUT(write_best(directory, path, parts));
  prune(directory, content->progress.step, keep);
out:
  checkpoint_memory_free(&image);
  return status;
}

enum status checkpoint_remove_all(const char *directory) {
  static const char *const suffixes[] = {"", ".tmp"};
  for (int s = 0; s < 2; s++) {
    struct listing listing;
    enum status status = STATUS_OK;
    TRY(list_open(directory, suffixes[s], &listing));
    for (int i = 0; i < listing.count && status == STATUS_OK; i++) {
      char path[CHECKPOINT_PATH], name[CHECKPOINT_PATH + 8];
      snprintf(name, sizeof name, "%s%s", checkpoint_path(directory, listing.steps[i], path), suffixes[s]);
      if (unlink(name) != 0 && errno != ENOENT)
        status = RAISE(STATUS_STORAGE, "cannot delete %s: %s", name, strerror(errno));
    }
    list_close(&listing);
    if (status != STATUS_OK) return status;
  }
  return STATUS_OK;
}

/* ---- finding ---- */

/* Whether an open that gave `status` says that this file is no good, and not that memory is short. */
static bool is_bad_file(enum status status, const char *path) {
  return status == STATUS_STORAGE || (status == STATUS_INPUT && access(path, F_OK) != 0);
}

enum status checkpoint_newest(const char *directory, struct checkpoint **checkpoint) {
  struct listing listing;
  TRY(list_open(directory, "", &listing));
  *checkpoint = NULL;
  enum status status = STATUS_OK;
  char newest[512] = "";
  bool bad = false;
  for (int i = 0; i < listing.count; i++) {
    char path[CHECKPOINT_PATH];
    status = checkpoint_open(checkpoint_path(directory, listing.steps[i], path), checkpoint);
    bad = is_bad_file(status, path);
    if (!bad) break;
    log_warning("checkpoint does not load, an older one is tried: %s", error_message());
    if (i == 0) snprintf(newest, sizeof newest, "%s", error_message());
    error_clear();
  }
  if (bad)
    status =
        RAISE(STATUS_STORAGE,
              "none of the %d checkpoints in %s loads (%s): restore one, or start anew with another --out",
              listing.count, directory, newest);
  list_close(&listing);
  return status;
}

enum status checkpoint_find(const char *path, struct checkpoint **checkpoint) {
  struct stat info;
  char inner[CHECKPOINT_PATH];
  if (stat(path, &info) != 0)
    return RAISE(STATUS_INPUT, "cannot find checkpoint %s: %s", path, strerror(errno));
  const char *end = strrchr(path, '.');
  if (!S_ISDIR(info.st_mode) && end && strcmp(end, ".safetensors") == 0)
    return RAISE(STATUS_INPUT,
                 "%s is no checkpoint; 'convoy import-weights %s --out DIR' makes one of it, for --init too",
                 path, path);
  if (S_ISREG(info.st_mode)) return checkpoint_open(path, checkpoint);
  if (!S_ISDIR(info.st_mode))
    return RAISE(STATUS_INPUT, "%s is a pipe or device; expected a checkpoint or a folder of them", path);
  snprintf(inner, sizeof inner, "%s/checkpoints", path);
  const char *directory = stat(inner, &info) == 0 && S_ISDIR(info.st_mode) ? inner : path;
  TRY(checkpoint_newest(directory, checkpoint));
  if (!*checkpoint)
    return RAISE(STATUS_INPUT, "no checkpoint in %s: expected step-NNNNNNNN.h5 or best.h5", directory);
  return STATUS_OK;
}

enum status checkpoint_compare(const struct checkpoint *checkpoint, const struct checkpoint_option *options,
                               int option_count) {
  enum status status = STATUS_OK;
  for (int i = 0; i < option_count; i++) {
    const char *there = checkpoint_option(checkpoint, options[i].name), *here = options[i].value;
    if (there && strcmp(there, here) == 0) continue;
    if (!there || !there[0]) there = "none";
    if (!here[0]) here = "none";
    if (status == STATUS_OK)
      status =
          RAISE(STATUS_INPUT,
                "%s is %.200s, but checkpoint %s has %.200s: give the same value, or start a new run with "
                "another --out",
                options[i].name, here, checkpoint_name(checkpoint), there);
    else
      error_detail("%s is %.200s, the checkpoint has %.200s", options[i].name, here, there);
  }
  return status;
}
