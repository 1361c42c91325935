/* `convoy data import|synth|check|info`: makes, verifies and describes shards. */
#ifndef CONVOY_APP_DATA_COMMAND_H
#define CONVOY_APP_DATA_COMMAND_H

#include <stdio.h>

#include "model/base/error.h"
#include "model/base/world.h"

/* argv[0] is "data", argv[1] the subcommand. Collective; import, synth and check work on rank 0 while the
 * others wait. */
enum status data_command(int argc, char **argv, const struct world *world);

/* The subcommand's options, or the list of subcommands where argv[1] names none. */
void data_help(int argc, char **argv, FILE *stream);

#endif
