/* A last resort against waiting for ever: at a moment set before, the process says why and ends, whatever its
 * other threads do. For the times in which no heartbeats run: before the ranks have found each other, after
 * they have parted, and while they are being ended.
 *
 * A thread of its own waits for the moment, so that no library's use of signals, no blocked signal and no
 * held lock can keep the process alive. There is one process to end, hence one deadline. */
#ifndef CONVOY_MODEL_BASE_DEADLINE_H
#define CONVOY_MODEL_BASE_DEADLINE_H

/* In `seconds` from now the process writes `text` (whole lines, copied; NULL: nothing) to stderr and ends
 * with `code`. Replaces a deadline that was set before. May be called by any thread. */
void deadline_set(unsigned seconds, int code, const char *text);

/* As deadline_set without a text, for a process that is to end in any case: what is set or cleared later
 * changes nothing, but for an earlier final one. */
void deadline_final(unsigned seconds, int code);

/* Forgets the deadline, unless it is final. */
void deadline_clear(void);

#endif
