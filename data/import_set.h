/* The images of an import while they are in memory, in whatever order they came; then sorted, checked and
 * numbered by class. */
#ifndef CONVOY_DATA_IMPORT_SET_H
#define CONVOY_DATA_IMPORT_SET_H

#include <pthread.h>
#include <stdint.h>

#include "data/dataset.h"
#include "data/shard_list.h"
#include "model/base/error.h"

struct import_image {
  char *name;           /* owned where row is 0: the member it comes from */
  uint32_t row;         /* its number in that member */
  int16_t split, label; /* label: index into class_name */
  int32_t height, width;
  uint8_t *pixels; /* H,W,3; owned where row is 0 (the rows of one member are one block) */
};

struct import_set {
  pthread_mutex_t lock; /* of all that follows, while images are added */
  struct import_image *image;
  int64_t count, capacity;
  char (*class_name)[DATASET_CLASS_NAME];
  int classes;
  int64_t split_count[SPLIT_COUNT]; /* after import_set_finish: training images first */
};

void import_set_open(struct import_set *set);
void import_set_close(struct import_set *set);

/* The index of a class, added if it is new. */
enum status import_set_class(struct import_set *set, const char *name, int *label);

/* Adds `rows` images of one member, pixels[rows * H * W * 3]. Takes over name and pixels (also when it
 * fails). Any thread. */
enum status import_set_add(struct import_set *set, struct import_image first, int64_t rows,
                           const uint8_t *labels);

/* Sorts by split, name and row, so that the order in which images came does not matter; numbers the classes
 * in the order of their names; refuses doubled names, differing sizes, classes without training images, no
 * images at all. */
enum status import_set_finish(struct import_set *set, const char *from);

#endif
