/* The metadata of shards, read in a child process; see shard_survey.h. */
#include "data/shard_survey.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "data/child.h"
#include "data/shard_hdf5.h"

enum { CHILD_BYTES = 1 << 30, CHILD_SECONDS = 1, FAULT_BYTES = 1 << 16 };

struct survey {
  const char *const *path;
  int count;
};

/* What the child gets: so many paths, each with its end. */
struct paths {
  int32_t count;
  char text[];
};

/* What the child sends of a shard: this, then the faults' lines, then the names. */
struct report {
  int32_t faults, fault_bytes;
  struct shard_info info;
};

/* ---- in the child ---- */

struct lines {
  int32_t count, bytes;
  char text[FAULT_BYTES];
};

static void add_fault(void *context, enum status status) {
  struct lines *lines = context;
  size_t length = strlen(error_message()) + 1;
  if (status == STATUS_OK || length > sizeof lines->text - (size_t)lines->bytes) return;
  memcpy(lines->text + lines->bytes, error_message(), length);
  lines->bytes += (int32_t)length;
  lines->count++;
  error_clear();
}

static bool look(const char *path, int socket, struct lines *lines) {
  char(*name)[DATASET_CLASS_NAME] = NULL;
  struct shard_file *file = NULL;
  struct report report = {.faults = 0};
  lines->count = lines->bytes = 0;
  shard_file_open(path, add_fault, lines, &file);
  if (file && file->info.named) {
    name = calloc((size_t)file->info.classes, sizeof *name);
    if (name)
      add_fault(lines, shard_class_names(file, name));
    else
      add_fault(lines, RAISE(STATUS_INPUT, "no memory for the classes of %s", path));
  }
  if (file) report.info = file->info;
  report.faults = lines->count;
  report.fault_bytes = lines->bytes;
  shard_file_close(file); /* may be what a damaged file makes crash: nothing is sent before */
  bool sent =
      child_put(socket, &report, sizeof report) && child_put(socket, lines->text, (size_t)lines->bytes);
  if (sent && lines->count == 0 && name)
    sent = child_put(socket, name, (size_t)report.info.classes * sizeof *name);
  free(name);
  return sent;
}

static void work(const void *context, int socket) {
  const struct paths *paths = context;
  const char *path = paths->text;
  struct lines *lines = malloc(sizeof *lines);
  for (int i = 0; lines && i < paths->count; i++, path += strlen(path) + 1) {
    child_allow(CHILD_SECONDS);
    if (!look(path, socket, lines)) break;
  }
  free(lines);
}

/* ---- in this process ---- */

enum status shard_info_check(const char *path, const struct shard_info *info) {
  bool good = info->count >= 0 && info->count <= UINT32_MAX && info->height > 0 && info->width > 0 &&
              info->channels >= 1 && info->channels <= 4 && info->height <= SHARD_IMAGE_BYTES &&
              info->width <= SHARD_IMAGE_BYTES && info->classes >= 0 &&
              info->classes <= DATASET_MAX_CLASSES && info->chunk_rows >= 1 && info->file_bytes >= 0;
  int64_t row_bytes = good ? (int64_t)info->height * info->width : 0;
  good = good && row_bytes <= SHARD_IMAGE_BYTES && (row_bytes *= info->channels) <= SHARD_IMAGE_BYTES;
  if (good && info->contiguous)
    good = info->label_bytes >= 1 && info->label_bytes <= 8 && info->image_offset >= 0 &&
           info->label_offset >= 0 && info->count * row_bytes <= info->file_bytes - info->image_offset &&
           info->count * info->label_bytes <= info->file_bytes - info->label_offset;
  if (good && info->named) good = info->classes >= 1;
  if (good) return STATUS_OK;
  return RAISE(STATUS_INPUT, "%s: its metadata is damaged; copy the file again", path);
}

/* Takes one shard's report; false: the child has died or does not make sense. */
static bool take(int socket, struct shard_metadata *metadata) {
  struct report report;
  if (!child_get(socket, &report, sizeof report) || report.faults < 0 || report.fault_bytes < 0 ||
      report.fault_bytes > FAULT_BYTES || (report.faults == 0) != (report.fault_bytes == 0))
    return false;
  metadata->info = report.info;
  metadata->faults = report.faults;
  metadata->fault = calloc(1, (size_t)report.fault_bytes + 1);
  if (!metadata->fault || !child_get(socket, metadata->fault, (size_t)report.fault_bytes)) return false;
  int lines = 0;
  for (int32_t i = 0; i < report.fault_bytes; i++) lines += metadata->fault[i] == '\0';
  if (lines != report.faults) return false;
  if (report.faults > 0) return true;
  if (shard_info_check("", &report.info) != STATUS_OK) return error_clear(), false;
  if (!report.info.named) return true;
  size_t bytes = (size_t)report.info.classes * sizeof *metadata->class_name;
  metadata->class_name = malloc(bytes);
  if (!metadata->class_name || !child_get(socket, metadata->class_name, bytes)) return false;
  for (int i = 0; i < report.info.classes; i++) metadata->class_name[i][DATASET_CLASS_NAME - 1] = '\0';
  return true;
}

/* A child that is to look at all of them. */
static enum status start_child(const struct survey *survey, struct child **child) {
  size_t bytes = sizeof(struct paths);
  for (int i = 0; i < survey->count; i++) bytes += strlen(survey->path[i]) + 1;
  struct paths *paths = calloc(1, bytes);
  if (!paths) return RAISE(STATUS_INPUT, "no memory to read %d shards", survey->count);
  paths->count = survey->count;
  char *end = paths->text;
  for (int i = 0; i < survey->count; i++) end = stpcpy(end, survey->path[i]) + 1;
  enum status status = child_start(work, paths, bytes, CHILD_BYTES, child);
  free(paths);
  return error_trace(status, __func__);
}

/* One child for all of them; *done: reports that came before it died, for which `why` gives the reason. */
static enum status survey_all(const struct survey *survey, struct shard_metadata *metadata, int *done,
                              char why[64]) {
  struct child *child = NULL;
  *done = 0;
  TRY(start_child(survey, &child));
  while (*done < survey->count && take(child_socket(child), &metadata[*done])) (*done)++;
  child_end(child, why, 64);
  return STATUS_OK;
}

/* The child that reads nothing but this shard dies, too. */
static enum status name_fault(const char *path, const char *why, struct shard_metadata *metadata) {
  char line[PATH_MAX + 256];
  int length =
      snprintf(line, sizeof line,
               "%s: the HDF5 library cannot read its metadata: %s; the file is damaged, copy it again", path,
               why[0] ? why : "it ended");
  shard_metadata_free(metadata, 1);
  if (length > 0) metadata->fault = strdup(line);
  if (!metadata->fault) return RAISE(STATUS_INPUT, "no memory to open %s", path);
  metadata->faults = 1;
  return STATUS_OK;
}

enum status shard_survey(const char *const *path, int count, struct shard_metadata *metadata) {
  enum status status = STATUS_OK;
  char why[64];
  memset(metadata, 0, (size_t)count * sizeof *metadata);
  for (int at = 0, done; at < count && status == STATUS_OK; at++) {
    struct survey rest = {path + at, count - at};
    status = survey_all(&rest, metadata + at, &done, why);
    at += done;
    if (status != STATUS_OK || at == count) break;
    struct survey one = {path + at, 1};
    if (done > 0) { /* was it this shard's fault? */
      shard_metadata_free(&metadata[at], 1);
      status = survey_all(&one, &metadata[at], &done, why);
    }
    if (status == STATUS_OK && done == 0) status = name_fault(path[at], why, &metadata[at]);
  }
  return status;
}

void shard_metadata_free(struct shard_metadata *metadata, int count) {
  for (int i = 0; i < count; i++) {
    free(metadata[i].class_name);
    free(metadata[i].fault);
    metadata[i] = (struct shard_metadata){.faults = 0};
  }
}

enum status shard_metadata_refuse(const struct shard_metadata *metadata) {
  return metadata->faults == 0 ? STATUS_OK : RAISE(STATUS_INPUT, "%s", metadata->fault);
}
