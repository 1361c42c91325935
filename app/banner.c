/* The banner of a run: world, devices, data, model, plan. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "app/placement.h"
#include "app/train.h"
#include "model/base/log.h"

enum { RANKS_SHOWN = 16 };

static void warn_placement(const struct placement *all, int count) {
  char text[512];
  if (placement_uneven(all, count, text, sizeof text)) log_warning("%s", text);
  if (placement_tight(all, count, text, sizeof text)) log_warning("%s", text);
  if (placement_hidden(all, count, text, sizeof text)) log_warning("%s", text);
}

static enum status print_world(const struct train *train) {
  const struct world *world = train->world;
  const struct backend *backend = train->session.backend;
  struct placement *all;
  char library[160];
  TRY(placement_gather(world, backend->description, backend->table->device, &all));
  world_library(library, sizeof library);
  library[strcspn(library, ",\t")] = '\0';
  log_info("convoy %s: %d rank%s on %d host%s; %s", CONVOY_VERSION, world->size, world->size == 1 ? "" : "s",
           world->nodes, world->nodes == 1 ? "" : "s", library);
  for (int r = 0; r < world->size && r < RANKS_SHOWN; r++)
    log_info("  rank %d: %s, %s%s%s", r, all[r].host, all[r].device,
             all[r].visible[0] ? ", CUDA_VISIBLE_DEVICES=" : "", all[r].visible);
  if (world->size > RANKS_SHOWN) log_info("  … and %d more", world->size - RANKS_SHOWN);
  if (world->rank == 0) warn_placement(all, world->size);
  free(all);
  return STATUS_OK;
}

static void channel_text(const float *number, int channels, char *text, size_t capacity) {
  size_t used = 0;
  text[0] = '\0';
  for (int c = 0; c < channels && used < capacity; c++)
    used += (size_t)snprintf(text + used, capacity - used, "%s%.4f", c ? "," : "", (double)number[c]);
}

static void print_data(const struct train *train) {
  const struct dataset *d = train->session.dataset;
  char mean[64], std[64];
  channel_text(train->plan.mean, d->channels, mean, sizeof mean);
  channel_text(train->plan.std, d->channels, std, sizeof std);
  log_info("data: %s: %" PRId64 " training and %" PRId64 " test images of %dx%dx%d in %d classes%s%s%s",
           train->options.data, d->train.count, d->test.count, d->height, d->width, d->channels, d->classes,
           d->classes_given ? "" : " (the shards do not name them)", d->note[0] ? "; " : "", d->note);
  log_info("  mean %s, std %s (%s), digest %016" PRIx64, mean, std,
           train->options.mean.count || train->options.std.count ? "as given" : "measured", d->digest);
  if (d->test.count == 0) log_info("  no test shards: nothing will be evaluated");
}

static void print_model(const struct train *train) {
  const struct graph *graph = train->session.graph;
  int fused = 0;
  for (int i = 0; i < graph->node_count; i++)
    fused += graph->node[i].desc.kind == OP_CONV_BN || graph->node[i].desc.kind == OP_CONV_POOL;
  char text[512];
  net_describe(train->session.net, text, sizeof text);
  log_info("model: %s, %d ops, %d of them fused", train->options.model, graph->node_count, fused);
  log_info("  %s", text);
}

/* "8 lanes, 4 a rank: …" */
static void print_lanes(const struct train *train) {
  int64_t lanes = train->options.lanes;
  if (lanes == 0) return;
  log_info("lanes: %" PRId64 ", %" PRId64
           " a rank%s: the same bits on any power of two of ranks up to %" PRId64,
           lanes, lanes / train->world->size,
           train->session.backend->table->device ? "" : ", one thread a rank", lanes);
}

/* "128 images a step over all ranks (43 or 42 a rank)" */
static void print_steps(const struct train *train) {
  const struct trainer *t = &train->trainer;
  const struct train_options *o = &train->options;
  int64_t parts = o->lanes > 0 ? o->lanes : train->world->size;
  const char *part = o->lanes > 0 ? "lane" : "rank";
  int64_t most, least, full = sampler_step_count(&t->sampler, 0);
  int64_t steps = sampler_steps(&t->sampler);
  least = full / parts;
  most = (full + parts - 1) / parts;
  char split[64] = "";
  if (most != least)
    snprintf(split, sizeof split, ": %" PRId64 " or %" PRId64 " a %s", most, least, part);
  else if (parts > 1)
    snprintf(split, sizeof split, ": %" PRId64 " a %s", most, part);
  log_info("batch: %" PRId64 " over all ranks%s; %" PRId64 " steps an epoch, the last of %" PRId64, full,
           split, steps, sampler_step_count(&t->sampler, steps - 1));
  print_lanes(train);
  char scaled[96] = "";
  if (o->scale_lr != SCHEDULE_SCALE_NONE)
    snprintf(scaled, sizeof scaled, " = --lr %.6g x %.6g (--scale-lr)", o->lr, train->rate_factor);
  log_info("update: %s, lr %.6g%s, %s over %" PRId64 " steps%s",
           options_text(options_find(&train_table, "optimizer"), o, (char[16]){0}, 16), t->schedule.lr,
           scaled, options_text(options_find(&train_table, "schedule"), o, (char[16]){0}, 16),
           t->schedule.total_steps, o->warmup_steps ? " with warm-up" : "");
  log_info("precision: %s%s", precision_choices[o->precision], o->deterministic ? ", deterministic" : "");
}

enum status banner_print(const struct train *train) {
  TRY(print_world(train));
  print_data(train);
  print_model(train);
  print_steps(train);
  return STATUS_OK;
}
