/* Learning rates; see schedule.h for the formulas. */
#include "app/schedule.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const char *const kind_names[] = {
    [SCHEDULE_CONSTANT] = "constant", [SCHEDULE_LINEAR] = "linear", [SCHEDULE_COSINE] = "cosine"};
static const char *const scale_names[] = {
    [SCHEDULE_SCALE_NONE] = "none", [SCHEDULE_SCALE_LINEAR] = "linear", [SCHEDULE_SCALE_SQRT] = "sqrt"};

/* The name's place in names[count], or -1. */
static int find(const char *name, const char *const *names, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(name, names[i]) == 0) return (int)i;
  return -1;
}

bool schedule_kind_parse(const char *name, enum schedule_kind *kind) {
  int found = find(name, kind_names, sizeof kind_names / sizeof *kind_names);
  if (found >= 0) *kind = (enum schedule_kind)found;
  return found >= 0;
}

bool schedule_scale_parse(const char *name, enum schedule_scale *scale) {
  int found = find(name, scale_names, sizeof scale_names / sizeof *scale_names);
  if (found >= 0) *scale = (enum schedule_scale)found;
  return found >= 0;
}

double schedule_factor(enum schedule_scale scale, int64_t global_batch, int64_t base_batch) {
  assert(global_batch > 0 && base_batch > 0);
  double ratio = (double)global_batch / (double)base_batch;
  switch (scale) {
  case SCHEDULE_SCALE_NONE:
    return 1;
  case SCHEDULE_SCALE_LINEAR:
    return ratio;
  case SCHEDULE_SCALE_SQRT:
    return sqrt(ratio);
  }
  return 1;
}

float schedule_lr(const struct schedule *schedule, int64_t step) {
  int64_t warmup = schedule->warmup_steps, total = schedule->total_steps;
  if (step < warmup) return (float)(schedule->lr * (double)(step + 1) / (double)warmup);
  if (schedule->kind == SCHEDULE_CONSTANT) return (float)schedule->lr;
  if (step >= total) return 0;
  double done = (double)(step - warmup), all = (double)(total - warmup);
  if (schedule->kind == SCHEDULE_LINEAR) return (float)(schedule->lr * (all - done) / all);
  return (float)(schedule->lr * (1 + cos(acos(-1) * done / all)) / 2);
}
