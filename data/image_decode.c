/* Chooses the decoder of an image; see image_decode.h. */
#include "data/image_decode.h"

#include <stdlib.h>
#include <string.h>

enum status image_create(const char *name, uint64_t height, uint64_t width, struct image *image) {
  if (height < 1 || width < 1 || height > IMAGE_MAX_SIDE || width > IMAGE_MAX_SIDE)
    return RAISE(STATUS_INPUT, "%s: image of %llux%llu (height x width), expected 1..%d each", name,
                 (unsigned long long)height, (unsigned long long)width, IMAGE_MAX_SIDE);
  image->height = (int)height;
  image->width = (int)width;
  image->pixels = malloc((size_t)height * (size_t)width * 3);
  if (!image->pixels) return RAISE(STATUS_INPUT, "%s: no memory for its pixels", name);
  return STATUS_OK;
}

enum status image_decode(const char *name, const uint8_t *data, size_t bytes, struct image *image) {
  static const uint8_t png[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  *image = (struct image){.pixels = NULL};
  if (bytes == 0) return RAISE(STATUS_INPUT, "%s is empty (0 bytes)", name);
  if (bytes >= 3 && data[0] == 0xff && data[1] == 0xd8 && data[2] == 0xff)
    return image_jpeg(name, data, bytes, image);
  if (bytes >= sizeof png && memcmp(data, png, sizeof png) == 0) return image_png(name, data, bytes, image);
  return RAISE(STATUS_INPUT, "%s is neither a JPEG nor a PNG image (%zu bytes)", name, bytes);
}
