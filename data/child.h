/* A child process for work that may crash, hang or take all memory: reading damaged files with a library that
 * does not withstand them. It has limits of its own, talks over a socket, and whatever becomes of it, this
 * process goes on and can say what happened.
 *
 * Children are forked by a process that was itself forked before this one had threads, MPI or a GPU
 * (children_prepare), and does nothing else. So no child finds a lock held by a thread that it has not got,
 * or shares memory that a network adapter or a GPU knows, and none can be started too late. A program of its
 * own would take longer to load than all shards to read. */
#ifndef CONVOY_DATA_CHILD_H
#define CONVOY_DATA_CHILD_H

#include <stdbool.h>
#include <stddef.h>

#include "model/base/error.h"

struct child;

/* What a child does with a copy of the context (aligned as malloc does) and its end of the socket; then it
 * ends by _exit. It sees this program as it was when children_prepare was called. */
typedef void child_work(const void *context, int socket);

/* Called by main before anything starts a thread; `title` (NULL: none) is argv[0], with `capacity` bytes for
 * the name that `ps` shows of the process. Where this was not called, or failed, the first child_start does
 * it. children_finish ends that process; without it, it ends with this one. */
void children_prepare(char *title, size_t capacity);
void children_finish(void);

/* Starts a child that calls work(context, socket) with a copy of the context. It may have `bytes` more memory
 * than it starts with (not limited in builds with sanitizers, whose own maps have no bound), and 1 s of
 * processor time until it calls child_allow. Called by any thread. STATUS_INPUT if it cannot be started for
 * want of memory, processes or file descriptors. */
enum status child_start(child_work *work, const void *context, size_t context_bytes, size_t bytes,
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
