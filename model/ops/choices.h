/* Algorithms that were chosen by timing, each found again by what it was chosen for, and all of them as one
 * array of bytes for a later start. Knows nothing of what the keys and values mean. */
#ifndef CONVOY_MODEL_OPS_CHOICES_H
#define CONVOY_MODEL_OPS_CHOICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/base/error.h"

struct choice;

/* All zero: empty. */
struct choices {
  struct choice *first, *last;
};

/* What a choice is for: some bytes, of one kind. Compared as bytes: clear a struct before filling it in. */
struct choice_key {
  uint32_t kind;
  const void *data;
  size_t bytes;
};

/* The value that was chosen, aligned to 8 bytes and valid until choices_destroy; NULL: none yet. */
const void *choices_find(const struct choices *choices, struct choice_key key, size_t *bytes);

/* Adds a fresh choice, its value copied from head and tail (which may be empty); the key must be new. */
enum status choices_add(struct choices *choices, struct choice_key key, const void *head, size_t head_bytes,
                        const void *tail, size_t tail_bytes);

/* All of them, or the fresh ones (not from choices_read); *bytes is the caller's, NULL if there are none. */
enum status choices_write(const struct choices *choices, bool fresh, void **bytes, size_t *count);

/* Takes what choices_write made; keys that are there already keep their value. STATUS_INPUT if the bytes are
 * not such an array; what stands before the fault is taken. */
enum status choices_read(struct choices *choices, const void *bytes, size_t count);

void choices_destroy(struct choices *choices);

#endif
