/* `convoy predict`: the class of image files. */
#ifndef CONVOY_APP_PREDICT_H
#define CONVOY_APP_PREDICT_H

#include "app/options.h"
#include "model/base/world.h"

enum status predict_command(int argc, char **argv, const struct world *world);
extern const struct option_table predict_table;

/* The class with the first largest of logits[classes], and its probability by softmax. */
int predict_class(const float *logits, int classes, double *probability);

#endif
