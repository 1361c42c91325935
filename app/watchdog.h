/* The watchdog: ends the job when a rank dies, freezes or stands still, instead of waiting for it for ever.
 *
 * A thread in each rank sends a beat to rank 0 about every half second over TCP and gets one back; it calls
 * no MPI and does not depend on what the main thread does, so that no long step, load or save can look like a
 * frozen rank. Rank 0 judges (watchdog_judge.h): a rank whose beats stop is frozen or its host lost, one
 * whose link closes without a word is dead, and if all beat but no rank moves for that long the job is stuck.
 * A rank that hears nothing of rank 0 leaves too. The error names rank, host and last step; the exit code is
 * STATUS_COMM. No collective is called on that path: rank 0 (rank 1 if rank 0 is the silent one) prints the
 * line and aborts the job, the others leave by themselves if the launcher has not ended them two seconds
 * later. NCCL is not told: ncclCommAbort must not run beside the calls that the main thread is in, and the
 * end of a process ends its GPU work and connections as well. */
#ifndef CONVOY_APP_WATCHDOG_H
#define CONVOY_APP_WATCHDOG_H

#include "model/base/world.h"

struct watchdog;

/* Connects the ranks within `init_seconds` and starts their threads, which replaces the deadline that held so
 * far (model/base/deadline.h). `comm_seconds` of silence end the job; before a first step a
 * job in which nothing moves has at least `init_seconds`. NULL for one rank, which has nobody to wait for.
 * Ranks that cannot connect are named in a warning and not watched. Collective; the same status on all ranks.
 */
enum status watchdog_start(const struct world *world, int init_seconds, int comm_seconds,
                           struct watchdog **watchdog);

/* This rank leaves with `status`. If the ranks agreed on it (world_agreed), it needs no other any more;
 * otherwise it is about to end all because of its own error, which it reports itself: no other rank calls it
 * dead, and those that its abort does not reach leave with `status` too. NULL: nothing. */
void watchdog_stop(struct watchdog *watchdog, enum status status);

#endif
