/* Finds, lists and refuses subcommands; see subcommand.h. */
#include "app/subcommand.h"

#include <string.h>

#include "model/base/nearest.h"

static const char *name_of(const void *tables, int index) {
  return strrchr(((const struct option_table *)tables)[index].command, ' ') + 1;
}

int subcommand_find(const struct subcommand_set *set, int argc, char **argv) {
  for (int i = 0; argc > 1 && i < set->count; i++)
    if (strcmp(argv[1], name_of(set->tables, i)) == 0) return i;
  return -1;
}

enum status subcommand_refuse(const struct subcommand_set *set, int argc, char **argv) {
  if (argc < 2)
    return RAISE(STATUS_INPUT, "convoy %s: no command; 'convoy %s --help' lists them", set->command,
                 set->command);
  return RAISE(STATUS_INPUT, "unknown command '%s %s'; did you mean '%s %s'?", set->command, argv[1],
               set->command, name_of(set->tables, nearest_name(argv[1], set->tables, set->count, name_of)));
}

void subcommand_list(const struct subcommand_set *set, FILE *stream) {
  fprintf(stream, "usage: convoy %s COMMAND [options]\n\n", set->command);
  for (int i = 0; i < set->count; i++)
    fprintf(stream, "  %-9s%s\n", name_of(set->tables, i), set->tables[i].summary);
  fprintf(stream, "\n'convoy %s COMMAND --help' lists a command's options.\n", set->command);
}
