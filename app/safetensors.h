/* Reads safetensors files (github.com/huggingface/safetensors, "Format"). Nothing in a file is trusted:
 * header length, offsets, shapes and sizes are checked against each other and the file before an array is
 * used. */
#ifndef CONVOY_APP_SAFETENSORS_H
#define CONVOY_APP_SAFETENSORS_H

#include <stdbool.h>

#include "model/base/error.h"
#include "model/base/tensor.h"

struct safetensors;

/* Reads a whole file. STATUS_INPUT names what is wrong with it. */
enum status safetensors_open(const char *path, struct safetensors **file);
void safetensors_close(struct safetensors *file); /* NULL: nothing */

/* A text of the file's metadata; NULL if it has none of that name. */
const char *safetensors_metadata(const struct safetensors *file, const char *name);

/* The shape of an array as the file has it, as if fp32; false if there is none of that name. A file of
 * DistributedDataParallel's module ("module.conv1.weight") is taken as one of the module inside it. */
bool safetensors_shape(const struct safetensors *file, const char *name, struct tensor *shape);

/* Reads an array of that shape (F32, BF16 or F64 in the file) to data[tensor_count(shape)]. Missing, another
 * shape or type: STATUS_INPUT with both. */
enum status safetensors_read(const struct safetensors *file, const char *name, const struct tensor *shape,
                             float *data);

#endif
