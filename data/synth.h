/* A generated data set: striped patches whose angle and colour tell the class, in noise, at random places.
 * Small networks learn it in two epochs, none by a single pixel or by the mean colour alone (`convoy data
 * synth`). */
#ifndef CONVOY_DATA_SYNTH_H
#define CONVOY_DATA_SYNTH_H

#include <stdbool.h>
#include <stdint.h>

#include "model/base/error.h"

struct synth_options {
  const char *out;
  int64_t train, test;           /* images; test may be 0 */
  int train_shards, test_shards; /* at least 1 */
  int classes;                   /* 2..DATASET_MAX_CLASSES */
  int size;                      /* pixels of a side, at least 8 */
  uint64_t seed;
  bool overwrite;
};

/* Image and label of a row are functions of (seed, split, row, size, classes); classes come in turn, so that
 * they are equally frequent, within the first n rows too. */
enum status synth_run(const struct synth_options *options);

/* One image, H,W,3. */
void synth_image(const struct synth_options *options, int split, int64_t row, uint8_t *image, int32_t *label);

#endif
