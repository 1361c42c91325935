/* A run's folder from opening to closing; see runlog.h. */
#include "app/runlog_parts.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/checkpoint.h"
#include "model/base/folder.h"

static const struct runlog_csv loss_csv = {"step,epoch,loss,lr,images_per_s,seconds", 0, -1};
static const struct runlog_csv epochs_csv = {
    "epoch,step,train_loss,train_accuracy,test_loss,test_accuracy,images_per_s,seconds", 1, 0};

/* The first three are removed by --overwrite; the others end or stay with their users. */
static const char *const own_names[] = {"loss.csv", "epochs.csv", "run.json", "lock", "checkpoints"};
enum { OWN_NAMES = sizeof own_names / sizeof *own_names, OWN_FILES = 3 };

bool runlog_owns(const char *name) {
  for (int i = 0; i < OWN_NAMES; i++)
    if (strcmp(own_names[i], name) == 0) return true;
  return false;
}

const char *runlog_path(const struct runlog *runlog, const char *name, char path[PATH_MAX]) {
  if (snprintf(path, PATH_MAX, "%s/%s", runlog->out, name) >= PATH_MAX) path[PATH_MAX - 1] = '\0';
  return path;
}

const char *runlog_checkpoints(const struct runlog *runlog) {
  return runlog->checkpoints;
}

/* ---- the folder ---- */

/* An entry of `path` other than those that count as nothing; "" if there is none or no such folder. */
static enum status first_entry(const char *path, const char *const *ignored, char found[256]) {
  found[0] = '\0';
  DIR *folder = opendir(path);
  if (!folder && errno == ENOENT) return STATUS_OK;
  if (!folder)
    return RAISE(errno == ENOTDIR ? STATUS_INPUT : STATUS_STORAGE, "cannot use %s as the run's folder: %s",
                 path, strerror(errno));
  const char *name;
  int failed;
  while ((failed = folder_next(folder, &name)) == 0 && name && !found[0]) {
    bool counts = true;
    for (int i = 0; ignored[i]; i++) counts &= strcmp(name, ignored[i]) != 0;
    if (counts) snprintf(found, 256, "%s", name);
  }
  closedir(folder);
  if (failed) return RAISE(STATUS_STORAGE, "cannot read the folder %s: %s", path, strerror(failed));
  return STATUS_OK;
}

/* What an aborted start leaves, a free lock and an empty checkpoints/, counts as nothing. */
static enum status check_contents(const char *out, enum runlog_mode mode) {
  static const char *const ours[] = {"lock", "checkpoints", NULL}, *const none[] = {NULL};
  char found[256], inner[PATH_MAX];
  TRY(first_entry(out, ours, found));
  if (mode != RUNLOG_NEW) return STATUS_OK;
  if (!found[0] && snprintf(inner, sizeof inner, "%s/checkpoints", out) < (int)sizeof inner)
    TRY(first_entry(inner, none, found));
  if (!found[0]) return STATUS_OK;
  return RAISE(
      STATUS_INPUT,
      "%s is not empty (it has %s): --resume continues that run, --overwrite replaces it, or give another "
      "--out",
      out, found);
}

enum status runlog_check(const char *out, enum runlog_mode mode) {
  if (!out[0] || strlen(out) > PATH_MAX - 300)
    return RAISE(STATUS_INPUT, "--out must name a folder, found '%.60s' (%zu bytes)", out, strlen(out));
  TRY(runlog_lock_ask(out));
  return check_contents(out, mode);
}

enum status runlog_open(const char *out, enum runlog_mode mode, struct runlog **result) {
  TRY(runlog_check(out, mode));
  struct runlog *runlog = calloc(1, sizeof *runlog);
  if (!runlog) return RAISE(STATUS_INPUT, "out of memory");
  *runlog = (struct runlog){.mode = mode, .lock = -1, .loss = -1, .epochs = -1};
  snprintf(runlog->out, sizeof runlog->out, "%s", out);
  enum status status = STATUS_OK;
  if (!(runlog->locale = newlocale(LC_ALL_MASK, "C", (locale_t)0))) {
    status = RAISE(STATUS_INTERNAL, "the C locale is missing: %s", strerror(errno));
    goto out;
  }
  TRY_OUT(folder_make(out, &runlog->made));
  TRY_OUT(runlog_lock_take(out, &runlog->lock));
  TRY_OUT(check_contents(out, mode)); /* again, now that nobody else can change it */
  runlog_path(runlog, "checkpoints", runlog->checkpoints);
  TRY_OUT(folder_make(runlog->checkpoints, NULL));
  *result = runlog;
  runlog = NULL;
out:
  runlog_close(runlog);
  return status;
}

void runlog_close(struct runlog *runlog) {
  if (!runlog) return;
  if (runlog->loss >= 0) close(runlog->loss);
  if (runlog->epochs >= 0) close(runlog->epochs);
  runlog_lock_release(runlog->out, runlog->lock);
  if (runlog->checkpoints[0]) rmdir(runlog->checkpoints); /* as far as it is empty */
  folder_remove(runlog->out, runlog->made);
  if (runlog->locale) freelocale(runlog->locale);
  cJSON_Delete(runlog->json);
  free(runlog);
}

/* ---- the logs ---- */

static enum status remove_former(struct runlog *runlog) {
  char name[32], path[PATH_MAX];
  TRY(checkpoint_remove_all(runlog->checkpoints));
  for (int i = 0; i < 2 * OWN_FILES; i++) {
    snprintf(name, sizeof name, "%s%s", own_names[i / 2], i % 2 ? ".tmp" : "");
    if (unlink(runlog_path(runlog, name, path)) != 0 && errno != ENOENT)
      return RAISE(STATUS_STORAGE, "cannot delete %s: %s", path, strerror(errno));
  }
  return STATUS_OK;
}

enum status runlog_start(struct runlog *runlog, int64_t step, int64_t epochs) {
  char path[PATH_MAX];
  if (runlog->mode == RUNLOG_OVERWRITE) TRY(remove_former(runlog));
  TRY(runlog_csv_open(runlog_path(runlog, "loss.csv", path), &loss_csv, step, epochs, &runlog->loss));
  return runlog_csv_open(runlog_path(runlog, "epochs.csv", path), &epochs_csv, step, epochs, &runlog->epochs);
}

/* Two whole numbers and `count` reals as one row; a non-finite real is an empty field. */
static enum status append_row(struct runlog *runlog, int fd, const char *name, int64_t first, int64_t second,
                              const double *reals, int count) {
  char line[512], path[PATH_MAX];
  runlog_path(runlog, name, path);
  if (fd < 0) return RAISE(STATUS_INTERNAL, "%s is not open", path);
  locale_t former = uselocale(runlog->locale);
  int used = snprintf(line, sizeof line, "%" PRId64 ",%" PRId64, first, second);
  for (int i = 0; i < count; i++) {
    size_t left = sizeof line - (size_t)used;
    used += isfinite(reals[i]) ? snprintf(line + used, left, ",%.9g", reals[i])
                               : snprintf(line + used, left, ",");
  }
  uselocale(former);
  line[used++] = '\n';
  return runlog_csv_append(fd, path, line, (size_t)used);
}

enum status runlog_loss(struct runlog *runlog, const struct runlog_loss *row) {
  const double reals[] = {row->loss, row->lr, row->images_per_s, row->seconds};
  return append_row(runlog, runlog->loss, "loss.csv", row->step, row->epoch, reals, 4);
}

enum status runlog_epoch(struct runlog *runlog, const struct runlog_epoch *row) {
  const double reals[] = {row->train_loss,    row->train_accuracy, row->test_loss,
                          row->test_accuracy, row->images_per_s,   row->seconds};
  return append_row(runlog, runlog->epochs, "epochs.csv", row->epoch, row->step, reals, 6);
}

static enum status sync_one(struct runlog *runlog, int fd, const char *name) {
  char path[PATH_MAX];
  if (fd < 0 || fdatasync(fd) == 0 || errno == EINVAL || errno == ENOTSUP) return STATUS_OK;
  return RAISE(STATUS_STORAGE, "cannot write %s: %s", runlog_path(runlog, name, path), strerror(errno));
}

enum status runlog_sync(struct runlog *runlog) {
  TRY(sync_one(runlog, runlog->loss, "loss.csv"));
  return sync_one(runlog, runlog->epochs, "epochs.csv");
}
