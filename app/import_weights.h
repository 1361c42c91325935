/* `convoy import-weights`: a checkpoint from weights that another program trained. */
#ifndef CONVOY_APP_IMPORT_WEIGHTS_H
#define CONVOY_APP_IMPORT_WEIGHTS_H

#include "app/options.h"
#include "model/base/world.h"

enum status import_weights_command(int argc, char **argv, const struct world *world);
extern const struct option_table import_weights_table;

#endif
