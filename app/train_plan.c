/* The plan of a run: from its options and data to what session, trainer and record need; see train.h. */
#include <inttypes.h>

#include "app/train.h"
#include "model/base/log.h"

/* Per channel: as given, or as measured. */
static enum status choose_channels(const char *name, const struct option_triple *given,
                                   const double *measured, const struct dataset *dataset, float out[4]) {
  if (given->count == 3 && dataset->channels != 3)
    return RAISE(STATUS_INPUT, "--%s has 3 numbers, but the images have %d channel", name, dataset->channels);
  for (int c = 0; c < 4; c++)
    out[c] = (float)(given->count == 0 ? measured[c] : given->value[given->count == 3 && c < 3 ? c : 0]);
  return STATUS_OK;
}

static enum status plan_normalisation(struct train *train) {
  const struct dataset *d = train->session.dataset;
  TRY(choose_channels("mean", &train->options.mean, d->mean, d, train->plan.mean));
  TRY(choose_channels("std", &train->options.std, d->std, d, train->plan.std));
  for (int c = 0; c < d->channels; c++)
    if (!(train->plan.std[c] > 0))
      return RAISE(STATUS_INPUT, "all training images have the same value in channel %d; give --std", c);
  return STATUS_OK;
}

/* The order of the images; a streamed set has only one that reads large pieces. */
static void plan_order(struct train *train) {
  struct train_options *o = &train->options;
  const struct dataset *d = train->session.dataset;
  int64_t row_bytes = (int64_t)d->height * d->width * d->channels;
  if (d->streamed && o->shuffle == 0)
    log_info("the training images take %.0f MiB, more than --memory-limit: --shuffle chunk",
             (double)(d->train.count * row_bytes) / 0x1p20);
  if (train->world->rank == 0 && d->packed_rows > 4 * o->batch)
    log_warning(
        "the shards' images are compressed in chunks of %" PRId64
        " rows, which are slow to read; 'convoy data import --from %s --out NEW --rechunk' rewrites them",
        d->packed_rows, o->data);
  if (d->streamed) o->shuffle = 1;
  if (o->shuffle == 1) sampler_by_blocks(&train->trainer.sampler, row_bytes);
}

static enum status plan_sampler(struct train *train) {
  const struct train_options *o = &train->options;
  const struct dataset *d = train->session.dataset;
  bool crop = o->augment & AUGMENT_CROP, cutout = o->augment & AUGMENT_CUTOUT;
  if (crop && (o->crop_pad >= d->height || o->crop_pad >= d->width))
    return RAISE(STATUS_INPUT, "--crop-pad is %" PRId64 "; expected less than the images' size, %dx%d",
                 o->crop_pad, d->height, d->width);
  train->trainer.sampler =
      (struct sampler){.seed = (uint64_t)o->seed,
                       .count = d->train.count,
                       .global_batch = o->batch < d->train.count ? o->batch : d->train.count,
                       .flip = o->augment & AUGMENT_FLIP,
                       .crop = crop ? (int)o->crop_pad : 0,
                       .reflect = o->crop_fill == 1,
                       .cut = cutout ? (int)o->cutout_size : 0,
                       .height = d->height,
                       .width = d->width,
                       .lanes = (int)o->lanes};
  plan_order(train);
  if (train->world->rank == 0 && o->batch > d->train.count)
    log_warning("--batch %" PRId64 " is more than the %" PRId64
                " training images: each step takes all of them",
                o->batch, d->train.count);
  return STATUS_OK;
}

static void plan_net(struct train *train) {
  const struct train_options *o = &train->options;
  const struct sampler *sampler = &train->trainer.sampler;
  const struct world *world = train->world;
  struct net_options *net = &train->plan.net;
  *net = (struct net_options){.optimizer = (enum optimizer_kind)o->optimizer,
                              .momentum = (float)o->momentum,
                              .beta1 = (float)o->beta1,
                              .beta2 = (float)o->beta2,
                              .epsilon = (float)o->epsilon,
                              .weight_decay = (float)o->weight_decay,
                              .nesterov = o->nesterov,
                              .label_smoothing = (float)o->label_smoothing,
                              .plan_samples = sampler_rank_count(sampler, 0, world->rank, world->size),
                              .plan_steps = sampler_steps(sampler),
                              .reduce_low = o->allreduce == 1,
                              .lanes = (int)(o->lanes / world->size)};
  int64_t first, part;
  sampler_rank_part(sampler, 0, world->rank, world->size, &first, &part);
  session_add_batch(net->train_batch, part);
  sampler_rank_part(sampler, net->plan_steps - 1, world->rank, world->size, &first, &part);
  session_add_batch(net->train_batch, part);
}

/* What a stream keeps beside the window that it reads: the rows of all steps that may be under way. */
static void plan_stream(struct train *train) {
  const struct sampler *sampler = &train->trainer.sampler;
  int64_t first, part, window = sampler->block * sampler->window;
  sampler_rank_part(sampler, 0, train->world->rank, train->world->size, &first, &part);
  train->plan.window_rows = window < sampler->count ? window : sampler->count;
  train->plan.held_rows = (TRAINER_LAG + 2) * (part + 1);
}

static void plan_schedule(struct train *train) {
  const struct train_options *o = &train->options;
  train->rate_factor = 1;
  if (o->scale_lr != SCHEDULE_SCALE_NONE)
    train->rate_factor = schedule_factor((enum schedule_scale)o->scale_lr, o->batch, o->base_batch);
  train->trainer.schedule =
      (struct schedule){.kind = (enum schedule_kind)o->schedule,
                        .lr = o->lr * train->rate_factor,
                        .warmup_steps = o->warmup_steps,
                        .total_steps = o->epochs * sampler_steps(&train->trainer.sampler)};
}

enum status train_plan(struct train *train) {
  const struct train_options *o = &train->options;
  TRY(plan_normalisation(train));
  TRY(plan_sampler(train));
  plan_net(train);
  plan_stream(train);
  plan_schedule(train);
  train->plan.model = o->model;
  train->plan.backend = backend_choices[o->backend];
  train->plan.freeze = o->freeze;
  train->plan.lora = (int)o->lora;
  train->plan.lora_alpha = (float)o->lora_alpha;
  train->plan.fuse = o->fuse == 1;
  train->plan.plan_cache = o->plan_cache;
  train->plan.start = &train->start;
  train->plan.eval_batch = o->eval_batch;
  train->plan.device = (struct backend_options){.precision = (enum precision)o->precision,
                                                .deterministic = o->deterministic,
                                                .threads = o->lanes > 0 ? 1 : (int)o->threads,
                                                .init_timeout_seconds = (int)o->init_timeout,
                                                .exchanges = o->lanes > 0};
  if (o->warmup_steps > train->trainer.schedule.total_steps)
    return RAISE(STATUS_INPUT, "--warmup-steps is %" PRId64 "; expected at most the run's %" PRId64 " steps",
                 o->warmup_steps, train->trainer.schedule.total_steps);
  return record_create(o, train->session.dataset, train->plan.mean, train->plan.std, &train->record);
}
