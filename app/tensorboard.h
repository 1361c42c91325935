/* `--tensorboard DIR`: event files that TensorBoard reads (scalars, the run's description, example images
 * with predictions). Rank 0 only; a folder is one run.
 *
 * A session (a start or a resume) writes a file of its own whose name sorts behind the ones that are there.
 * It begins with SessionLog START and the first step to come: from that step on readers forget what former
 * files say, so each step counts once also where a killed run had gone past its checkpoint. */
#ifndef CONVOY_APP_TENSORBOARD_H
#define CONVOY_APP_TENSORBOARD_H

#include "app/export_protobuf.h"
#include "app/runlog.h"

struct tensorboard;
struct train;

/* STATUS_INPUT if a new run would mix with event files that are in the folder, or its name is a run's own
 * (output.h). Changes nothing. */
enum status tensorboard_check(const char *folder, enum runlog_mode mode);

/* Makes the folder with its parents and this session's file; RUNLOG_OVERWRITE first removes the event files
 * that Convoy made there. `step`: steps done before this session. STATUS_STORAGE: cannot be written. */
enum status tensorboard_open(const char *folder, enum runlog_mode mode, int64_t step,
                             struct tensorboard **tensorboard);
void tensorboard_close(struct tensorboard *tensorboard); /* NULL: nothing */

/* The rows of loss.csv (tags train/COLUMN) and epochs.csv (epoch/COLUMN), with the numbers that stand there,
 * rounded to float. A row that cannot be written is left out; that is told once and ends nothing. NULL:
 * nothing.
 */
void tensorboard_loss(struct tensorboard *tensorboard, const struct runlog_loss *row);
void tensorboard_epoch(struct tensorboard *tensorboard, const struct runlog_epoch *row);

/* `text` is Markdown. `step`: as in tensorboard_open or later. */
void tensorboard_text(struct tensorboard *tensorboard, const char *tag, int64_t step, const char *text);

/* Appends an event that holds this Summary, and destroys it. */
void tensorboard_summary(struct tensorboard *tensorboard, int64_t step, struct protobuf *summary);

/* tensorboard_run.c, nothing without --tensorboard: OUT/run.json as text, `run`; and at the end up to 25
 * images of the test set (tags examples/NN), framed green or red as the prediction is right or wrong, with a
 * table of them, `examples/predictions`; where that fails, a warning. The net's plan is replaced; not
 * collective. */
enum status tensorboard_describe(const struct train *train);
void tensorboard_examples(const struct train *train);

#endif
