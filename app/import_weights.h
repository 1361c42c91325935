/* `convoy import-weights`: a checkpoint from weights that another program trained. */
#ifndef CONVOY_APP_IMPORT_WEIGHTS_H
#define CONVOY_APP_IMPORT_WEIGHTS_H

#include "model/base/world.h"

enum status import_weights_command(int argc, char **argv, const struct world *world);
void import_weights_help(void);

#endif
