/* run.json: what a run is, and how it ended. Numbers are written here, not by cJSON, so that 64-bit integers
 * keep all digits and neither locale nor a non-finite value can spoil the file. */
#include "app/runlog_parts.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "app/durable.h"
#include "app/input.h"
#include "app/utf8.h"

struct runlog_value runlog_text(const char *name, const char *text) {
  return (struct runlog_value){.name = name, .type = RUNLOG_TEXT, .text = text};
}
struct runlog_value runlog_integer(const char *name, int64_t integer) {
  return (struct runlog_value){.name = name, .type = RUNLOG_INTEGER, .integer = integer};
}
struct runlog_value runlog_real(const char *name, double real) {
  return (struct runlog_value){.name = name, .type = RUNLOG_REAL, .real = real};
}
struct runlog_value runlog_bool(const char *name, bool value) {
  return (struct runlog_value){.name = name, .type = RUNLOG_BOOL, .integer = value};
}
struct runlog_value runlog_texts(const char *name, const char *const *texts, int count) {
  return (struct runlog_value){.name = name, .type = RUNLOG_TEXT, .count = count, .texts = texts};
}
struct runlog_value runlog_reals(const char *name, const double *reals, int count) {
  return (struct runlog_value){.name = name, .type = RUNLOG_REAL, .count = count, .reals = reals};
}

static cJSON *text_node(const char *text) {
  return text ? cJSON_CreateString(text) : cJSON_CreateNull();
}

/* The shortest of 9, 15 or 17 digits that reads back as the same number. The locale is "C" here. */
static cJSON *real_node(double real) {
  char text[64];
  if (!isfinite(real)) return cJSON_CreateNull();
  static const int digits[] = {9, 15, 17};
  for (int i = 0; i < 3; i++) {
    snprintf(text, sizeof text, "%.*g", digits[i], real);
    if (strtod(text, NULL) == real) break;
  }
  return cJSON_CreateRaw(text);
}

static cJSON *one_node(enum runlog_type type, const char *text, int64_t integer, double real) {
  char number[32];
  switch (type) {
  case RUNLOG_TEXT:
    return text_node(text);
  case RUNLOG_REAL:
    return real_node(real);
  case RUNLOG_BOOL:
    return cJSON_CreateBool(integer != 0);
  case RUNLOG_INTEGER:
    snprintf(number, sizeof number, "%" PRId64, integer);
    break;
  }
  return cJSON_CreateRaw(number);
}

static cJSON *value_node(const struct runlog_value *value) {
  if (value->count == 0) return one_node(value->type, value->text, value->integer, value->real);
  cJSON *list = cJSON_CreateArray();
  for (int i = 0; list && i < value->count; i++) {
    cJSON *node = one_node(value->type, value->texts ? value->texts[i] : NULL,
                           value->integers ? value->integers[i] : 0, value->reals ? value->reals[i] : 0);
    if (!node || !cJSON_AddItemToArray(list, node)) {
      cJSON_Delete(node);
      cJSON_Delete(list);
      return NULL;
    }
  }
  return list;
}

/* Adds or replaces a member; takes `node`, which may be NULL: failed. */
static bool set_member(cJSON *object, const char *name, cJSON *node) {
  if (!node) return false;
  cJSON_DeleteItemFromObjectCaseSensitive(object, name);
  if (cJSON_AddItemToObject(object, name, node)) return true;
  cJSON_Delete(node);
  return false;
}

static bool set_section(cJSON *object, const char *name, const struct runlog_value *values, int count) {
  cJSON *section = cJSON_CreateObject();
  bool good = section != NULL;
  for (int i = 0; good && i < count; i++) good = set_member(section, values[i].name, value_node(&values[i]));
  if (good) return set_member(object, name, section);
  cJSON_Delete(section);
  return false;
}

static cJSON *time_node(void) {
  char text[32];
  time_t now = time(NULL);
  struct tm parts;
  if (!gmtime_r(&now, &parts) || !strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)) return NULL;
  return cJSON_CreateString(text);
}

static enum status out_of_memory(const struct runlog *runlog) {
  return RAISE(STATUS_INPUT, "out of memory while describing the run in %s", runlog->out);
}

static enum status json_write(struct runlog *runlog) {
  char path[PATH_MAX];
  char *text = cJSON_Print(runlog->json);
  if (!text) return out_of_memory(runlog);
  utf8_mend(text);
  const struct durable_part parts[] = {{text, strlen(text)}, {"\n", 1}};
  enum status status = durable_write(runlog_path(runlog, "run.json", path), parts, 2);
  cJSON_free(text);
  return status;
}

/* When the run that is resumed was started: from its run.json, now if that does not say. */
static cJSON *start_node(const struct runlog *runlog) {
  char path[PATH_MAX], *text = NULL;
  cJSON *json = NULL, *start = NULL;
  if (runlog->mode != RUNLOG_RESUME) return time_node();
  char reason[INPUT_REASON];
  int64_t size;
  FILE *file = input_open(runlog_path(runlog, "run.json", path), &size, reason);
  if (!file) return time_node();
  size_t capacity = 1 << 20, bytes = 0;
  if ((text = malloc(capacity + 1))) bytes = fread(text, 1, capacity, file);
  if (text) text[bytes] = '\0';
  if (text && (json = cJSON_Parse(text))) {
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "started"));
    if (value) start = cJSON_CreateString(value);
  }
  cJSON_Delete(json);
  free(text);
  fclose(file);
  return start ? start : time_node();
}

static bool describe(struct runlog *runlog, const struct runlog_section *sections, int count) {
  bool good = set_member(runlog->json, "format", text_node("convoy-run-1")) &&
              set_member(runlog->json, "status", text_node("running")) &&
              set_member(runlog->json, "started", start_node(runlog)) &&
              set_member(runlog->json, "updated", time_node());
  for (int i = 0; good && i < count; i++)
    good = set_section(runlog->json, sections[i].name, sections[i].values, sections[i].count);
  return good;
}

enum status runlog_describe(struct runlog *runlog, const struct runlog_section *sections, int count) {
  cJSON_Delete(runlog->json);
  if (!(runlog->json = cJSON_CreateObject())) return out_of_memory(runlog);
  locale_t former = uselocale(runlog->locale);
  bool good = describe(runlog, sections, count);
  uselocale(former);
  return good ? json_write(runlog) : out_of_memory(runlog);
}

enum status runlog_finish(struct runlog *runlog, const char *status, const struct runlog_value *result,
                          int count) {
  if (!runlog->json) return RAISE(STATUS_INTERNAL, "run.json was never written in %s", runlog->out);
  locale_t former = uselocale(runlog->locale);
  bool good = set_member(runlog->json, "status", text_node(status)) &&
              set_member(runlog->json, "updated", time_node()) &&
              (count == 0 || set_section(runlog->json, "result", result, count));
  uselocale(former);
  return good ? json_write(runlog) : out_of_memory(runlog);
}
