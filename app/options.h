/* Options: one row an option, which feeds parsing, --help, the config file and the run's record.
 *
 * A command describes its options as a table over a plain struct:
 *
 *   struct eval_options { char data[OPTION_TEXT]; int64_t batch; };
 *   #define OPTION_STRUCT struct eval_options
 *   static const struct option_row rows[] = {
 *       TEXT("data", data, NULL, "DIR", OPTION_REQUIRED, "folder of shards"),
 *       INTEGER("batch", batch, 1, 1e6, "500", "N", 0, "images a batch"), …};
 *   const struct option_table eval_table = OPTION_TABLE("eval", "Evaluates …", rows);
 *
 * with the macros of option_rows.h.
 *
 * All refusals are STATUS_INPUT and name the option, what was found and what was expected. */
#ifndef CONVOY_APP_OPTIONS_H
#define CONVOY_APP_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model/base/error.h"
#include "model/base/world.h"

enum { OPTION_TEXT = 1024, OPTION_ROWS = 64 }; /* capacity of a text field; most rows of a table */

/* What a row's field is. */
enum option_type {
  OPTION_FLAG,       /* bool; on the command line without a value, in a file on|off */
  OPTION_INTEGER,    /* int64_t in [least, most] (exact up to 2^53) */
  OPTION_REAL,       /* double in [least, most]; finite */
  OPTION_TEXT_VALUE, /* char[OPTION_TEXT], not empty if given */
  OPTION_CHOICE,     /* int: index into `choice` */
  OPTION_TRIPLE,     /* struct option_triple, each in [least, most]: one number for all channels, or three */
  OPTION_WORDS,      /* struct option_words, an operand: all words without dashes that are left */
};

struct option_triple {
  int count; /* 0: not given; 1; 3 */
  double value[3];
};

struct option_words {
  int count;
  const char **word; /* owned: free() the list, not the words, which are the command line's */
};

enum option_flags {
  OPTION_REQUIRED = 1,
  OPTION_RESULT = 2,       /* it fixes the result: kept in checkpoints, the same on all ranks */
  OPTION_OPERAND = 4,      /* taken from the words without dashes, in the order of the rows */
  OPTION_CONFIG = 8,       /* the config file's path; the command line wins over the file */
  OPTION_NOT_IN_FILE = 16, /* refused in a config file */
  OPTION_ABOVE = 32,       /* `least` itself is refused */
  OPTION_OWN = 64,         /* ranks may have different values */
};

struct option_row {
  const char *name; /* long name without dashes; also the config file's key */
  char letter;      /* short name; 0: none */
  enum option_type type;
  size_t offset; /* of the field */
  double least, most;
  const char *const *choice; /* OPTION_CHOICE: names, ended by NULL */
  const char *initial;       /* the default, as text; NULL: zero */
  const char *value;         /* what --help calls the value: "N" */
  const char *help;          /* one line */
  const char *heading;       /* --help starts a new group here; NULL: no */
  unsigned flags;
};

struct option_table {
  const char *command; /* "convoy train" */
  const char *summary; /* one line */
  const struct option_row *rows;
  int count;
};

/* Fills `values` with the defaults, then the config file's values, then those of argv[1..argc); words behind
 * "--" are operands. All of it is checked, required options last. */
enum status options_parse(const struct option_table *table, int argc, char **argv, void *values);

/* Collective: as world_agree with what options_parse gave this rank, and STATUS_INPUT where ranks have
 * different values, by which each would go its own way: another host's config file is an old one. Texts may
 * differ, which name files and folders, unless they fix the result. */
enum status options_agree(const struct world *world, const struct option_table *table, const void *values,
                          enum status mine);

/* Sets one option from text, as the command line would; `origin` ("--batch", "run.conf:3: batch") begins a
 * refusal. */
enum status options_set(const struct option_row *row, const char *origin, const char *text, void *values);

/* Only the defaults. */
enum status options_defaults(const struct option_table *table, void *values);

/* The row of that name; NULL if there is none. */
const struct option_row *options_find(const struct option_table *table, const char *name);

/* Writes a row's value as options_set reads it ("0.001", "flip,crop", "on") and returns text. */
const char *options_text(const struct option_row *row, const void *values, char *text, size_t capacity);

/* True if argv[1..argc) asks for help (--help or -h before a "--"). */
bool options_help_wanted(int argc, char **argv);
void options_help(const struct option_table *table, FILE *stream);

/* app/config.c: sets the options of `values` from lines `name = value`; `#` and `;` begin comment lines. */
enum status config_read(const struct option_table *table, const char *path, void *values);

/* Raises "unknown …" for a name: the nearest of the table's names is told. `origin` as in options_set. */
enum status options_unknown(const struct option_table *table, const char *origin, const char *name);

#endif
