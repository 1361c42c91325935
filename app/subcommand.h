/* Commands of a command: `convoy data import`, `convoy bench step`. */
#ifndef CONVOY_APP_SUBCOMMAND_H
#define CONVOY_APP_SUBCOMMAND_H

#include <stdio.h>

#include "app/options.h"

struct subcommand_set {
  const char *command;               /* "data" */
  const struct option_table *tables; /* of "convoy data import", ...: a subcommand's name is the last word */
  int count;
};

/* The index of the one that argv[1] names, -1 if it names none. argv[0] is the command. */
int subcommand_find(const struct subcommand_set *set, int argc, char **argv);

/* STATUS_INPUT: what argv[1] should have been. */
enum status subcommand_refuse(const struct subcommand_set *set, int argc, char **argv);

/* --help of the command: its subcommands, a line each. */
void subcommand_list(const struct subcommand_set *set, FILE *stream);

#endif
