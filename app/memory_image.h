/* Memory that HDF5 builds a file in (its core driver) and that stays when the file is closed. By itself HDF5
 * would grow its memory by copies, and give another copy away. */
#ifndef CONVOY_APP_MEMORY_IMAGE_H
#define CONVOY_APP_MEMORY_IMAGE_H

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>

struct memory_image {
  void *data;
  size_t capacity;
};

/* Files made with `access` (file access properties) lie in *image from now on, which must outlive them; it
 * grows in steps of `step` bytes, best the file's size. False: HDF5 refuses. */
bool memory_image_use(struct memory_image *image, size_t step, hid_t access);

/* Gives the memory back, once no file lies in it. */
void memory_image_free(struct memory_image *image);

#endif
