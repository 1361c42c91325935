/* Parsing options by a table: defaults, then the config file, then the command line; see options.h. */
#include "app/options.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/nearest.h"

static void *field_of(const struct option_row *row, void *values) {
  return (char *)values + row->offset;
}

static const void *field_read(const struct option_row *row, const void *values) {
  return (const char *)values + row->offset;
}

const struct option_row *options_find(const struct option_table *table, const char *name) {
  for (int i = 0; i < table->count; i++)
    if (strcmp(table->rows[i].name, name) == 0) return &table->rows[i];
  return NULL;
}

/* A row's name for the search of the nearest; "" where it is no answer. */
static const char *known_name(const void *table, int index) {
  const struct option_row *row = &((const struct option_table *)table)->rows[index];
  return row->flags & OPTION_OPERAND ? "" : row->name;
}

enum status options_unknown(const struct option_table *table, const char *origin, const char *name) {
  int best = nearest_name(name, table, table->count, known_name);
  const char *known = best < 0 ? "" : known_name(table, best);
  if (known[0] == '\0')
    return RAISE(STATUS_INPUT, "%s: unknown option '%s'; '%s --help' lists all", origin, name,
                 table->command);
  return RAISE(STATUS_INPUT, "%s: unknown option '%s'; did you mean '%s'? '%s --help' lists all", origin,
               name, known, table->command);
}

/* ---- values ---- */

static enum status refuse_range(const struct option_row *row, const char *origin, const char *text) {
  const char *kind = row->type == OPTION_INTEGER ? "a whole number" : "a finite number";
  const char *above = row->flags & OPTION_ABOVE ? "above" : "from";
  if (row->most >= DBL_MAX)
    return RAISE(STATUS_INPUT, "%s is '%s'; expected %s %s %.12g", origin, text, kind, above, row->least);
  return RAISE(STATUS_INPUT, "%s is '%s'; expected %s %s %.12g to %.12g", origin, text, kind, above,
               row->least, row->most);
}

static bool in_range(const struct option_row *row, double value) {
  if (!isfinite(value) || value < row->least || value > row->most) return false;
  return !((row->flags & OPTION_ABOVE) && (float)value <= (float)row->least); /* steps compute in float */
}

/* A decimal number and nothing else; hexadecimal, blanks in front, nan and inf are refused. */
static bool read_real(const char *text, double *value) {
  if (text[0] == '\0' || text[strspn(text, "0123456789+-.eE")] != '\0') return false;
  char *end;
  *value = strtod(text, &end);
  return *end == '\0' && isfinite(*value);
}

static enum status set_integer(const struct option_row *row, const char *origin, const char *text,
                               void *field) {
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  bool number = text[0] != '\0' && text[strspn(text, "0123456789+-")] == '\0' && *end == '\0' && errno == 0;
  if (!number || !in_range(row, (double)value)) return refuse_range(row, origin, text);
  int64_t stored = value;
  memcpy(field, &stored, sizeof stored);
  return STATUS_OK;
}

static enum status set_triple(const struct option_row *row, const char *origin, const char *text,
                              void *field) {
  struct option_triple triple = {0};
  char copy[OPTION_TEXT];
  snprintf(copy, sizeof copy, "%s", text);
  for (char *part = copy; part;) {
    char *comma = strchr(part, ',');
    if (comma) *comma = '\0';
    double value;
    if (triple.count == 3 || !read_real(part, &value) || !in_range(row, value)) {
      triple.count = 0;
      break;
    }
    triple.value[triple.count++] = value;
    part = comma ? comma + 1 : NULL;
  }
  if (triple.count != 1 && triple.count != 3)
    return RAISE(STATUS_INPUT, "%s is '%s'; expected one number or three as R,G,B, each %s %.6g to %.6g",
                 origin, text, row->flags & OPTION_ABOVE ? "above" : "from", row->least, row->most);
  memcpy(field, &triple, sizeof triple);
  return STATUS_OK;
}

static const char *choice_name(const void *choices, int index) {
  return ((const char *const *)choices)[index];
}

static enum status set_choice(const struct option_row *row, const char *origin, const char *text,
                              void *field) {
  int count = 0;
  char list[512] = "";
  size_t used = 0;
  for (; row->choice[count]; count++) {
    if (strcmp(row->choice[count], text) == 0) {
      memcpy(field, &count, sizeof count);
      return STATUS_OK;
    }
    if (used < sizeof list)
      used +=
          (size_t)snprintf(list + used, sizeof list - used, "%s%s", count ? ", " : "", row->choice[count]);
  }
  if (count == 0) return RAISE(STATUS_INTERNAL, "%s has no choices", origin);
  return RAISE(STATUS_INPUT, "%s is '%s'; expected one of: %s; the nearest is '%s'", origin, text, list,
               row->choice[nearest_name(text, row->choice, count, choice_name)]);
}

static enum status add_word(const char *origin, const char *text, void *field) {
  struct option_words words;
  memcpy(&words, field, sizeof words);
  const char **grown = realloc((void *)words.word, ((size_t)words.count + 1) * sizeof *grown);
  if (!grown) return RAISE(STATUS_INPUT, "%s: no memory for %d words", origin, words.count + 1);
  grown[words.count] = text;
  words = (struct option_words){.count = words.count + 1, .word = grown};
  memcpy(field, &words, sizeof words);
  return STATUS_OK;
}

static enum status set_flag(const char *origin, const char *text, void *field) {
  static const char *const names[] = {"off", "on", "false", "true", "no", "yes", "0", "1"};
  for (int i = 0; i < 8; i++) {
    if (strcmp(names[i], text) != 0) continue;
    bool value = i % 2;
    memcpy(field, &value, sizeof value);
    return STATUS_OK;
  }
  return RAISE(STATUS_INPUT, "%s is '%s'; expected on or off", origin, text);
}

enum status options_set(const struct option_row *row, const char *origin, const char *text, void *values) {
  void *field = field_of(row, values);
  if (strlen(text) >= OPTION_TEXT)
    return RAISE(STATUS_INPUT, "%s has %zu characters; expected fewer than %d", origin, strlen(text),
                 OPTION_TEXT);
  switch (row->type) {
  case OPTION_FLAG:
    return set_flag(origin, text, field);
  case OPTION_INTEGER:
    return set_integer(row, origin, text, field);
  case OPTION_TRIPLE:
    return set_triple(row, origin, text, field);
  case OPTION_WORDS:
    return add_word(origin, text, field);
  case OPTION_CHOICE:
    return set_choice(row, origin, text, field);
  case OPTION_REAL: {
    double value;
    if (!read_real(text, &value) || !in_range(row, value)) return refuse_range(row, origin, text);
    memcpy(field, &value, sizeof value);
    return STATUS_OK;
  }
  case OPTION_TEXT_VALUE:
    if (text[0] == '\0') return RAISE(STATUS_INPUT, "%s is empty; expected %s", origin, row->value);
    snprintf(field, OPTION_TEXT, "%s", text);
    return STATUS_OK;
  }
  return RAISE(STATUS_INTERNAL, "option %s has no known type", row->name);
}

/* The shortest text that reads back as the number. */
static void put_real(double value, char *text, size_t capacity) {
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(text, capacity, "%.*g", digits, value);
    if (strtod(text, NULL) == value) return;
  }
}

const char *options_text(const struct option_row *row, const void *values, char *text, size_t capacity) {
  const void *field = field_read(row, values);
  text[0] = '\0';
  switch (row->type) {
  case OPTION_FLAG:
    snprintf(text, capacity, "%s", *(const bool *)field ? "on" : "off");
    break;
  case OPTION_INTEGER:
    snprintf(text, capacity, "%" PRId64, *(const int64_t *)field);
    break;
  case OPTION_REAL:
    put_real(*(const double *)field, text, capacity);
    break;
  case OPTION_TEXT_VALUE:
    snprintf(text, capacity, "%s", (const char *)field);
    break;
  case OPTION_CHOICE:
    snprintf(text, capacity, "%s", row->choice[*(const int *)field]);
    break;
  case OPTION_TRIPLE: {
    const struct option_triple *triple = field;
    if (triple->count == 1) snprintf(text, capacity, "%.9g", triple->value[0]);
    if (triple->count == 3)
      snprintf(text, capacity, "%.9g,%.9g,%.9g", triple->value[0], triple->value[1], triple->value[2]);
    break;
  }
  case OPTION_WORDS:
    snprintf(text, capacity, "%d", ((const struct option_words *)field)->count);
    break;
  }
  return text;
}

enum status options_defaults(const struct option_table *table, void *values) {
  for (int i = 0; i < table->count; i++) {
    const struct option_row *row = &table->rows[i];
    if (row->initial) TRY(options_set(row, row->name, row->initial, values));
  }
  return STATUS_OK;
}

/* ---- the command line ---- */

/* What one word of the command line is. */
struct word {
  const struct option_row *row;
  const char *text; /* its value; NULL: a flag without one */
  int used;         /* words taken */
  char origin[64];  /* "--batch" */
};

/* The row of the next operand, counted from 0; NULL: the command takes no further one. */
static const struct option_row *operand_row(const struct option_table *table, int index) {
  for (int i = 0; i < table->count; i++) {
    const struct option_row *row = &table->rows[i];
    if ((row->flags & OPTION_OPERAND) && (index-- == 0 || row->type == OPTION_WORDS)) return row;
  }
  return NULL;
}

static enum status find_option(const struct option_table *table, const char *text, struct word *word) {
  if (text[1] != '-') {
    for (int i = 0; i < table->count; i++)
      if (table->rows[i].letter && table->rows[i].letter == text[1] && text[2] == '\0')
        word->row = &table->rows[i];
    if (!word->row)
      return RAISE(STATUS_INPUT, "unknown option '%s'; '%s --help' lists all", text, table->command);
    snprintf(word->origin, sizeof word->origin, "%s", text);
    return STATUS_OK;
  }
  char name[64];
  size_t length = strcspn(text + 2, "=");
  snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name), text + 2);
  snprintf(word->origin, sizeof word->origin, "--%.60s", name);
  word->row = options_find(table, name);
  if (!word->row || (word->row->flags & OPTION_OPERAND)) return options_unknown(table, table->command, name);
  if (text[2 + length] == '=') word->text = text + 2 + length + 1;
  return STATUS_OK;
}

/* Reads the word at argv[i], and the next one where it is the option's value. `plain`: it is none. */
static enum status next_word(const struct option_table *table, int argc, char **argv, int i, bool plain,
                             int *operands, struct word *word) {
  const char *text = argv[i];
  *word = (struct word){.used = 1};
  if (plain || text[0] != '-' || text[1] == '\0') {
    word->row = operand_row(table, (*operands)++);
    word->text = text;
    if (!word->row)
      return RAISE(STATUS_INPUT, "unexpected word '%s'; '%s --help' lists what it takes", text,
                   table->command);
    snprintf(word->origin, sizeof word->origin, "%s", word->row->name);
    return STATUS_OK;
  }
  TRY(find_option(table, text, word));
  if (word->text || word->row->type == OPTION_FLAG) return STATUS_OK;
  if (i + 1 >= argc)
    return RAISE(STATUS_INPUT, "%s has no value; expected %s", word->origin, word->row->value);
  word->text = argv[i + 1];
  word->used = 2;
  return STATUS_OK;
}

/* One pass over the command line: only the config option, or all others. */
static enum status parse_words(const struct option_table *table, int argc, char **argv, bool config,
                               void *values) {
  int operands = 0;
  bool plain = false;
  struct word word = {.used = 1};
  for (int i = 1; i < argc; i += word.used) {
    if (!plain && strcmp(argv[i], "--") == 0) {
      plain = true;
      word.used = 1;
      continue;
    }
    TRY(next_word(table, argc, argv, i, plain, &operands, &word));
    if (((word.row->flags & OPTION_CONFIG) != 0) != config) continue;
    TRY(options_set(word.row, word.origin, word.text ? word.text : "on", values));
    if (config) TRY(config_read(table, word.text, values));
  }
  return STATUS_OK;
}

/* Whether a required field has no value: only texts and words are required. */
static bool is_missing(const struct option_row *row, const void *values) {
  const void *field = field_read(row, values);
  if (!(row->flags & OPTION_REQUIRED)) return false;
  return row->type == OPTION_WORDS ? *(const int *)field == 0 : *(const char *)field == '\0';
}

enum status options_parse(const struct option_table *table, int argc, char **argv, void *values) {
  TRY(options_defaults(table, values));
  TRY(parse_words(table, argc, argv, true, values));
  TRY(parse_words(table, argc, argv, false, values));
  for (int i = 0; i < table->count; i++) {
    const struct option_row *row = &table->rows[i];
    if (!is_missing(row, values)) continue;
    const char *dashes = row->flags & OPTION_OPERAND ? "" : "--";
    return RAISE(STATUS_INPUT, "%s needs %s%s %s: %s", table->command, dashes, row->name,
                 row->value ? row->value : "", row->help);
  }
  return STATUS_OK;
}
