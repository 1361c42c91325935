/* Definition of the gather: bytes and a sample list to a normalised, augmented batch; see sample.h. */
#include "tests/reference/reference.h"

/* Mirrors a coordinate at the border's middle line, as long as it lies outside. */
static int64_t mirrored(int64_t at, int64_t size) {
  while (at < 0 || at >= size) at = at < 0 ? -at : 2 * size - 2 - at;
  return at;
}

void reference_gather(const struct gather_desc *desc, uint32_t first, const struct sample *list,
                      double *batch, int32_t *labels) {
  int64_t height = desc->height, width = desc->width, channels = desc->channels, at = 0;
  for (int64_t n = 0; n < desc->count; n++) {
    const struct sample *sample = &list[first + n];
    labels[n] = desc->labels[sample->index];
    for (int64_t y = 0; y < height; y++)
      for (int64_t x = 0; x < width; x++) {
        int64_t from_y = y + sample->shift_y, from_x = (sample->flip ? width - 1 - x : x) + sample->shift_x;
        if (sample->reflect) {
          from_y = mirrored(from_y, height);
          from_x = mirrored(from_x, width);
        }
        bool inside = from_y >= 0 && from_y < height && from_x >= 0 && from_x < width;
        int64_t down = y - sample->cut_y, right = x - sample->cut_x;
        if (down >= 0 && down < sample->cut && right >= 0 && right < sample->cut) inside = false;
        for (int64_t c = 0; c < channels; c++, at++) {
          batch[at] = 0;
          if (!inside) continue;
          int64_t pixel = ((sample->index * height + from_y) * width + from_x) * channels + c;
          batch[at] = (desc->images[pixel] / 255.0 - (double)desc->mean[c]) / (double)desc->std[c];
        }
      }
  }
}
