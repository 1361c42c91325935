/* Whether bytes are UTF-8; see utf8.h. */
#include "app/utf8.h"

/* By the first byte: its range, and that of the second one, which leaves out what has a shorter form, the
 * halves of UTF-16's pairs and what is above U+10FFFF (RFC 3629, section 4). */
static const struct kind {
  unsigned char first, last, second, second_last;
  int length;
} kinds[] = {{0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
             {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
             {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};

int utf8_length(const char *text) {
  const unsigned char *byte = (const unsigned char *)text;
  const struct kind *kind = kinds, *end = kinds + sizeof kinds / sizeof *kinds;
  while (kind < end && (byte[0] < kind->first || byte[0] > kind->last)) kind++;
  if (kind == end) return 0;
  if (kind->length > 1 && (byte[1] < kind->second || byte[1] > kind->second_last)) return 0;
  for (int i = 2; i < kind->length; i++)
    if ((byte[i] & 0xc0) != 0x80) return 0;
  return kind->length;
}

void utf8_mend(char *text) {
  while (*text) {
    int length = utf8_length(text);
    if (length == 0) *text = '?';
    text += length ? length : 1;
  }
}
