/* Image files as a model's input. */
#ifndef CONVOY_APP_PREDICT_IMAGE_H
#define CONVOY_APP_PREDICT_IMAGE_H

#include <stdint.h>

#include "model/base/error.h"

struct predict_list {
  char **path; /* [count], owned, as is each */
  int64_t count, capacity;
};

/* Adds a file, or all JPEG and PNG files below a folder, by their names' endings, in the order of their
 * names; hidden ones are left out. STATUS_INPUT: not there, not readable, none in the folder. */
enum status predict_list_add(struct predict_list *list, const char *path);
void predict_list_destroy(struct predict_list *list); /* also a zeroed one */

/* Reads a file to pixels (height, width, channels). Another size is resampled, its sides on their own: a
 * triangle filter that is as wide as a target pixel where it shrinks (as Pillow's BILINEAR). One channel:
 * luma by ITU-R BT.601. STATUS_INPUT: damaged, neither JPEG nor PNG, other numbers of channels. */
enum status predict_image(const char *path, int height, int width, int channels, uint8_t *pixels);

#endif
