/* A JPEG or PNG file's bytes to 8-bit RGB. Grey, palette, 16-bit, interlaced, progressive and CMYK images are
 * converted; what cannot be converted rightly (transparent pixels) or is damaged is refused by name. */
#ifndef CONVOY_DATA_IMAGE_DECODE_H
#define CONVOY_DATA_IMAGE_DECODE_H

#include <stddef.h>
#include <stdint.h>

#include "model/base/error.h"

enum { IMAGE_MAX_SIDE = 4096 };

struct image {
  int height, width;
  uint8_t *pixels; /* H,W,3; owned by the caller: free() */
};

/* Decodes by content, not by the name's ending; `name` is for the message. STATUS_INPUT also where the
 * library for this kind of image was not there at build. */
enum status image_decode(const char *name, const uint8_t *data, size_t bytes, struct image *image);

/* One kind each; used by image_decode. */
enum status image_jpeg(const char *name, const uint8_t *data, size_t bytes, struct image *image);
enum status image_png(const char *name, const uint8_t *data, size_t bytes, struct image *image);

/* STATUS_INPUT if a side is 0 or above IMAGE_MAX_SIDE; else pixels is allocated. */
enum status image_create(const char *name, uint64_t height, uint64_t width, struct image *image);

#endif
