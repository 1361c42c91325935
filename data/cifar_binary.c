/* CIFAR-10's binary files; see cifar_binary.h. */
#include "data/cifar_binary.h"

#include <stdlib.h>
#include <string.h>

enum { SIDE = 32, PLANE = SIDE * SIDE, ROW_BYTES = 1 + 3 * PLANE };

static enum status check(const char *name, const uint8_t *data, size_t bytes) {
  if (bytes == 0 || bytes % ROW_BYTES != 0)
    return RAISE(STATUS_INPUT, "%s has %zu bytes, expected a multiple of %d (%zu rows and %zu bytes)", name,
                 bytes, ROW_BYTES, bytes / ROW_BYTES, bytes % ROW_BYTES);
  for (size_t row = 0; row < bytes / ROW_BYTES; row++)
    if (data[row * ROW_BYTES] >= CIFAR_CLASSES)
      return RAISE(STATUS_INPUT, "%s: row %zu: label %d, expected 0..%d", name, row, data[row * ROW_BYTES],
                   CIFAR_CLASSES - 1);
  return STATUS_OK;
}

enum status cifar_binary_add(struct import_set *set, const char *name, int split, const uint8_t *data,
                             size_t bytes) {
  TRY(check(name, data, bytes));
  size_t rows = bytes / ROW_BYTES;
  struct import_image first = {.split = (int16_t)split, .height = SIDE, .width = SIDE};
  uint8_t *labels = malloc(rows);
  first.name = strdup(name);
  first.pixels = malloc(rows * 3 * PLANE);
  if (!labels || !first.name || !first.pixels) {
    free(labels);
    free(first.name);
    free(first.pixels);
    return RAISE(STATUS_INPUT, "%s: no memory for %zu images", name, rows);
  }
  uint8_t *to = first.pixels;
  for (size_t row = 0; row < rows; row++) {
    const uint8_t *from = data + row * ROW_BYTES;
    labels[row] = *from++;
    for (int p = 0; p < PLANE; p++)
      for (int c = 0; c < 3; c++) *to++ = from[c * PLANE + p];
  }
  enum status status = import_set_add(set, first, (int64_t)rows, labels);
  free(labels);
  return status;
}

enum status cifar_binary_names(struct import_set *set, const char *name, const uint8_t *data, size_t bytes) {
  static const char known[] = "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n";
  const char *text = data ? (const char *)data : known, *end = text + (data ? bytes : sizeof known - 1);
  while (text < end) {
    const char *line = text;
    while (text < end && *text != '\n' && *text != '\r') text++;
    size_t length = (size_t)(text - line);
    text++;
    if (length == 0) continue;
    char class_name[DATASET_CLASS_NAME];
    if (length >= sizeof class_name)
      return RAISE(STATUS_INPUT, "%s: a line of %zu bytes, expected %d class names", name, length,
                   CIFAR_CLASSES);
    memcpy(class_name, line, length);
    class_name[length] = '\0';
    int label, expected = set->classes;
    TRY(import_set_class(set, class_name, &label));
    if (label != expected) return RAISE(STATUS_INPUT, "%s: class '%s' is there twice", name, class_name);
  }
  if (set->classes != CIFAR_CLASSES)
    return RAISE(STATUS_INPUT, "%s: %d class names, expected %d", name, set->classes, CIFAR_CLASSES);
  return STATUS_OK;
}
