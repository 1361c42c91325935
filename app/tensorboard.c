/* TensorBoard's event files; see tensorboard.h.
 *
 * A file is a TFRecord file (tensorflow/core/lib/io/record_writer.h): the length in 8 bytes, its checksum,
 * the data, its checksum; numbers little-endian, checksums CRC-32C (RFC 3720), rotated and shifted. Each
 * record is an Event (tensorflow/core/util/event.proto) with a Summary
 * (tensorflow/core/framework/summary.proto). */
#include "app/tensorboard.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "app/output.h"
#include "model/base/file.h"
#include "model/base/folder.h"
#include "model/base/log.h"

static const char prefix[] = "events.out.tfevents.", suffix[] = ".convoy";

/* Fields of Event, SessionLog, Summary.Value, SummaryMetadata and TensorProto. */
enum event { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SESSION_STATUS = 1, SESSION_START = 1, SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2 };
enum { VALUE_TENSOR = 8, VALUE_METADATA = 9, METADATA_PLUGIN = 1, PLUGIN_NAME = 1 };
enum { TENSOR_TYPE = 1, TENSOR_SHAPE = 2, TENSOR_STRING = 8, TYPE_STRING = 7 };

struct tensorboard {
  char path[PATH_MAX];
  int fd;
  off_t bytes; /* of whole records */
  bool told;
  uint32_t crc[256];
};

/* ---- records ---- */

static void make_table(uint32_t table[256]) {
  for (uint32_t i = 0; i < 256; i++) {
    table[i] = i;
    for (int bit = 0; bit < 8; bit++) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0x82f63b78 : 0);
  }
}

static void put_checksum(const struct tensorboard *t, const uint8_t *data, size_t bytes, uint8_t out[4]) {
  uint32_t crc = 0xffffffff;
  for (size_t i = 0; i < bytes; i++) crc = crc >> 8 ^ t->crc[(crc ^ data[i]) & 0xff];
  crc = ~crc;
  crc = (crc >> 15 | crc << 17) + 0xa282ead8;
  for (int i = 0; i < 4; i++) out[i] = (uint8_t)(crc >> 8 * i);
}

/* Appends the event as a record and destroys it. A record that does not fit leaves nothing behind. */
static enum status append(struct tensorboard *t, struct protobuf *event) {
  size_t bytes = event->bytes;
  int failed = event->failed ? ENOMEM : 0;
  uint8_t *record = failed ? NULL : malloc(bytes + 16);
  if (record) {
    for (int i = 0; i < 8; i++) record[i] = (uint8_t)((uint64_t)bytes >> 8 * i);
    put_checksum(t, record, 8, record + 8);
    memcpy(record + 12, event->data, bytes);
    put_checksum(t, event->data, bytes, record + 12 + bytes);
    failed = file_write(t->fd, record, bytes + 16, NULL);
  } else {
    failed = ENOMEM;
  }
  free(record);
  protobuf_destroy(event);
  if (!failed) {
    t->bytes += (off_t)bytes + 16;
    return STATUS_OK;
  }
  if (ftruncate(t->fd, t->bytes) == 0) lseek(t->fd, t->bytes, SEEK_SET);
  return RAISE(STATUS_STORAGE, "cannot write %s: %s", t->path, strerror(failed));
}

static struct protobuf event_at(int64_t step) {
  struct protobuf event = {0};
  struct timeval now;
  gettimeofday(&now, NULL);
  protobuf_double(&event, EVENT_TIME, (double)now.tv_sec + 1e-6 * (double)now.tv_usec);
  protobuf_integer(&event, EVENT_STEP, step);
  return event;
}

void tensorboard_summary(struct tensorboard *t, int64_t step, struct protobuf *summary) {
  if (!t || summary->bytes == 0) {
    protobuf_destroy(summary);
    return;
  }
  struct protobuf event = event_at(step);
  protobuf_message(&event, EVENT_SUMMARY, summary);
  if (append(t, &event) == STATUS_OK) return;
  if (!t->told) log_warning("%s; the run goes on", error_message());
  t->told = true;
  error_clear();
}

/* ---- the folder ---- */

static const long long last_second = 9999999999; /* of the ten digits that a name has */

/* Whether it is an event file's name, and of what second; *ours: Convoy made it. */
static bool is_event_file(const char *name, long long *second, bool *ours) {
  size_t length = strlen(name), tail = sizeof suffix - 1;
  if (strncmp(name, prefix, sizeof prefix - 1) != 0) return false;
  *second = strtoll(name + sizeof prefix - 1, NULL, 10);
  *ours = length > tail && strcmp(name + length - tail, suffix) == 0;
  return true;
}

/* Looks at the event files of a folder: an example (""), the newest second that can be meant. With
 * `remove_ours` those that Convoy made are deleted and not counted. */
static enum status survey(const char *folder, bool remove_ours, char found[NAME_MAX + 1], long long *newest) {
  enum status status = STATUS_OK;
  found[0] = '\0';
  *newest = 0;
  DIR *entries = opendir(folder);
  if (!entries && errno == ENOENT) return STATUS_OK;
  if (!entries)
    return RAISE(errno == ENOTDIR ? STATUS_INPUT : STATUS_STORAGE,
                 "cannot use --tensorboard %s as a folder: %s", folder, strerror(errno));
  const char *name;
  int failed;
  while ((failed = folder_next(entries, &name)) == 0 && name) {
    long long second;
    bool ours;
    if (!is_event_file(name, &second, &ours)) continue;
    if (remove_ours && ours) {
      if (unlinkat(dirfd(entries), name, 0) != 0)
        TRY_OUT(RAISE(STATUS_STORAGE, "cannot delete %s/%s: %s", folder, name, strerror(errno)));
      continue;
    }
    snprintf(found, NAME_MAX + 1, "%s", name);
    if (second > *newest && second <= last_second) *newest = second;
  }
  if (failed) status = RAISE(STATUS_STORAGE, "cannot read the folder %s: %s", folder, strerror(failed));
out:
  closedir(entries);
  return status;
}

enum status tensorboard_check(const char *folder, enum runlog_mode mode) {
  char found[NAME_MAX + 1];
  long long newest;
  TRY(output_check_name(folder));
  TRY(survey(folder, false, found, &newest));
  if (mode != RUNLOG_NEW || !found[0]) return STATUS_OK;
  return RAISE(STATUS_INPUT,
               "--tensorboard %s has event files of another run (%s); give each run a folder of its own, or "
               "--overwrite",
               folder, found);
}

/* The two records that every file begins with. */
static enum status begin(struct tensorboard *t, int64_t step) {
  struct protobuf version = event_at(0), start = event_at(step > 0 ? step + 1 : 0), session = {0};
  protobuf_text(&version, EVENT_VERSION, "brain.Event:2");
  protobuf_integer(&session, SESSION_STATUS, SESSION_START);
  protobuf_message(&start, EVENT_SESSION, &session);
  enum status status = append(t, &version);
  if (status != STATUS_OK) {
    protobuf_destroy(&start);
    return error_trace(status, __func__);
  }
  TRY(append(t, &start));
  return STATUS_OK;
}

enum status tensorboard_open(const char *folder, enum runlog_mode mode, int64_t step,
                             struct tensorboard **tensorboard) {
  char found[NAME_MAX + 1], host[64] = "";
  long long newest, second = (long long)time(NULL);
  TRY(folder_make(folder, NULL));
  TRY(survey(folder, mode == RUNLOG_OVERWRITE, found, &newest));
  if (second <= newest) second = newest + 1;
  gethostname(host, sizeof host - 1);
  struct tensorboard *t = calloc(1, sizeof *t);
  if (!t) return RAISE(STATUS_INPUT, "no memory for --tensorboard");
  enum status status = STATUS_OK;
  if (snprintf(t->path, sizeof t->path, "%s/%s%010lld.%s%s", folder, prefix, second, host, suffix) >=
      (int)sizeof t->path)
    TRY_OUT(RAISE(STATUS_STORAGE, "--tensorboard %.100s…: the path is too long", folder));
  make_table(t->crc);
  t->fd = open(t->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (t->fd < 0) TRY_OUT(RAISE(STATUS_STORAGE, "cannot write %s: %s", t->path, strerror(errno)));
  status = begin(t, step);
  if (status != STATUS_OK) {
    close(t->fd);
    unlink(t->path);
    TRY_OUT(status);
  }
  *tensorboard = t;
  t = NULL;
out:
  free(t);
  return status;
}

void tensorboard_close(struct tensorboard *t) {
  if (!t) return;
  close(t->fd);
  free(t);
}

/* ---- values ---- */

/* The number that stands in the log, as float; none if it is not finite. */
static void add_scalar(struct protobuf *summary, const char *tag, double number) {
  char text[40];
  struct protobuf value = {0};
  if (!isfinite(number)) return;
  snprintf(text, sizeof text, "%.9g", number);
  protobuf_text(&value, VALUE_TAG, tag);
  protobuf_float(&value, VALUE_SIMPLE, (float)strtod(text, NULL));
  protobuf_message(summary, SUMMARY_VALUE, &value);
}

void tensorboard_loss(struct tensorboard *t, const struct runlog_loss *row) {
  struct protobuf summary = {0};
  if (!t) return;
  add_scalar(&summary, "train/loss", row->loss);
  add_scalar(&summary, "train/lr", row->lr);
  add_scalar(&summary, "train/images_per_s", row->images_per_s);
  tensorboard_summary(t, row->step, &summary);
}

void tensorboard_epoch(struct tensorboard *t, const struct runlog_epoch *row) {
  struct protobuf summary = {0};
  if (!t) return;
  add_scalar(&summary, "epoch/train_loss", row->train_loss);
  add_scalar(&summary, "epoch/train_accuracy", row->train_accuracy);
  add_scalar(&summary, "epoch/test_loss", row->test_loss);
  add_scalar(&summary, "epoch/test_accuracy", row->test_accuracy);
  add_scalar(&summary, "epoch/images_per_s", row->images_per_s);
  tensorboard_summary(t, row->step, &summary);
}

void tensorboard_text(struct tensorboard *t, const char *tag, int64_t step, const char *text) {
  struct protobuf summary = {0}, value = {0}, metadata = {0}, plugin = {0}, tensor = {0}, shape = {0};
  protobuf_text(&plugin, PLUGIN_NAME, "text");
  protobuf_message(&metadata, METADATA_PLUGIN, &plugin);
  protobuf_integer(&tensor, TENSOR_TYPE, TYPE_STRING);
  protobuf_message(&tensor, TENSOR_SHAPE, &shape); /* a scalar: no dimensions */
  protobuf_text(&tensor, TENSOR_STRING, text);
  protobuf_text(&value, VALUE_TAG, tag);
  protobuf_message(&value, VALUE_TENSOR, &tensor);
  protobuf_message(&value, VALUE_METADATA, &metadata);
  protobuf_message(&summary, SUMMARY_VALUE, &value);
  tensorboard_summary(t, step, &summary);
}
