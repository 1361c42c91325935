/* --help: a command's options as a table, made from its rows; see options.h. */
#include "app/options.h"

#include <string.h>

bool options_help_wanted(int argc, char **argv) {
  for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
  return false;
}

/* "--batch N", "--precision fp32|tf32|bf16", "RUNDIR..." */
static void row_title(const struct option_row *row, char *text, size_t capacity) {
  size_t used = 0;
  if (row->letter) used += (size_t)snprintf(text, capacity, "-%c, ", row->letter);
  if (row->flags & OPTION_OPERAND) {
    snprintf(text + used, capacity - used, "%s%s", row->value, row->type == OPTION_WORDS ? "..." : "");
    return;
  }
  used += (size_t)snprintf(text + used, capacity - used, "--%s", row->name);
  if (row->type == OPTION_CHOICE) {
    for (int i = 0; row->choice[i] && used < capacity; i++)
      used += (size_t)snprintf(text + used, capacity - used, "%c%s", i ? '|' : ' ', row->choice[i]);
  } else if (row->type != OPTION_FLAG) {
    snprintf(text + used, capacity - used, " %s", row->value ? row->value : "VALUE");
  }
}

static void print_usage(const struct option_table *table, FILE *stream) {
  fprintf(stream, "usage: %s", table->command);
  for (int i = 0; i < table->count; i++) {
    const struct option_row *row = &table->rows[i];
    char title[256];
    row_title(row, title, sizeof title);
    if (row->flags & OPTION_OPERAND)
      fprintf(stream, row->flags & OPTION_REQUIRED ? " %s" : " [%s]", title);
    else if (row->flags & OPTION_REQUIRED)
      fprintf(stream, " --%s %s", row->name, row->value);
  }
  fprintf(stream, " [options]\n\n%s\n", table->summary);
}

void options_help(const struct option_table *table, FILE *stream) {
  enum { COLUMN = 34 };
  print_usage(table, stream);
  for (int i = 0; i < table->count; i++) {
    const struct option_row *row = &table->rows[i];
    if (row->heading || i == 0) fprintf(stream, "\n%s:\n", row->heading ? row->heading : "options");
    char title[256];
    row_title(row, title, sizeof title);
    if (strlen(title) + 2 < COLUMN)
      fprintf(stream, "  %-*s", COLUMN - 2, title);
    else
      fprintf(stream, "  %s\n%*s", title, COLUMN, "");
    fprintf(stream, "%s", row->help);
    if (row->flags & OPTION_REQUIRED) fprintf(stream, " (required)");
    if (row->initial && row->type != OPTION_FLAG) fprintf(stream, " (default %s)", row->initial);
    fputc('\n', stream);
  }
  fprintf(stream, "%s--help%*sthis text\n", "  ", COLUMN - 8, "");
}
