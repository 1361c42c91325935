/* PNG by libpng's simplified interface; see image_encode.h. */
#include "data/image_encode.h"

#ifdef CONVOY_PNG

#include <stdlib.h>

#include <png.h>

enum status image_encode_png(const struct image *image, uint8_t **data, size_t *bytes) {
  png_image png = {.version = PNG_IMAGE_VERSION,
                   .width = (png_uint_32)image->width,
                   .height = (png_uint_32)image->height,
                   .format = PNG_FORMAT_RGB};
  png_alloc_size_t room = PNG_IMAGE_PNG_SIZE_MAX(png);
  uint8_t *memory = malloc(room);
  if (!memory) return RAISE(STATUS_INPUT, "no memory for a PNG image of %zu bytes", (size_t)room);
  if (!png_image_write_to_memory(&png, memory, &room, 0, image->pixels, 0, NULL)) {
    free(memory);
    return RAISE(STATUS_INPUT, "libpng cannot write an image: %s", png.message);
  }
  *data = memory;
  *bytes = room;
  return STATUS_OK;
}

#else

enum status image_encode_png(const struct image *image, uint8_t **data, size_t *bytes) {
  (void)image, (void)data, (void)bytes;
  return RAISE(STATUS_INPUT,
               "PNG images need libpng, which was not there when convoy was built (Debian: libpng-dev)");
}

#endif
