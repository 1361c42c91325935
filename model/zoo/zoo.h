/* The models. One file a model and one line in zoo.def; see CONTRIBUTING.md. */
#ifndef CONVOY_MODEL_ZOO_ZOO_H
#define CONVOY_MODEL_ZOO_ZOO_H

#include "model/net/graph.h"

/* Builds `name` for images of that size. An unknown name is STATUS_INPUT and names the nearest known one. */
enum status zoo_build(const char *name, int height, int width, int channels, int classes,
                      struct graph **graph);

#endif
