/* `convoy report`: runs as a page in one HTML file that needs no network, and as a picture. */
#ifndef CONVOY_APP_REPORT_H
#define CONVOY_APP_REPORT_H

#include "app/options.h"
#include "model/base/world.h"

extern const struct option_table report_table;

enum status report_command(int argc, char **argv, const struct world *world);

#endif
