/* One entry of an epoch's list: which image, and how it is augmented. Drawn above the backends
 * (data/sampler.c), read by their gather. */
#ifndef CONVOY_MODEL_BASE_SAMPLE_H
#define CONVOY_MODEL_BASE_SAMPLE_H

#include <stdint.h>

struct sample {
  uint32_t index; /* row of the image */
  int8_t shift_y; /* output pixel (y, x) is input pixel (y + shift_y, x + shift_x); outside: a zero after */
  int8_t shift_x; /*   normalisation, as torchvision's RandomCrop(padding) of a normalised image */
  uint8_t flip;   /* 1: mirrored left to right, after the shift */
  uint8_t reserved;
};

#endif
