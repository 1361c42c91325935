/* `convoy bench step`: where a training step's time goes, beside what the device can do. */
#ifndef CONVOY_APP_BENCH_H
#define CONVOY_APP_BENCH_H

#include <stdio.h>

#include "model/base/world.h"

/* argv[0] is "bench", argv[1] the subcommand. Collective: all ranks return the same status. */
enum status bench_command(int argc, char **argv, const struct world *world);
void bench_help(int argc, char **argv, FILE *stream);

#endif
