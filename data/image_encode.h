/* 8-bit RGB to a PNG file's bytes. */
#ifndef CONVOY_DATA_IMAGE_ENCODE_H
#define CONVOY_DATA_IMAGE_ENCODE_H

#include "data/image_decode.h"

/* The bytes are the caller's: free(). STATUS_INPUT: no memory, or libpng was not there at build. */
enum status image_encode_png(const struct image *image, uint8_t **data, size_t *bytes);

#endif
