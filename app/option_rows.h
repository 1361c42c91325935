/* One row a line for option tables: included by the file of a table after `#define OPTION_STRUCT struct
 * eval_options`, the struct that the rows fill. What follows a row's `help` may add to it. */
#ifndef CONVOY_APP_OPTION_ROWS_H
#define CONVOY_APP_OPTION_ROWS_H

#include "app/train_options.h" /* the choices that commands share */

#define COMMON(title, kind, member, start, bits)                                                             \
  .name = (title), .type = (kind), .offset = offsetof(OPTION_STRUCT, member), .initial = (start),            \
  .flags = (bits)
#define TEXT(title, member, start, unit, bits, ...)                                                          \
  { COMMON(title, OPTION_TEXT_VALUE, member, start, bits), .value = (unit), .help = __VA_ARGS__ }
#define WORDS(title, member, unit, bits, ...)                                                                \
  { COMMON(title, OPTION_WORDS, member, NULL, (bits) | OPTION_OPERAND), .value = (unit), .help = __VA_ARGS__ }
#define FLAG(title, member, bits, ...)                                                                       \
  { COMMON(title, OPTION_FLAG, member, NULL, bits), .help = __VA_ARGS__ }
#define CHOICE(title, member, names, start, bits, ...)                                                       \
  { COMMON(title, OPTION_CHOICE, member, start, bits), .choice = (names), .help = __VA_ARGS__ }
#define NUMBER(title, kind, member, low, high, start, unit, bits, ...)                                       \
  {                                                                                                          \
    COMMON(title, kind, member, start, bits), .least = (low), .most = (high), .value = (unit),               \
                                              .help = __VA_ARGS__                                            \
  }
#define INTEGER(title, ...) NUMBER(title, OPTION_INTEGER, __VA_ARGS__)
#define REAL(title, ...) NUMBER(title, OPTION_REAL, __VA_ARGS__)
#define TRIPLE(title, ...) NUMBER(title, OPTION_TRIPLE, __VA_ARGS__)
#define ABOVE OPTION_ABOVE
#define RESULT OPTION_RESULT

/* The table of such rows: an array. `name` is the command's without "convoy". */
#define OPTION_TABLE(name, words, list)                                                                      \
  { .command = "convoy " name, .summary = (words), .rows = (list), .count = sizeof(list) / sizeof *(list) }

/* Rows that several commands have; their fields are called as the options. */
#define ROW_CHECKPOINT                                                                                       \
  TEXT("checkpoint", checkpoint, NULL, "FILE|RUNDIR", OPTION_REQUIRED,                                       \
       "a checkpoint, or a run's folder: its newest")
#define ROW_CONFIG                                                                                           \
  TEXT("config", config, NULL, "FILE", OPTION_CONFIG, "lines `name = value`; the command line wins")
#define ROW_BACKEND                                                                                          \
  CHOICE("backend", backend, backend_choices, "auto", 0, "auto: cuda where a GPU is visible")
#define ROW_PRECISION                                                                                        \
  CHOICE("precision", precision, precision_choices, "fp32", 0, "of activations and products")
#define ROW_PLAN_CACHE                                                                                       \
  TEXT("plan-cache", plan_cache, NULL, "DIR|none", 0,                                                        \
       "where a GPU's timed algorithms are kept (default: ~/.cache/convoy)")
#define ROW_INIT_TIMEOUT                                                                                     \
  INTEGER("init-timeout", init_timeout, 1, 86400, "180", "SECONDS", 0, "for the ranks to find each other")
#define ROW_COMM_TIMEOUT                                                                                     \
  INTEGER("comm-timeout", comm_timeout, 1, 86400, "120", "SECONDS", 0,                                       \
          "a rank that is silent for so long ends the job")

#endif
