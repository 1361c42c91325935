/* The config file: `name = value` lines, the names those of the options, read with inih. */
#include "app/input.h"
#include "app/options.h"

#include <ini.h>
#include <string.h>

/* What inih hands back on each line. It reports no line numbers to handlers, so the reader counts. */
struct reading {
  const struct option_table *table;
  const char *path;
  void *values;
  FILE *file;
  int line;
  enum status status;
};

static char *read_line(char *text, int capacity, void *stream) {
  struct reading *reading = stream;
  if (reading->status != STATUS_OK || !fgets(text, capacity, reading->file)) return NULL;
  reading->line++;
  size_t length = strlen(text);
  if (length > 0 && text[length - 1] != '\n' && !feof(reading->file)) {
    reading->status = RAISE(STATUS_INPUT, "%s:%d: the line is longer than %d characters; shorten it",
                            reading->path, reading->line, capacity - 2);
    return NULL;
  }
  size_t blank = strspn(text, " \t"); /* an indented line would continue the one above it */
  memmove(text, text + blank, length - blank + 1);
  return text;
}

static enum status set_key(struct reading *reading, const char *section, const char *name, const char *text) {
  char origin[OPTION_TEXT + 128];
  snprintf(origin, sizeof origin, "%s:%d", reading->path, reading->line);
  if (section[0] != '\0')
    return RAISE(STATUS_INPUT, "%s: found section [%s]; expected only lines `name = value`", origin, section);
  const struct option_row *row = options_find(reading->table, name);
  if (!row || (row->flags & OPTION_OPERAND)) return options_unknown(reading->table, origin, name);
  if (row->flags & (OPTION_CONFIG | OPTION_NOT_IN_FILE))
    return RAISE(STATUS_INPUT, "%s: '%s' belongs on the command line, not in a file", origin, name);
  snprintf(origin, sizeof origin, "%s:%d: %s", reading->path, reading->line, name);
  return options_set(row, origin, text, reading->values);
}

static int handle_key(void *user, const char *section, const char *name, const char *text) {
  struct reading *reading = user;
  if (reading->status == STATUS_OK) reading->status = set_key(reading, section, name, text);
  return reading->status == STATUS_OK;
}

enum status config_read(const struct option_table *table, const char *path, void *values) {
  struct reading reading = {.table = table, .path = path, .values = values};
  char reason[INPUT_REASON];
  int64_t bytes;
  reading.file = input_open(path, &bytes, reason);
  if (!reading.file)
    return RAISE(STATUS_INPUT, "cannot open config file %s: %s; expected a file, which each rank reads", path,
                 reason);
  int fault = ini_parse_stream(read_line, &reading, handle_key, &reading);
  bool unreadable = ferror(reading.file) != 0;
  fclose(reading.file);
  if (reading.status != STATUS_OK) return error_trace(reading.status, __func__);
  if (unreadable) return RAISE(STATUS_INPUT, "cannot read config file %s: is it a file?", path);
  if (fault > 0) return RAISE(STATUS_INPUT, "%s:%d: found no `name = value`", path, fault);
  if (fault < 0) return RAISE(STATUS_INTERNAL, "%s: inih failed with %d", path, fault);
  return STATUS_OK;
}
