/* The images of an import in memory; see import_set.h. */
#include "data/import_set.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/log.h"

void import_set_open(struct import_set *set) {
  *set = (struct import_set){.count = 0};
  pthread_mutex_init(&set->lock, NULL);
}

void import_set_close(struct import_set *set) {
  for (int64_t i = 0; i < set->count; i++) {
    if (set->image[i].row > 0) continue;
    free(set->image[i].name);
    free(set->image[i].pixels);
  }
  free(set->image);
  free(set->class_name);
  pthread_mutex_destroy(&set->lock);
}

static enum status find_class(struct import_set *set, const char *name, int *label) {
  for (int i = set->classes - 1; i >= 0; i--)
    if (strcmp(set->class_name[i], name) == 0) {
      *label = i;
      return STATUS_OK;
    }
  if (set->classes == DATASET_MAX_CLASSES)
    return RAISE(STATUS_INPUT, "more than %d classes (the last is '%s')", DATASET_MAX_CLASSES, name);
  if (!set->class_name) set->class_name = calloc(DATASET_MAX_CLASSES, sizeof *set->class_name);
  if (!set->class_name) return RAISE(STATUS_INPUT, "no memory for class names");
  snprintf(set->class_name[set->classes], DATASET_CLASS_NAME, "%s", name);
  *label = set->classes++;
  return STATUS_OK;
}

enum status import_set_class(struct import_set *set, const char *name, int *label) {
  pthread_mutex_lock(&set->lock);
  enum status status = find_class(set, name, label);
  pthread_mutex_unlock(&set->lock);
  return status;
}

static bool reserve(struct import_set *set, int64_t more) {
  if (set->count + more <= set->capacity) return true;
  int64_t capacity = 2 * set->capacity > set->count + more ? 2 * set->capacity : set->count + more + 1024;
  void *larger = realloc(set->image, (size_t)capacity * sizeof *set->image);
  if (!larger) return false;
  set->image = larger;
  set->capacity = capacity;
  return true;
}

enum status import_set_add(struct import_set *set, struct import_image first, int64_t rows,
                           const uint8_t *labels) {
  size_t bytes = (size_t)first.height * (size_t)first.width * 3;
  pthread_mutex_lock(&set->lock);
  bool good = reserve(set, rows);
  for (int64_t i = 0; i < rows && good; i++) {
    struct import_image image = first;
    image.row = (uint32_t)i;
    image.pixels = first.pixels + (size_t)i * bytes;
    if (labels) image.label = labels[i];
    set->image[set->count++] = image;
  }
  pthread_mutex_unlock(&set->lock);
  if (good) return STATUS_OK;
  enum status status = RAISE(STATUS_INPUT, "%s: no memory for one more image", first.name);
  free(first.name);
  free(first.pixels);
  return status;
}

static int compare_images(const void *left, const void *right) {
  const struct import_image *a = left, *b = right;
  if (a->split != b->split) return a->split < b->split ? -1 : 1;
  int names = strcmp(a->name, b->name);
  if (names != 0) return names;
  return (a->row > b->row) - (a->row < b->row);
}

struct ranked {
  char name[DATASET_CLASS_NAME];
  int label;
};

static int compare_classes(const void *a, const void *b) {
  return strcmp(((const struct ranked *)a)->name, ((const struct ranked *)b)->name);
}

/* Numbers the classes in the order of their names. */
static enum status sort_classes(struct import_set *set) {
  struct ranked *ranked = malloc((size_t)set->classes * sizeof *ranked);
  int16_t *to = malloc((size_t)set->classes * sizeof *to);
  enum status status = STATUS_OK;
  if (!ranked || !to) TRY_OUT(RAISE(STATUS_INPUT, "no memory for %d classes", set->classes));
  for (int i = 0; i < set->classes; i++) {
    memcpy(ranked[i].name, set->class_name[i], DATASET_CLASS_NAME);
    ranked[i].label = i;
  }
  qsort(ranked, (size_t)set->classes, sizeof *ranked, compare_classes);
  for (int i = 0; i < set->classes; i++) {
    to[ranked[i].label] = (int16_t)i;
    memcpy(set->class_name[i], ranked[i].name, DATASET_CLASS_NAME);
  }
  for (int64_t i = 0; i < set->count; i++) set->image[i].label = to[set->image[i].label];
out:
  free(ranked);
  free(to);
  return status;
}

static enum status check_images(const struct import_set *set) {
  const struct import_image *first = &set->image[0];
  for (int64_t i = 1; i < set->count; i++) {
    const struct import_image *image = &set->image[i], *last = image - 1;
    if (image->height != first->height || image->width != first->width)
      return RAISE(STATUS_INPUT,
                   "%s is %dx%d (height x width), but %s is %dx%d: all images must have one size",
                   image->name, image->height, image->width, first->name, first->height, first->width);
    if (compare_images(last, image) == 0) return RAISE(STATUS_INPUT, "%s is there twice", image->name);
  }
  return STATUS_OK;
}

static enum status check_classes(const struct import_set *set) {
  int64_t *seen = calloc(SPLIT_COUNT * (size_t)set->classes, sizeof *seen);
  if (!seen) return RAISE(STATUS_INPUT, "no memory for %d classes", set->classes);
  enum status status = STATUS_OK;
  for (int64_t i = 0; i < set->count; i++) seen[set->image[i].split * set->classes + set->image[i].label]++;
  for (int c = 0; c < set->classes && status == STATUS_OK; c++) {
    if (seen[SPLIT_TRAIN * set->classes + c] == 0)
      status = RAISE(STATUS_INPUT, "class '%s' has no training image; add some or remove its folders",
                     set->class_name[c]);
    else if (set->split_count[SPLIT_TEST] > 0 && seen[SPLIT_TEST * set->classes + c] == 0)
      log_warning("class '%s' has no test image", set->class_name[c]);
  }
  free(seen);
  return status;
}

enum status import_set_finish(struct import_set *set, const char *from) {
  if (set->count == 0)
    return RAISE(STATUS_INPUT,
                 "%s holds no image: expected train|test/CLASS/NAME.jpg|png, or CIFAR-10's binary version "
                 "(data_batch_1.bin .. data_batch_5.bin, test_batch.bin)",
                 from);
  if (set->count > UINT32_MAX)
    return RAISE(STATUS_INPUT, "%lld images, expected at most %u", (long long)set->count, UINT32_MAX);
  qsort(set->image, (size_t)set->count, sizeof *set->image, compare_images);
  for (int64_t i = 0; i < set->count; i++) set->split_count[set->image[i].split]++;
  TRY(check_images(set));
  TRY(sort_classes(set));
  return check_classes(set);
}
