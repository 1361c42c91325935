/* loss.csv and epochs.csv: rows are appended with one write each; a resumed run first loses those that it
 * repeats. */
#include "app/runlog_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/durable.h"
#include "model/base/file.h"
#include "model/base/log.h"

static int columns(const char *line, size_t length) {
  int count = 1;
  for (size_t i = 0; i < length; i++) count += line[i] == ',';
  return count;
}

/* The whole number in a column, -1 if there is none. */
static int64_t column(const char *line, size_t length, int index) {
  size_t at = 0;
  for (; index > 0 && at < length; at++) index -= line[at] == ',';
  char *end;
  long long value = strtoll(line + at, &end, 10);
  return end == line + at || (*end != ',' && *end != '\n') || value < 0 ? -1 : value;
}

static bool plausible(const char *line, size_t length, const struct runlog_csv *csv) {
  for (size_t i = 0; i < length; i++)
    if (!line[i] || !strchr("0123456789+-.e,", line[i])) return false;
  return columns(line, length) == columns(csv->header, strlen(csv->header)) &&
         column(line, length, csv->step_column) >= 0;
}

/* Moves the rows that stay to the front of text[bytes], which ends in a zero; returns their bytes. */
static size_t keep_rows(char *text, size_t bytes, const struct runlog_csv *csv, int64_t step, int64_t epoch,
                        int *damaged) {
  size_t header = strlen(csv->header) + 1, kept = header, at = header;
  int64_t last = -1;
  while (at < bytes) {
    const char *line = text + at, *end = memchr(line, '\n', bytes - at);
    if (!end) break; /* torn */
    size_t length = (size_t)(end - line);
    at += length + 1;
    if (!plausible(line, length, csv)) {
      ++*damaged;
      continue;
    }
    int64_t row = column(line, length, csv->step_column);
    if (row > step || row <= last) continue;
    if (csv->epoch_column >= 0 && column(line, length, csv->epoch_column) > epoch) continue;
    last = row;
    memmove(text + kept, line, length + 1);
    kept += length + 1;
  }
  return kept;
}

/* The file's content, with a zero behind it; the caller frees it. */
static enum status read_all(int fd, const char *path, size_t bytes, char **text, size_t *read_bytes) {
  char *data = malloc(bytes + 1);
  size_t used;
  if (!data) return RAISE(STATUS_INPUT, "out of memory while reading %s (%zu bytes)", path, bytes);
  int failed = file_read(fd, data, bytes, &used);
  if (failed) {
    free(data);
    return RAISE(STATUS_STORAGE, "cannot read %s: %s", path, strerror(failed));
  }
  data[used] = '\0';
  *text = data;
  *read_bytes = used;
  return STATUS_OK;
}

/* Cuts a former log; what is no regular file is left alone. */
static enum status cut(int fd, const char *path, const struct runlog_csv *csv, int64_t step, int64_t epoch) {
  struct stat info;
  char *text;
  size_t bytes, header = strlen(csv->header), kept = 0;
  int damaged = 0;
  if (fstat(fd, &info) != 0) return RAISE(STATUS_STORAGE, "cannot read %s: %s", path, strerror(errno));
  if (S_ISFIFO(info.st_mode)) /* to open it for writing would wait for a reader */
    return RAISE(STATUS_INPUT, "%s is a pipe; expected a file: move it away or give another --out", path);
  if (!S_ISREG(info.st_mode) || info.st_size == 0) return STATUS_OK;
  TRY(read_all(fd, path, (size_t)info.st_size, &text, &bytes));
  enum status status = STATUS_OK;
  bool torn = bytes <= header && memcmp(text, csv->header, bytes) == 0;
  if (!torn && (bytes <= header || memcmp(text, csv->header, header) != 0 || text[header] != '\n')) {
    status = RAISE(STATUS_INPUT, "%s does not begin with '%s': move it away or give another --out", path,
                   csv->header);
    goto out;
  }
  if (!torn) kept = keep_rows(text, bytes, csv, step, epoch, &damaged);
  if (damaged) log_warning("%s: %d damaged rows are dropped", path, damaged);
  struct durable_part part = {text, kept};
  if (kept != bytes) TRY_OUT(durable_write(path, &part, 1));
out:
  free(text);
  return status;
}

enum status runlog_csv_open(const char *path, const struct runlog_csv *csv, int64_t step, int64_t epoch,
                            int *result) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && errno != ENOENT) return RAISE(STATUS_STORAGE, "cannot read %s: %s", path, strerror(errno));
  if (fd >= 0) {
    enum status status = cut(fd, path, csv, step, epoch);
    close(fd);
    if (status != STATUS_OK) return error_trace(status, __func__);
  }
  fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  struct stat info;
  if (fd < 0 || fstat(fd, &info) != 0) {
    enum status status = durable_cannot_open(path, errno);
    if (fd >= 0) close(fd);
    return status;
  }
  if (info.st_size == 0) {
    char line[256];
    int length = snprintf(line, sizeof line, "%s\n", csv->header);
    enum status status = runlog_csv_append(fd, path, line, (size_t)length);
    if (status != STATUS_OK) {
      close(fd);
      return error_trace(status, __func__);
    }
  }
  *result = fd;
  return STATUS_OK;
}

enum status runlog_csv_append(int fd, const char *path, const char *line, size_t length) {
  size_t done;
  int failed = file_write(fd, line, length, &done);
  if (!failed) return STATUS_OK;
  struct stat info; /* takes back a part of a row */
  bool cut_back = done == 0 || (fstat(fd, &info) == 0 && ftruncate(fd, info.st_size - (off_t)done) == 0);
  return RAISE(STATUS_STORAGE, "cannot write %s: %s%s", path, strerror(failed),
               cut_back ? "" : " (its last row is torn)");
}
