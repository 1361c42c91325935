/* The inside of checkpoints, shared by app/checkpoint*.c only: a 512-byte header (HDF5's user block) with
 * size and digest, then the HDF5 image. */
#ifndef CONVOY_APP_CHECKPOINT_FORMAT_H
#define CONVOY_APP_CHECKPOINT_FORMAT_H

#include "app/checkpoint.h"

#define CHECKPOINT_FORMAT "convoy-checkpoint-1"

enum { CHECKPOINT_HEADER = 512 };

/* Fills header[CHECKPOINT_HEADER] for an image: text that `head -c 512 FILE` shows. */
void checkpoint_header_make(const void *image, size_t bytes, char *header);

/* Reads a file and compares every byte with its header. No such file: STATUS_INPUT; else STATUS_STORAGE with
 * the reason. The file's content is not interpreted. */
enum status checkpoint_header_verify(const char *path);

/* Memory that HDF5 builds a file in (its core driver) and that stays when the file is closed. By itself HDF5
 * would grow its memory by copies, and give another copy away. */
struct checkpoint_memory {
  void *data;
  size_t capacity;
};

/* Files made with `access` (a hid_t: file access properties) lie in *memory from now on, which must outlive
 * them; it grows in steps of `step` bytes, best the file's size. False: HDF5 refuses. */
bool checkpoint_memory_use(struct checkpoint_memory *memory, size_t step, int64_t access);
void checkpoint_memory_free(struct checkpoint_memory *memory); /* once no file lies in it */

/* Builds the HDF5 image, *bytes of it, in memory; the caller frees it (checkpoint_memory_free), also after an
 * error. */
enum status checkpoint_image_create(const struct checkpoint_content *content, struct checkpoint_memory *image,
                                    size_t *bytes);

#endif
