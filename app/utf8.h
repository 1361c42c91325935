/* Text from outside (paths, class names) may be any bytes; JSON, HTML, metrics and protobuf's text
 * are UTF-8 (RFC 3629). */
#ifndef CONVOY_APP_UTF8_H
#define CONVOY_APP_UTF8_H

/* Bytes of the UTF-8 character at `text`, 0 if it is none; 1 at the end of the text. */
int utf8_length(const char *text);

/* Every byte of the text that is no part of a character becomes '?'. */
void utf8_mend(char *text);

#endif
