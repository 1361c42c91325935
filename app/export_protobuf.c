/* protobuf's wire format; see export_protobuf.h. */
#include "app/export_protobuf.h"

#include <stdlib.h>
#include <string.h>

#include "app/utf8.h"

enum wire { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_LENGTH = 2, WIRE_FIXED32 = 5 };

void protobuf_destroy(struct protobuf *message) {
  free(message->data);
  *message = (struct protobuf){0};
}

static void append(struct protobuf *message, const void *data, size_t bytes) {
  if (message->failed || bytes == 0) return;
  if (bytes > message->capacity - message->bytes) {
    size_t capacity = 2 * message->capacity + bytes + 64;
    uint8_t *grown = realloc(message->data, capacity);
    if (!grown) {
      message->failed = true;
      return;
    }
    message->data = grown;
    message->capacity = capacity;
  }
  memcpy(message->data + message->bytes, data, bytes);
  message->bytes += bytes;
}

/* Seven bits a byte, the lowest first; the high bit says that more follow. */
static void varint(struct protobuf *message, uint64_t value) {
  uint8_t bytes[10];
  size_t count = 0;
  do {
    bytes[count] = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
    value >>= 7;
    count++;
  } while (value > 0);
  append(message, bytes, count);
}

static void tag(struct protobuf *message, int field, enum wire wire) {
  varint(message, (uint64_t)field << 3 | (uint64_t)wire);
}

void protobuf_integer(struct protobuf *message, int field, int64_t value) {
  tag(message, field, WIRE_VARINT);
  varint(message, (uint64_t)value);
}

void protobuf_float(struct protobuf *message, int field, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint8_t bytes[4] = {(uint8_t)bits, (uint8_t)(bits >> 8), (uint8_t)(bits >> 16), (uint8_t)(bits >> 24)};
  tag(message, field, WIRE_FIXED32);
  append(message, bytes, sizeof bytes);
}

void protobuf_double(struct protobuf *message, int field, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint8_t bytes[8];
  for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(bits >> 8 * i);
  tag(message, field, WIRE_FIXED64);
  append(message, bytes, sizeof bytes);
}

void protobuf_bytes(struct protobuf *message, int field, const void *data, size_t bytes) {
  tag(message, field, WIRE_LENGTH);
  varint(message, bytes);
  append(message, data, bytes);
}

void protobuf_text(struct protobuf *message, int field, const char *text) {
  size_t bytes = strlen(text);
  protobuf_bytes(message, field, text, bytes);
  append(message, "", 1);
  if (message->failed) return;
  message->bytes--; /* the end was for mending only */
  utf8_mend((char *)message->data + message->bytes - bytes);
}

void protobuf_message(struct protobuf *message, int field, struct protobuf *inner) {
  protobuf_bytes(message, field, inner->data, inner->bytes);
  message->failed = message->failed || inner->failed;
  protobuf_destroy(inner);
}
