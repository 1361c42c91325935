/* Training rows that do not fit in memory: one thread reads them into a ring, in the order in which the steps
 * take them. The rows of the files are read once an epoch; the ranks of a job read disjoint ones. */
#ifndef CONVOY_DATA_STREAM_H
#define CONVOY_DATA_STREAM_H

#include "data/dataset.h"
#include "model/base/sample.h"

struct stream;

/* The ring: slot s holds an image (H,W,C) and its label. The memory belongs to the caller and outlives the
 * stream. */
struct stream_ring {
  uint8_t *images;
  int32_t *labels;
  int64_t slots, group; /* rows in all, rows read at a time */
};

/* Sets slots and group: a group is a rank's share of a window of the order, and beside two of them there is
 * room for twice the `held` rows that steps use at a time. */
void stream_ring_plan(struct stream_ring *ring, int64_t window_rows, int ranks, int64_t held);

/* Starts the thread. The data set is borrowed; it must be `streamed`. */
enum status stream_create(const struct dataset *dataset, const struct stream_ring *ring,
                          struct stream **stream);
void stream_destroy(struct stream *stream); /* NULL: nothing */

/* Begins to read the rows list[0..count) by their index; what an earlier list still wanted is dropped. Then
 * list[i] is in slot i modulo slots: its index is replaced by that. */
enum status stream_begin(struct stream *stream, struct sample *list, int64_t count);

/* Waits until the rows before list[end] are in their slots. Rows are read only as far as slots are free: at
 * most `slots` rows may be waited for beyond those released. */
enum status stream_wait(struct stream *stream, int64_t end);

/* The slots of the rows before list[end] are no longer used. */
void stream_release(struct stream *stream, int64_t end);

#endif
