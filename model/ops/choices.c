/* A list of choices; see choices.h. As bytes: for each a header, the key, the value, without gaps. */
#include "model/ops/choices.h"

#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1 << 26 /* bytes of a key or a value that can be meant */ };

struct header {
  uint32_t kind, key_bytes, value_bytes;
};

struct choice {
  struct choice *next;
  struct header header;
  bool fresh;
  uint64_t value[]; /* then the key; uint64_t only for its alignment */
};

static size_t value_room(const struct header *header) {
  return (header->value_bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t) * sizeof(uint64_t);
}

static void *value_of(struct choice *choice) {
  return choice->value;
}

static char *key_of(struct choice *choice) {
  return (char *)choice->value + value_room(&choice->header);
}

const void *choices_find(const struct choices *choices, struct choice_key key, size_t *bytes) {
  for (struct choice *c = choices->first; c; c = c->next)
    if (c->header.kind == key.kind && c->header.key_bytes == key.bytes &&
        memcmp(key_of(c), key.data, key.bytes) == 0) {
      *bytes = c->header.value_bytes;
      return value_of(c);
    }
  return NULL;
}

/* An entry with room for its value. */
static enum status append(struct choices *choices, struct choice_key key, size_t value_bytes, bool fresh,
                          struct choice **out) {
  struct header header = {
      .kind = key.kind, .key_bytes = (uint32_t)key.bytes, .value_bytes = (uint32_t)value_bytes};
  struct choice *made = calloc(1, sizeof *made + value_room(&header) + key.bytes);
  if (!made) return RAISE(STATUS_INPUT, "out of memory");
  made->header = header;
  made->fresh = fresh;
  memcpy(key_of(made), key.data, key.bytes);
  if (choices->last)
    choices->last->next = made;
  else
    choices->first = made;
  choices->last = made;
  *out = made;
  return STATUS_OK;
}

enum status choices_add(struct choices *choices, struct choice_key key, const void *head, size_t head_bytes,
                        const void *tail, size_t tail_bytes) {
  struct choice *made;
  if (key.bytes > LARGEST || head_bytes > LARGEST || tail_bytes > LARGEST - head_bytes)
    return RAISE(STATUS_INTERNAL, "a choice of %zu bytes", key.bytes + head_bytes + tail_bytes);
  TRY(append(choices, key, head_bytes + tail_bytes, true, &made));
  memcpy(value_of(made), head, head_bytes);
  if (tail_bytes > 0) memcpy((char *)value_of(made) + head_bytes, tail, tail_bytes);
  return STATUS_OK;
}

static char *put(char *at, const void *data, size_t bytes) {
  memcpy(at, data, bytes);
  return at + bytes;
}

enum status choices_write(const struct choices *choices, bool fresh, void **bytes, size_t *count) {
  size_t need = 0;
  *bytes = NULL;
  *count = 0;
  for (const struct choice *c = choices->first; c; c = c->next)
    if (c->fresh || !fresh) need += sizeof c->header + c->header.key_bytes + c->header.value_bytes;
  if (need == 0) return STATUS_OK;
  char *at = malloc(need);
  if (!at) return RAISE(STATUS_INPUT, "out of memory");
  *bytes = at;
  *count = need;
  for (struct choice *c = choices->first; c; c = c->next) {
    if (!c->fresh && fresh) continue;
    at = put(at, &c->header, sizeof c->header);
    at = put(at, key_of(c), c->header.key_bytes);
    at = put(at, value_of(c), c->header.value_bytes);
  }
  return STATUS_OK;
}

enum status choices_read(struct choices *choices, const void *bytes, size_t count) {
  const char *at = bytes;
  while (count > 0) {
    struct header header;
    size_t found;
    if (count < sizeof header) return RAISE(STATUS_INPUT, "choices end within one");
    memcpy(&header, at, sizeof header);
    at += sizeof header;
    count -= sizeof header;
    if (header.key_bytes > count || header.value_bytes > count - header.key_bytes)
      return RAISE(STATUS_INPUT, "a choice is longer than what is left of them");
    struct choice_key key = {.kind = header.kind, .data = at, .bytes = header.key_bytes};
    if (!choices_find(choices, key, &found)) {
      struct choice *made;
      TRY(append(choices, key, header.value_bytes, false, &made));
      memcpy(value_of(made), at + header.key_bytes, header.value_bytes);
    }
    at += header.key_bytes + header.value_bytes;
    count -= header.key_bytes + header.value_bytes;
  }
  return STATUS_OK;
}

void choices_destroy(struct choices *choices) {
  while (choices->first) {
    struct choice *next = choices->first->next;
    free(choices->first);
    choices->first = next;
  }
  choices->last = NULL;
}
