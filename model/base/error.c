/* The error record of each thread: one line, a few lines of detail, the functions it passed through. */
#include "model/base/error.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/log.h"

static _Thread_local struct error_record record;

static void append(char *text, size_t capacity, const char *prefix, const char *format, va_list arguments) {
  size_t used = strlen(text);
  int written = snprintf(text + used, capacity - used, "%s", prefix);
  if (written < 0 || (size_t)written >= capacity - used) return;
  used += (size_t)written;
  vsnprintf(text + used, capacity - used, format, arguments);
}

enum status error_raise(enum status status, const char *function, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char message[sizeof record.message]; /* the arguments may point into the record */
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  memcpy(record.message, message, sizeof message);
  log_one_line(record.message);
  record.detail[0] = '\0';
  snprintf(record.trace, sizeof record.trace, "%s", function);
  return status;
}

enum status error_trace(enum status status, const char *function) {
  size_t used = strlen(record.trace);
  snprintf(record.trace + used, sizeof record.trace - used, " < %s", function);
  return status;
}

void error_detail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  append(record.detail, sizeof record.detail, record.detail[0] ? "\n  " : "  ", format, arguments);
  va_end(arguments);
}

const char *error_message(void) {
  return record.message;
}

void error_clear(void) {
  record.message[0] = '\0';
  record.detail[0] = '\0';
  record.trace[0] = '\0';
}

void error_save(struct error_record *saved) {
  *saved = record;
}

void error_restore(const struct error_record *saved) {
  record = *saved;
}

void error_print(FILE *stream) {
  if (!record.message[0]) return;
  fprintf(stream, "error: %s\n", record.message);
  if (record.detail[0]) fprintf(stream, "%s\n", record.detail);
  if (getenv("CONVOY_TRACE")) fprintf(stream, "  in %s\n", record.trace);
  fflush(stream);
}
