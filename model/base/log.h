/* What a run says: plain lines on stdout from rank 0, warnings of any rank on stderr, each flushed at once.
 * Any thread may speak; one line comes after the other. */
#ifndef CONVOY_MODEL_BASE_LOG_H
#define CONVOY_MODEL_BASE_LOG_H

#include <stdbool.h>

/* Names this process in warnings and decides who speaks: only rank 0 prints information, and not if `quiet`.
 */
void log_open(int rank, const char *host, bool quiet);

/* One line on stdout, rank 0 only. The line end is added; others in it are replaced. */
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* `warning: …` on stderr, with `[rank R host]` from ranks other than 0. */
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Names of files and classes may hold anything: every control character becomes '?', so that the text is one
 * line and does nothing to a terminal. */
void log_one_line(char *text);

/* Called before each line that this module prints, by the thread that prints it and with the lock held, so
 * that a live display can clear its own; NULL: none. */
void log_on_line(void (*hook)(void));

/* The lock of all lines, for what a live display writes between them. It may be taken again by the thread
 * that holds it. */
void log_lock(void);
void log_unlock(void);

#endif
