/* The inside of checkpoints, shared by app/checkpoint*.c only: a 512-byte header (HDF5's user block) with
 * size and digest, then the HDF5 image. */
#ifndef CONVOY_APP_CHECKPOINT_FORMAT_H
#define CONVOY_APP_CHECKPOINT_FORMAT_H

#include "app/checkpoint.h"
#include "app/memory_image.h"

#define CHECKPOINT_FORMAT "convoy-checkpoint-1"

enum { CHECKPOINT_HEADER = 512 };

/* Fills header[CHECKPOINT_HEADER] for an image: text that `head -c 512 FILE` shows. */
void checkpoint_header_make(const void *image, size_t bytes, char *header);

/* Reads a file and compares every byte with its header. No such file: STATUS_INPUT; else STATUS_STORAGE with
 * the reason. The file's content is not interpreted. */
enum status checkpoint_header_verify(const char *path);

/* Builds the HDF5 image, *bytes of it, in memory; the caller frees it (memory_image_free), also after an
 * error. */
enum status checkpoint_image_create(const struct checkpoint_content *content, struct memory_image *image,
                                    size_t *bytes);

#endif
