/* Whether bytes are UTF-8; see utf8.h. */
#include "app/utf8.h"

int utf8_length(const char *text) {
  static const struct {
    unsigned char mask, lead;
  } kinds[] = {{0x80, 0x00}, {0xe0, 0xc0}, {0xf0, 0xe0}, {0xf8, 0xf0}};
  for (int length = 1; length <= 4; length++) {
    if (((unsigned char)text[0] & kinds[length - 1].mask) != kinds[length - 1].lead) continue;
    for (int i = 1; i < length; i++)
      if (((unsigned char)text[i] & 0xc0) != 0x80) return 0;
    return length;
  }
  return 0;
}

void utf8_mend(char *text) {
  while (*text) {
    int length = utf8_length(text);
    if (length == 0) *text = '?';
    text += length ? length : 1;
  }
}
