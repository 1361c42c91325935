/* `convoy train`: checks everything, then resumes or starts, trains, and ends the run's files. Nothing is
 * written before all that can be refused was refused. */
#include "app/train.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/durable.h"
#include "app/initial.h"
#include "app/output.h"
#include "app/signals.h"
#include "model/backend/trace.h"
#include "model/base/clock.h"
#include "model/base/disk.h"
#include "model/base/log.h"

static enum runlog_mode mode_of(const struct train_options *options) {
  if (options->resume) return RUNLOG_RESUME;
  return options->overwrite ? RUNLOG_OVERWRITE : RUNLOG_NEW;
}

static enum status check_ranks(const struct train *train) {
  const struct train_options *o = &train->options;
  if (o->expect_ranks > 0 && o->expect_ranks != train->world->size)
    return RAISE(STATUS_INPUT, "found %d ranks; --expect-ranks says %" PRId64 "; check the launcher",
                 train->world->size, o->expect_ranks);
  int size = train->world->size;
  if (o->lanes > 0 && (size > o->lanes || (size & (size - 1)) != 0))
    return RAISE(STATUS_INPUT,
                 "--lanes %" PRId64
                 " cannot be shared by %d ranks; expected a power of two of ranks, at most as many as lanes",
                 o->lanes, size);
  return STATUS_OK;
}

/* Ends the run early, before its first step, if a signal came to any rank. */
static enum status check_signals(const struct train *train) {
  int64_t wanted = signals_stop_wanted();
  TRY(world_max_i64(train->world, &wanted, 1));
  return wanted ? world_agree(train->world, STATUS_STOPPED) : STATUS_OK;
}

/* A file cannot lie where a folder will. */
static enum status check_apart(const char *metrics, const char *option, const char *folder) {
  if (!output_same(metrics, folder)) return STATUS_OK;
  return RAISE(STATUS_INPUT, "--metrics %s, a file, and --%s %s, a folder, are the same; give another name",
               metrics, option, folder);
}

/* Rank 0: whether the run may write where it is told to. */
static enum status check_folders(const struct train_options *o) {
  TRY(runlog_check(o->out, mode_of(o)));
  if (o->overwrite && o->init[0] && output_inside(o->init, o->out))
    return RAISE(STATUS_INPUT, "--init %s lies in --out %s, which --overwrite empties; give another --out",
                 o->init, o->out);
  if (o->metrics[0]) {
    TRY(metrics_check(o->metrics));
    TRY(check_apart(o->metrics, "tensorboard", o->tensorboard));
    TRY(check_apart(o->metrics, "out", o->out));
  }
  return o->tensorboard[0] ? tensorboard_check(o->tensorboard, mode_of(o)) : STATUS_OK;
}

/* What needs no device: the data, the plan, the model and, for a new run, its first parameters. */
static enum status prepare_host(struct train *train) {
  const struct world *world = train->world;
  const struct train_options *o = &train->options;
  int64_t limit = (int64_t)(o->memory_limit > 0 ? o->memory_limit * 0x1p20 : world->memory_limit / 2);
  TRY(TRACE("open data", session_open_limited(world, o->data, DATASET_TRAIN, limit, &train->session)));
  start_part(&train->start, "data");
  TRY(check_signals(train));
  TRY(world_agree(world, train_plan(train)));
  TRY(session_build(&train->session, &train->plan));
  if (o->resume || o->init[0] || o->check) return STATUS_OK;
  enum status status = net_draw(train->session.graph, (uint64_t)o->seed, world->cores, &train->drawn);
  start_part(&train->start, "parameters");
  return world_agree(world, status);
}

/* All that a run needs; refuses what can be refused without a look at checkpoints. */
static enum status prepare(struct train *train) {
  const struct world *world = train->world;
  const struct train_options *o = &train->options;
  TRY(world_agree(world, check_ranks(train)));
  TRY(world_agree(world, world->rank == 0 ? check_folders(o) : STATUS_OK));
  struct backend_warming warming;
  backend_warm_begin(backend_choices[o->backend], world, &warming);
  enum status status = prepare_host(train);
  backend_warm_end(&warming);
  TRY(status);
  TRY(session_start(&train->session, &train->plan));
  TRY(check_signals(train));
  return banner_print(train);
}

/* ---- start or resume ---- */

/* Whether checkpoints can be written, so that the first save, hours from now, is no surprise. A run keeps
 * `keep` of them, writes one more, and best.h5 may be of an older step. */
static enum status check_space(const struct train *train, const char *folder) {
  char path[CHECKPOINT_PATH];
  int64_t need = checkpoint_estimate(train->snapshot.items, train->snapshot.item_count), free_bytes;
  TRY(disk_free(folder, &free_bytes));
  if (free_bytes < 2 * need)
    return RAISE(STATUS_STORAGE,
                 "%s has %.1f MB free; two checkpoints need %.1f MB; free some or choose another --out",
                 folder, (double)free_bytes * 1e-6, (double)(2 * need) * 1e-6);
  TRY(durable_try(checkpoint_path(folder, train->trainer.at.step + 1, path), need));
  int64_t all = (train->options.keep + 2) * need;
  if (train->options.keep > 0 && free_bytes < all)
    log_warning("%s has %.1f MB free; --keep %" PRId64 " may need %.1f MB", folder, (double)free_bytes * 1e-6,
                train->options.keep, (double)all * 1e-6);
  return STATUS_OK;
}

/* Rank 0, --check: whether the checkpoint that the run would start from can be used. */
static enum status check_start(const struct train *train) {
  const struct train_options *o = &train->options;
  char folder[OPTION_TEXT + 16];
  struct checkpoint *checkpoint = NULL;
  snprintf(folder, sizeof folder, "%s/checkpoints", o->out);
  if (o->resume) TRY(checkpoint_newest(folder, &checkpoint));
  if (!checkpoint) return o->init[0] ? initial_check(o->init, o->model) : STATUS_OK;
  enum status status = record_compare(&train->record, checkpoint);
  if (status == STATUS_OK) log_info("would resume: %s", checkpoint_name(checkpoint));
  checkpoint_close(checkpoint);
  return status;
}

/* Rank 0: opens the run's folder and, on --resume, the checkpoint to continue from. */
static enum status open_run(struct train *train) {
  const struct train_options *o = &train->options;
  TRY(runlog_open(o->out, mode_of(o), &train->runlog));
  if (o->resume) TRY(checkpoint_newest(runlog_checkpoints(train->runlog), &train->checkpoint));
  if (train->checkpoint) TRY(record_compare(&train->record, train->checkpoint));
  if (!train->checkpoint) return STATUS_OK;
  train->trainer.at = *checkpoint_progress(train->checkpoint);
  return checkpoint_read(train->checkpoint, train->snapshot.items, train->snapshot.item_count);
}

static bool is_complete(const struct train *train) {
  const struct trainer *t = &train->trainer;
  return t->at.step > 0 && t->at.step >= t->last_step && t->at.position != t->epoch_steps;
}

/* Rank 0: cuts the logs to where the run stands and says so, if the run can be written. */
static enum status start_files(struct train *train) {
  const struct checkpoint_progress *at = &train->trainer.at;
  TRY(check_space(train, runlog_checkpoints(train->runlog)));
  if (train->checkpoint)
    log_info("resuming: %s, step %" PRId64 " of %" PRId64, checkpoint_name(train->checkpoint), at->step,
             train->trainer.last_step);
  else if (train->options.resume)
    log_info("no checkpoint in %s yet: starting from step 0", train->options.out);
  TRY(describe_metrics(train));
  TRY(describe_tensorboard(train, mode_of(&train->options)));
  TRY(runlog_start(train->runlog, at->step, at->epoch));
  TRY(describe_run(train));
  train->described = true;
  return tensorboard_describe(train);
}

/* The parameters of step `at.step` on every rank. */
static enum status load_state(struct train *train) {
  const struct world *world = train->world;
  struct net *net = train->session.net;
  enum status status = STATUS_OK;
  if (train->drawn)
    status = net_begin(net, train->drawn);
  else if (train->trainer.at.step == 0 && train->options.init[0] == '\0')
    status = net_init(net, (uint64_t)train->options.seed);
  else if (world->rank == 0)
    status = snapshot_put(&train->snapshot);
  free(train->drawn);
  train->drawn = NULL;
  TRY(world_agree(world, status));
  return net_broadcast(net);
}

static enum status start_trainer(struct train *train) {
  struct trainer *t = &train->trainer;
  t->options = &train->options;
  t->session = &train->session;
  t->record = &train->record;
  t->snapshot = &train->snapshot;
  t->runlog = train->runlog;
  t->start = &train->start;
  t->at.complete = false;
  t->at.seed = (uint64_t)train->options.seed;
  return trainer_create(t);
}

static enum status execute(struct train *train, bool *done) {
  const struct world *world = train->world;
  struct session *session = &train->session;
  bool first = world->rank == 0;
  train->trainer.at = (struct checkpoint_progress){.best_accuracy = -1};
  const char *init = train->options.init;
  *done = train->options.check;
  if (*done) {
    TRY(world_agree(world, first ? check_start(train) : STATUS_OK));
    log_info("checked: nothing was trained or written");
    return STATUS_OK;
  }
  TRY(world_agree(world,
                  snapshot_create(session->backend, session->net,
                                  (enum optimizer_kind)train->options.optimizer, first, &train->snapshot)));
  TRY(world_agree(world, first ? open_run(train) : STATUS_OK));
  TRY(world_broadcast(world, &train->trainer.at, sizeof train->trainer.at, 0));
  bool fresh = train->trainer.at.step == 0 && init[0];
  TRY(world_agree(world, first && fresh ? initial_read(&train->options, session->graph, &train->snapshot)
                                        : STATUS_OK));
  TRY(world_agree(world, start_trainer(train)));
  if (is_complete(train)) {
    log_info("already complete: %s is at step %" PRId64, train->options.out, train->trainer.at.step);
    *done = true;
    return STATUS_OK;
  }
  TRY(load_state(train));
  TRY(trainer_check_replicas(&train->trainer));
  TRY(world_agree(world, first ? start_files(train) : STATUS_OK));
  return trainer_run(&train->trainer);
}

/* Rank 0: the last words and run.json's. A failure keeps its own record. */
static enum status end_run(struct train *train, enum status status) {
  if (!train->described) return status;
  const struct trainer *t = &train->trainer;
  if (status == STATUS_STOPPED) {
    log_info("stopped by a signal at step %" PRId64 "; the same command with --resume continues", t->at.step);
    enum status written = describe_end(train, "stopped");
    return written == STATUS_OK ? status : written;
  }
  if (status != STATUS_OK) {
    struct error_record record;
    error_save(&record);
    (void)describe_end(train, "failed");
    error_restore(&record);
    return status;
  }
  tensorboard_examples(train);
  log_info("done: step %" PRId64 "%s in %.1f s of training; %s", t->at.step,
           t->at.complete ? "" : " (of --steps; a larger one continues)", t->at.seconds, train->options.out);
  return describe_end(train, t->at.complete ? "complete" : "stopped");
}

/* The last checkpoint is written while the device is given back, unless predictions are wanted. */
static enum status finish(struct train *train) {
  if (!train->options.tensorboard[0]) session_leave(&train->session); /* on all ranks or on none */
  return trainer_end(&train->trainer);
}

/* Rank 0, at the end of a run that made steps: where its time went, in parts that add up to all of it.
 * `closing`: what came after the steps, without the wait for a save. */
static void tell_time(const struct train *train, enum status status, double closing) {
  const struct pace *pace = &train->trainer.pace;
  const struct start *start = &train->start;
  if (!train->described || start->seconds == 0) return;
  if (status != STATUS_OK && status != STATUS_STOPPED) return;
  double all = clock_seconds() - start->launched;
  double parts = start->seconds + pace->steps + pace->evaluation + pace->saves + pace->planning + closing;
  log_info(
      "time: start %.2f s, steps %.2f, evaluations %.2f, saves %.2f, planning %.2f, closing %.2f, rest %.2f; "
      "%.2f s since launch",
      start->seconds, pace->steps, pace->evaluation, pace->saves, pace->planning, closing,
      fmax(all - parts, 0), all);
}

enum status train_command(int argc, char **argv, const struct world *world) {
  struct train train = {.world = world};
  signals_ignore_closed_output();
  start_begin(&train.start, "mpi");
  enum status status = train_options_parse(argc, argv, &train.options);
  const struct train_options *o = &train.options;
  TRY(options_agree(world, &train_table, o, status));
  log_open(world->rank, world->host, train.options.quiet);
  if (world->rank == 0) TRY(train_options_warn(&train.options));
  bool done = false;
  status = watchdog_start(world, (int)o->init_timeout, (int)o->comm_timeout, &train.watchdog);
  if (status == STATUS_OK) status = prepare(&train);
  if (status == STATUS_OK) status = execute(&train, &done);
  double begin = clock_seconds(), saves = train.trainer.pace.saves;
  if (status == STATUS_OK && !done) status = finish(&train);
  progress_close(&train.trainer.view);
  if (!done) {
    enum status ended = end_run(&train, status);
    if (world_agreed(world, status)) status = world_agree(world, ended);
  }
  metrics_close(train.trainer.metrics, status);
  tensorboard_close(train.trainer.board);
  trainer_destroy(&train.trainer);
  checkpoint_close(train.checkpoint);
  runlog_close(train.runlog);
  if (world_agreed(world, status)) snapshot_destroy(&train.snapshot); /* else the device may never be done */
  record_destroy(&train.record);
  free(train.drawn);
  session_close(&train.session, status);
  watchdog_stop(train.watchdog, status);
  tell_time(&train, status, clock_seconds() - begin - (train.trainer.pace.saves - saves));
  return status;
}
