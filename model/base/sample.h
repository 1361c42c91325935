/* One entry of an epoch's list: which image, and how it is augmented. Drawn above the backends
 * (data/sampler.c), read by their gather. */
#ifndef CONVOY_MODEL_BASE_SAMPLE_H
#define CONVOY_MODEL_BASE_SAMPLE_H

#include <stdint.h>

/* Output pixel (y, x) is input pixel (y + shift_y, x + shift_x), mirrored left to right after the shift.
 * Where that lies outside, it is a zero after normalisation, as torchvision's RandomCrop(padding) of a
 * normalised image; or, with `reflect`, the pixel mirrored at the border without repeating it, as
 * padding_mode="reflect" (shifts are less than the image's size then). Last, a square of the output is set to
 * zero (Cutout: DeVries and Taylor, 2017). */
struct sample {
  uint32_t index; /* row of the image */
  int8_t shift_y, shift_x;
  uint8_t flip;         /* 1: mirrored */
  uint8_t reflect;      /* 1: what lies outside is mirrored */
  int16_t cut_y, cut_x; /* the square's upper left pixel in the output; it may reach over the border */
  uint16_t cut;         /* its side; 0: none */
  uint16_t reserved;
};

#endif
