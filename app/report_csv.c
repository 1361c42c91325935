/* Columns of a run's logs; see report_parts.h. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/input.h"
#include "app/report_parts.h"

/* The place of a column in the header, -1: not there. */
static int column_of(const char *header, const char *name) {
  size_t length = strlen(name);
  for (int column = 0;; column++) {
    size_t field = strcspn(header, ",\r\n");
    if (field == length && strncmp(header, name, length) == 0) return column;
    if (header[field] != ',') return -1;
    header += field + 1;
  }
}

/* Where the field of a row begins; NULL: it has fewer. */
static const char *field_at(const char *row, int column) {
  for (; column > 0; column--) {
    row += strcspn(row, ",\r\n");
    if (*row != ',') return NULL;
    row++;
  }
  return row;
}

static bool has_value(const char *row, int column, const char *value) {
  const char *field = field_at(row, column);
  size_t length = strlen(value);
  return field && strcspn(field, ",\r\n") == length && strncmp(field, value, length) == 0;
}

/* Reads the field of a row: NAN if it is empty; false if it is no number. */
static bool field_of(const char *row, int column, double *value) {
  row = field_at(row, column);
  if (!row) return false;
  size_t length = strcspn(row, ",\r\n");
  char *end;
  *value = NAN;
  if (length == 0) return true;
  *value = strtod(row, &end);
  return end == row + length;
}

static enum status append(struct report_series *series, int64_t *capacity, double x, double y) {
  if (series->count == *capacity) {
    int64_t grown = 2 * *capacity + 256;
    double *memory = malloc(2 * (size_t)grown * sizeof *memory);
    if (!memory) return RAISE(STATUS_INPUT, "no memory for a log of %lld rows", (long long)grown);
    for (int64_t i = 0; i < series->count; i++) {
      memory[i] = series->x[i];
      memory[grown + i] = series->y[i];
    }
    free(series->x);
    series->x = memory;
    series->y = memory + grown;
    *capacity = grown;
  }
  series->x[series->count] = x;
  series->y[series->count++] = y;
  return STATUS_OK;
}

/* Means of neighbours, so that at most REPORT_POINTS remain. */
static void thin(struct report_series *series) {
  int64_t group = (series->count + REPORT_POINTS - 1) / REPORT_POINTS, out = 0;
  if (group <= 1) return;
  for (int64_t first = 0; first < series->count; first += group) {
    int64_t last = first + group < series->count ? first + group : series->count;
    double x = 0, y = 0;
    for (int64_t i = first; i < last; i++) {
      x += series->x[i];
      y += series->y[i];
    }
    series->x[out] = x / (double)(last - first);
    series->y[out++] = y / (double)(last - first);
  }
  series->count = out;
}

enum status report_read(const char *path, const char *x, const char *y, const char *key, const char *value,
                        struct report_series *series) {
  enum status status = STATUS_OK;
  char *line = NULL;
  size_t room = 0;
  int64_t capacity = 0;
  long long number = 1;
  *series = (struct report_series){0};
  char reason[INPUT_REASON];
  int64_t bytes;
  FILE *file = input_open(path, &bytes, reason);
  if (!file && errno == ENOENT) return STATUS_OK;
  if (!file) return RAISE(STATUS_INPUT, "%s cannot be read: %s", path, reason);
  int at_x = -1, at_y = -1, at_key = -1;
  if (getline(&line, &room, file) > 0) {
    at_x = column_of(line, x);
    at_y = column_of(line, y);
    if (key) at_key = column_of(line, key);
  }
  if (at_x < 0 || at_y < 0 || (key && at_key < 0))
    TRY_OUT(RAISE(STATUS_INPUT, "%s: no columns %s%s%s and %s in its first line", path, key ? key : "",
                  key ? ", " : "", x, y));
  while (getline(&line, &room, file) > 0) {
    double a, b;
    number++;
    if (key && !has_value(line, at_key, value)) continue;
    if (!strchr(line, '\n')) break; /* a row that is being written */
    if (!field_of(line, at_x, &a) || !field_of(line, at_y, &b))
      TRY_OUT(RAISE(STATUS_INPUT, "%s:%lld: expected numbers for %s and %s", path, number, x, y));
    if (isfinite(a) && isfinite(b)) TRY_OUT(append(series, &capacity, a, b));
  }
  thin(series);
out:
  free(line);
  fclose(file);
  if (status != STATUS_OK) report_series_destroy(series);
  return status;
}

void report_series_destroy(struct report_series *series) {
  free(series->x);
  *series = (struct report_series){0};
}
