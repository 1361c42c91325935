/* Writes messages in protobuf's wire format (protobuf.dev/programming-guides/encoding): just what ONNX and
 * TensorBoard's event files need.
 *
 * A message grows in memory. After a failed allocation nothing more is added and `failed` stays set, so that
 * only the end is checked. */
#ifndef CONVOY_APP_EXPORT_PROTOBUF_H
#define CONVOY_APP_EXPORT_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct protobuf {
  uint8_t *data; /* owned */
  size_t bytes, capacity;
  bool failed;
};

void protobuf_destroy(struct protobuf *message); /* also a zeroed one */

/* Appends field `field`, an integer (int64, int32, enum), float, double, text (made UTF-8,
 * which readers insist on) or bytes. */
void protobuf_integer(struct protobuf *message, int field, int64_t value);
void protobuf_float(struct protobuf *message, int field, float value);
void protobuf_double(struct protobuf *message, int field, double value);
void protobuf_text(struct protobuf *message, int field, const char *text);
void protobuf_bytes(struct protobuf *message, int field, const void *data, size_t bytes);

/* Appends a message as a field and destroys it. */
void protobuf_message(struct protobuf *message, int field, struct protobuf *inner);

#endif
