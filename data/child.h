/* A child process for work that may crash, hang or take all memory: reading damaged files with a library that
 * does not withstand them. It has limits of its own, talks over a socket, and whatever becomes of it, this
 * process goes on and can say what happened.
 *
 * The child is forked and makes no call of MPI, CUDA or standard output; it ends by _exit, so that nothing of
 * this process is flushed or closed twice. Forking beside MPI: the child never touches memory that a network
 * adapter may write, and this process keeps its own pages of such memory, since Linux copies pinned pages for
 * the child (from 5.12 on; before, MPI's libraries mark them as not inherited).
 *
 * Forking beside threads: what another one had locked stays locked in the child, but for the C library's own
 * locks (memory, streams, loader), which fork gives back. The child waits for no other, since no thread but
 * the one that forks calls HDF5 then; that of backend_warm_begin may be opening the GPU, of which the child
 * uses nothing and keeps no file open. A program of its own would need no fork, but take longer to load than
 * all shards to read. */
#ifndef CONVOY_DATA_CHILD_H
#define CONVOY_DATA_CHILD_H

#include <stdbool.h>
#include <stddef.h>

#include "model/base/error.h"

struct child;

/* Starts a child that calls work(context, socket) and ends. It may have `bytes` more memory than this process
 * has now (not limited in builds with sanitizers, whose own maps have no bound), and 1 s of processor
 * time until it calls child_allow. Called by the main thread: the child ends with the thread that started it.
 * STATUS_INPUT if it cannot be started for want of memory, processes or file descriptors. */
enum status child_start(void (*work)(void *context, int socket), void *context, size_t bytes,
                        struct child **child);

/* In the child: `seconds` more of processor time from now on; at its end the child is killed. */
void child_allow(unsigned seconds);

/* The socket's ends, in the child and (child_socket) in this process: all `bytes` or false. */
bool child_get(int socket, void *data, size_t bytes);
bool child_put(int socket, const void *data, size_t bytes);
int child_socket(const struct child *child);

/* Ends the child, which may be at work, and frees it. `why`, if not NULL, tells how it ended if it did so by
 * itself before its time: "it crashed (signal 11)"; "" if it did not. NULL: nothing. */
void child_end(struct child *child, char *why, size_t capacity);

#endif
