/* UTF-8: every character that there is passes, and no bytes that a strict reader refuses (RFC 3629). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "app/utf8.h"

/* The bytes of a code point, also of one that may not be written; `length` of them, more than it needs or
 * not. */
static void encode(uint32_t point, int length, char text[8]) {
  static const unsigned char lead[] = {0, 0x00, 0xc0, 0xe0, 0xf0};
  memset(text, 0, 8);
  for (int i = length - 1; i > 0; i--, point >>= 6) text[i] = (char)(0x80 | (point & 0x3f));
  text[0] = (char)(lead[length] | point);
}

static int shortest(uint32_t point) {
  return point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
}

static void every_code_point(void **state) {
  (void)state;
  char text[8];
  for (uint32_t point = 0; point < 0x200000; point++) {
    int least = shortest(point);
    bool is_character = point <= 0x10ffff && (point < 0xd800 || point > 0xdfff);
    encode(point, least, text);
    assert_int_equal(utf8_length(text), is_character ? least : 0);
    for (int longer = least + 1; longer <= 4; longer++) {
      encode(point, longer, text);
      assert_int_equal(utf8_length(text), 0);
    }
  }
}

static void what_is_cut_or_alone(void **state) {
  (void)state;
  char text[8];
  for (int byte = 0x80; byte < 0x100; byte++) { /* a lead without its rest, a rest without its lead */
    snprintf(text, sizeof text, "%cab", byte);
    assert_int_equal(utf8_length(text), 0);
  }
  encode(0x1f600, 4, text);
  for (int cut = 1; cut < 4; cut++) {
    text[4 - cut] = '\0';
    assert_int_equal(utf8_length(text), 0);
  }
}

static void mended(void **state) {
  (void)state;
  char text[] = "a\xc3\xa9\xc0\x80 \xed\xa0\x80 \xf5\x80\x80\x80\xe2\x82";
  utf8_mend(text);
  assert_string_equal(text, "a\xc3\xa9?? ??? ??????");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_code_point),
                                     cmocka_unit_test(what_is_cut_or_alone), cmocka_unit_test(mended)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
