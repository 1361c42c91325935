/* The record of a run in its checkpoints; see record.h. */
#include "app/record.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/log.h"

static char *add(struct record *record, const char *name) {
  assert(record->count < RECORD_MAX);
  char *value = record->value[record->count];
  record->option[record->count++] = (struct checkpoint_option){.name = name, .value = value};
  return value;
}

static void add_channels(struct record *record, const char *name, const float *number, int channels) {
  char *value = add(record, name);
  size_t used = 0;
  for (int c = 0; c < channels && c < 4; c++)
    used += (size_t)snprintf(value + used, RECORD_VALUE - used, "%s%.9g", c ? "," : "", (double)number[c]);
}

/* One name a line. */
static char *join_names(const struct dataset *dataset) {
  size_t capacity = (size_t)dataset->classes * (DATASET_CLASS_NAME + 1) + 1, used = 0;
  char *text = calloc(1, capacity);
  for (int i = 0; text && dataset->class_name && i < dataset->classes; i++)
    used += (size_t)snprintf(text + used, capacity - used, "%s%s", i ? "\n" : "", dataset->class_name[i]);
  return text;
}

static bool is_strict(const char *name) {
  static const char *const names[] = {"model",     "seed",   "batch", "optimizer", "lanes",
                                      "precision", "freeze", "lora",  "lora-alpha"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i], name) == 0) return true;
  return false;
}

/* A text of any length. */
static enum status add_text(struct record *record, const char *name, const char *value) {
  assert(record->count < RECORD_MAX && record->texts < RECORD_TEXTS);
  char *copy = strdup(value);
  if (!copy) return RAISE(STATUS_INPUT, "no memory for the run's record");
  record->text[record->texts++] = copy;
  record->option[record->count++] = (struct checkpoint_option){.name = name, .value = copy};
  return STATUS_OK;
}

static enum status add_options(struct record *record, const struct train_options *options, bool strict) {
  for (int i = 0; i < train_table.count; i++) {
    const struct option_row *row = &train_table.rows[i];
    if (!(row->flags & OPTION_RESULT) || is_strict(row->name) != strict) continue;
    if (row->type == OPTION_TEXT_VALUE)
      TRY(add_text(record, row->name, (const char *)options + row->offset));
    else
      options_text(row, options, add(record, row->name), RECORD_VALUE);
  }
  return STATUS_OK;
}

enum status record_create(const struct train_options *options, const struct dataset *dataset,
                          const float mean[4], const float std[4], struct record *record) {
  *record = (struct record){0};
  enum status status = STATUS_OK;
  record->class_names = join_names(dataset);
  if (!record->class_names) TRY_OUT(RAISE(STATUS_INPUT, "no memory for the run's record"));
  TRY_OUT(add_options(record, options, true));
  snprintf(add(record, "classes"), RECORD_VALUE, "%d", dataset->classes);
  snprintf(add(record, "image"), RECORD_VALUE, "%dx%dx%d", dataset->height, dataset->width,
           dataset->channels);
  snprintf(add(record, "data-digest"), RECORD_VALUE, "%016" PRIx64, dataset->digest);
  record->strict = record->count;
  TRY_OUT(add_options(record, options, false));
  add_channels(record, "mean", mean, dataset->channels);
  add_channels(record, "std", std, dataset->channels);
  record->option[record->count++] = (struct checkpoint_option){"class-names", record->class_names};
out:
  if (status != STATUS_OK) record_destroy(record);
  return status;
}

void record_destroy(struct record *record) {
  for (int i = 0; i < record->texts; i++) free(record->text[i]);
  free(record->class_names);
  record->texts = 0;
  record->class_names = NULL;
}

/* An option that older checkpoints do not have, and that is not in use. */
static bool is_absent(const struct checkpoint_option *option, const struct checkpoint *checkpoint) {
  bool later = strcmp(option->name, "freeze") == 0 || strncmp(option->name, "lora", 4) == 0;
  bool unused = option->value[0] == '\0' || strcmp(option->value, "0") == 0;
  return later && unused && !checkpoint_option(checkpoint, option->name);
}

/* The same number; former checkpoints have more digits. */
static bool is_same_number(const struct checkpoint_option *now, const char *then) {
  const struct option_row *row = options_find(&train_table, now->name);
  return row && row->type == OPTION_REAL && then && strtod(then, NULL) == strtod(now->value, NULL);
}

/* The order of the images may change between two epochs only. */
static enum status check_order(const struct checkpoint *checkpoint, const char *then, const char *now) {
  if (checkpoint_progress(checkpoint)->position == 0) return STATUS_OK;
  return RAISE(
      STATUS_INPUT,
      "shuffle is %s, but checkpoint %s stands within an epoch of %s, whose images would come twice or "
      "not at all: give --shuffle %s%s",
      now, checkpoint_name(checkpoint), then, then,
      strcmp(then, "full") == 0 ? " and a --memory-limit that holds all images" : "");
}

enum status record_compare(const struct record *record, const struct checkpoint *checkpoint) {
  struct checkpoint_option strict[RECORD_MAX];
  int count = 0;
  for (int i = 0; i < record->strict; i++) {
    const struct checkpoint_option *now = &record->option[i];
    if (is_absent(now, checkpoint) || is_same_number(now, checkpoint_option(checkpoint, now->name))) continue;
    strict[count++] = *now;
  }
  TRY(checkpoint_compare(checkpoint, strict, count));
  for (int i = record->strict; i < record->count; i++) {
    const struct checkpoint_option *now = &record->option[i];
    const char *then = checkpoint_option(checkpoint, now->name);
    if (!then || strcmp(then, now->value) == 0 || is_same_number(now, then)) continue;
    if (strcmp(now->name, "epochs") == 0 || strcmp(now->name, "class-names") == 0) continue;
    if (strcmp(now->name, "shuffle") == 0) TRY(check_order(checkpoint, then, now->value));
    log_warning("resuming with %s %s; the checkpoint's was %s", now->name, now->value, then);
  }
  return STATUS_OK;
}

int record_numbers(const char *text, float out[4]) {
  int count = 0;
  while (text && count < 4) {
    char *end;
    out[count] = strtof(text, &end);
    if (end == text || (*end != '\0' && *end != ',')) return 0;
    count++;
    text = *end == ',' ? end + 1 : NULL;
  }
  return text ? 0 : count;
}
