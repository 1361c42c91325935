/* Plans of epochs; see planner.h. All of it is a function of the options and the epoch: when and where a plan
 * is made changes nothing. */
#include "app/planner.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "model/base/thread.h"

static enum status plan_create(const struct planner *planner, struct epoch_plan *plan) {
  const struct world *world = planner->world;
  int64_t steps = sampler_steps(planner->sampler);
  int64_t own = sampler_rank_count(planner->sampler, 0, world->rank, world->size);
  *plan = (struct epoch_plan){.epoch = -1};
  plan->list = calloc((size_t)own + 1, sizeof *plan->list);
  plan->begin = calloc((size_t)steps + 1, sizeof *plan->begin);
  plan->rows = calloc((size_t)steps + 1, sizeof *plan->rows);
  return plan->list && plan->begin && plan->rows ? STATUS_OK : STATUS_INTERNAL;
}

enum status planner_create(struct planner *planner) {
  planner->order = calloc((size_t)planner->sampler->count, sizeof *planner->order);
  if (!planner->order || plan_create(planner, &planner->plan[0]) != STATUS_OK ||
      plan_create(planner, &planner->plan[1]) != STATUS_OK)
    return RAISE(STATUS_INPUT, "no memory for the order of %" PRId64 " samples", planner->sampler->count);
  return STATUS_OK;
}

static void wait_for_thread(struct planner *planner) {
  if (planner->runs) pthread_join(planner->thread, NULL);
  planner->runs = false;
}

void planner_destroy(struct planner *planner) {
  wait_for_thread(planner);
  for (int i = 0; i < 2; i++) {
    free(planner->plan[i].list);
    free(planner->plan[i].begin);
    free(planner->plan[i].rows);
    planner->plan[i] = (struct epoch_plan){0};
  }
  free(planner->order);
  planner->order = NULL;
}

static enum status make(const struct planner *planner, int64_t epoch, int64_t first,
                        struct epoch_plan *plan) {
  const struct sampler *sampler = planner->sampler;
  const struct world *world = planner->world;
  int64_t steps = sampler_steps(sampler);
  plan->epoch = -1;
  TRY(sampler_epoch(sampler, epoch, planner->order));
  sampler_rank_list(sampler, planner->order, first, world->rank, world->size, plan->list, plan->begin);
  for (int64_t s = first; s < steps; s++) {
    int64_t step = epoch * steps + s;
    plan->rows[s - first] =
        (struct step_row){.first = plan->begin[s - first],
                          .learning_rate = schedule_lr(planner->schedule, step),
                          .scale = 1.0f / (float)sampler_step_count(sampler, s),
                          .correction1 = (float)(1 - pow(planner->beta1, (double)(step + 1))),
                          .correction2 = (float)(1 - pow(planner->beta2, (double)(step + 1)))};
  }
  plan->count = sampler_rank_count(sampler, first, world->rank, world->size);
  plan->steps = steps - first;
  plan->first = first;
  plan->epoch = epoch;
  return STATUS_OK;
}

enum status planner_get(struct planner *planner, int64_t epoch, int64_t first, struct epoch_plan **plan) {
  int next = 1 - planner->current;
  struct epoch_plan *ahead = &planner->plan[next];
  wait_for_thread(planner);
  /* A failure of the thread's is found again here, where it can be told. */
  if (ahead->epoch != epoch || ahead->first != first) TRY(make(planner, epoch, first, ahead));
  planner->current = next;
  *plan = ahead;
  return STATUS_OK;
}

static void *make_ahead(void *argument) {
  struct planner *planner = argument;
  struct epoch_plan *plan = &planner->plan[1 - planner->current];
  if (make(planner, planner->wanted, 0, plan) != STATUS_OK) error_clear();
  return NULL;
}

void planner_ahead(struct planner *planner, int64_t epoch) {
  wait_for_thread(planner);
  planner->plan[1 - planner->current].epoch = -1;
  planner->wanted = epoch;
  planner->runs = thread_start(&planner->thread, make_ahead, planner) == 0;
}
