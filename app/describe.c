/* run.json: what ran, with what, where, and how it ended. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "app/train.h"
#include "model/base/clock.h"

/* An option's value in its own type; one that was not given and has no default: null. A choice's name goes
 * to text[capacity]. */
static struct runlog_value option_value(const struct option_row *row, const struct train_options *options,
                                        char *text, size_t capacity) {
  const void *field = (const char *)options + row->offset;
  switch (row->type) {
  case OPTION_FLAG:
    return runlog_bool(row->name, *(const bool *)field);
  case OPTION_INTEGER:
    return runlog_integer(row->name, *(const int64_t *)field);
  case OPTION_REAL:
    return runlog_real(row->name, *(const double *)field);
  case OPTION_TRIPLE: {
    const struct option_triple *triple = field;
    return triple->count ? runlog_reals(row->name, triple->value, triple->count)
                         : runlog_text(row->name, NULL);
  }
  case OPTION_TEXT_VALUE:
    return runlog_text(row->name, field);
  case OPTION_CHOICE:
    return runlog_text(row->name, options_text(row, options, text, capacity));
  case OPTION_WORDS: /* not in a file, so not in a record */
    break;
  }
  return runlog_text(row->name, NULL);
}

static int option_values(const struct train_options *options, struct runlog_value values[OPTION_ROWS],
                         char text[OPTION_ROWS][32]) {
  for (int i = 0; i < train_table.count; i++)
    values[i] = option_value(&train_table.rows[i], options, text[i], sizeof text[i]);
  return train_table.count;
}

enum status describe_run(const struct train *train) {
  const struct session *session = &train->session;
  const struct dataset *d = session->dataset;
  const struct world *world = train->world;
  const struct trainer *t = &train->trainer;
  struct runlog_value options[OPTION_ROWS];
  char text[OPTION_ROWS][32], library[160], digest[32], plan[512];
  int option_count = option_values(&train->options, options, text);
  world_library(library, sizeof library);
  snprintf(digest, sizeof digest, "%016" PRIx64, d->digest);
  net_describe(session->net, plan, sizeof plan);
  double mean[4], std[4];
  for (int c = 0; c < 4; c++) {
    mean[c] = (double)train->plan.mean[c];
    std[c] = (double)train->plan.std[c];
  }
  const char *names[DATASET_MAX_CLASSES];
  for (int i = 0; i < d->classes && d->class_name; i++) names[i] = d->class_name[i];
  const struct runlog_value versions[] = {runlog_text("convoy", CONVOY_VERSION), runlog_text("mpi", library),
                                          runlog_text("device", session->backend->description)};
  const struct runlog_value place[] = {
      runlog_integer("ranks", world->size), runlog_integer("hosts", world->nodes),
      runlog_text("host", world->host), runlog_text("backend", session->backend->table->name)};
  const struct runlog_value data[] = {runlog_text("digest", digest),
                                      runlog_integer("training_images", d->train.count),
                                      runlog_integer("test_images", d->test.count),
                                      runlog_integer("height", d->height),
                                      runlog_integer("width", d->width),
                                      runlog_integer("channels", d->channels),
                                      runlog_integer("classes", d->classes),
                                      runlog_texts("class_names", names, d->class_name ? d->classes : 0),
                                      runlog_reals("mean", mean, d->channels),
                                      runlog_reals("std", std, d->channels)};
  const struct runlog_value model[] = {runlog_text("name", train->options.model),
                                       runlog_integer("parameters", graph_parameter_count(session->graph)),
                                       runlog_integer("ops", session->graph->node_count),
                                       runlog_text("plan", plan)};
  const struct runlog_value steps[] = {
      runlog_integer("first_step", t->at.step), runlog_integer("steps_an_epoch", t->epoch_steps),
      runlog_integer("last_step", t->last_step), runlog_real("lr", t->schedule.lr)};
#define SECTION(name, values)                                                                                \
  { name, values, (int)(sizeof(values) / sizeof *(values)) }
  const struct runlog_section sections[] = {{"options", options, option_count},
                                            SECTION("versions", versions),
                                            SECTION("world", place),
                                            SECTION("data", data),
                                            SECTION("model", model),
                                            SECTION("steps", steps)};
#undef SECTION
  return runlog_describe(train->runlog, sections, sizeof sections / sizeof *sections);
}

enum status describe_metrics(struct train *train) {
  const struct train_options *o = &train->options;
  struct metrics_run run = {.run = o->out,
                            .model = o->model,
                            .host = train->world->host,
                            .ranks = train->world->size,
                            .steps = train->trainer.last_step,
                            .epochs = o->epochs};
  return o->metrics[0] ? metrics_open(o->metrics, &run, &train->trainer.metrics) : STATUS_OK;
}

enum status describe_tensorboard(struct train *train, enum runlog_mode mode) {
  const char *folder = train->options.tensorboard;
  if (!folder[0]) return STATUS_OK;
  return tensorboard_open(folder, mode, train->trainer.at.step, &train->trainer.board);
}

enum status describe_end(const struct train *train, const char *ending) {
  const struct trainer *t = &train->trainer;
  const struct evaluation *tested = &t->tested;
  double samples = (double)tested->samples;
  const struct pace *pace = &t->pace;
  const double spread[] = {t->spread.least, t->spread.median, t->spread.most};
  bool compared = t->spread.most > 0;
  const struct runlog_value result[] = {
      runlog_integer("step", t->at.step),
      runlog_integer("epochs", t->at.epoch),
      runlog_real("seconds", t->at.seconds),
      runlog_real("test_loss", tested->samples ? tested->loss : NAN),
      runlog_real("test_accuracy", tested->samples ? (double)tested->correct / samples : NAN),
      runlog_real("best_test_accuracy", t->at.best_accuracy >= 0 ? t->at.best_accuracy : NAN),
      runlog_real("start_seconds", train->start.seconds > 0 ? train->start.seconds : NAN),
      runlog_real("session_steps", pace->steps),
      runlog_real("session_wait", pace->device ? NAN : pace->wait),
      runlog_real("session_data", pace->data),
      runlog_real("session_evaluation", pace->evaluation),
      runlog_real("session_saves", pace->saves),
      runlog_real("session_planning", pace->planning),
      runlog_real("process_seconds", clock_seconds() - train->start.launched),
      compared ? runlog_reals("step_spread", spread, 3) : runlog_text("step_spread", NULL),
      runlog_text("slowest_host", compared ? t->spread.host : NULL)};
  return runlog_finish(train->runlog, ending, result, sizeof result / sizeof *result);
}
