/* CIFAR-10's official binary version: data_batch_1.bin .. 5 and test_batch.bin, rows of 1 label byte and 3
 * planes of 32x32 (https://www.cs.toronto.edu/~kriz/cifar.html), and batches.meta.txt with the class names.
 */
#ifndef CONVOY_DATA_CIFAR_BINARY_H
#define CONVOY_DATA_CIFAR_BINARY_H

#include <stddef.h>
#include <stdint.h>

#include "data/import_set.h"
#include "model/base/error.h"

enum { CIFAR_BATCHES = 6, CIFAR_CLASSES = 10 };

/* Adds the rows of one batch, transposed to N,H,W,C. */
enum status cifar_binary_add(struct import_set *set, const char *name, int split, const uint8_t *data,
                             size_t bytes);

/* Makes the set's classes: those of batches.meta.txt (data NULL: the known ones). */
enum status cifar_binary_names(struct import_set *set, const char *name, const uint8_t *data, size_t bytes);

#endif
