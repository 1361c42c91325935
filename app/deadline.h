/* A last resort against waiting for ever: after some seconds the process says why and ends, whatever its
 * threads do. For the times in which no heartbeats run: before the ranks have found each other and after they
 * have parted. */
#ifndef CONVOY_APP_DEADLINE_H
#define CONVOY_APP_DEADLINE_H

/* In `seconds` from now the process writes `text` (whole lines, copied; NULL: nothing) to stderr and ends
 * with `code`. Replaces a deadline that was set before. Uses SIGALRM. */
void deadline_set(unsigned seconds, int code, const char *text);

void deadline_clear(void);

#endif
