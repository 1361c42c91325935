/* The learning rate of each step: a pure function of the step, so that a resumed run needs no state for it.
 */
#ifndef CONVOY_APP_SCHEDULE_H
#define CONVOY_APP_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_LINEAR, SCHEDULE_COSINE };
enum schedule_scale { SCHEDULE_SCALE_NONE, SCHEDULE_SCALE_LINEAR, SCHEDULE_SCALE_SQRT };

struct schedule {
  enum schedule_kind kind;
  double lr;            /* the highest rate, already scaled */
  int64_t warmup_steps; /* 0: none */
  int64_t total_steps;  /* epochs * steps an epoch; `--steps` ends a run earlier and does not change it */
};

/* "constant", "linear", "cosine" and "none", "linear", "sqrt"; false: no such name, nothing set. */
bool schedule_kind_parse(const char *name, enum schedule_kind *kind);
bool schedule_scale_parse(const char *name, enum schedule_scale *scale);

/* The factor for --lr at this global batch: 1; batch / base_batch (Goyal et al. 2017, "Accurate, large
 * minibatch SGD"); its square root (Krizhevsky 2014, "One weird trick"). */
double schedule_factor(enum schedule_scale scale, int64_t global_batch, int64_t base_batch);

/* The rate of step s (0-based), with warm-up W and total T:
 *   s < W:    lr * (s + 1) / W                      the first step is not lost at rate 0
 *   constant: lr
 *   linear:   lr * (T - s) / (T - W)                lr at s = W, lr / (T - W) at the last step
 *   cosine:   lr * (1 + cos(pi (s - W) / (T - W))) / 2      (Loshchilov and Hutter 2017, "SGDR", one cycle)
 * At s >= T linear and cosine are 0. Computed in double, rounded once. */
float schedule_lr(const struct schedule *schedule, int64_t step);

#endif
