/* The steady clock: for durations and time-outs, never for dates. */
#ifndef CONVOY_MODEL_BASE_CLOCK_H
#define CONVOY_MODEL_BASE_CLOCK_H

/* Seconds since some moment before the process began; never set back, and standing still only while the whole
 * machine sleeps (CLOCK_MONOTONIC). May be called in a signal handler. */
double clock_seconds(void);

#endif
