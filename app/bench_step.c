/* `convoy bench step`: each part of a model's training step timed by itself, then the whole recorded step,
 * beside what the device can do. Needs no data set. */
#include <stdlib.h>
#include <string.h>

#include "app/bench_ceiling.h"
#include "app/bench_work.h"
#include "app/train_options.h"
#include "model/base/log.h"

enum { WINDOWS = 5 };

static void print_rows(const struct net_profile_row *row, int count, const struct bench_ceiling *ceiling) {
  double sum = 0, pass_sum = 0, floor = 0;
  log_info("%-10s %-12s %-24s %9s %9s %9s %6s", "pass", "op", "name", "ms", "GB/s", "TFLOP/s", "floor");
  for (int i = 0; i < count; i++) {
    double seconds = row[i].milliseconds * 1e-3, memory = row[i].bytes / ceiling->bytes_per_s;
    double products = row[i].operations / ceiling->operations_per_s,
           least = memory > products ? memory : products;
    log_info("%-10s %-12s %-24s %9.4f %9.1f %9.2f %5.0f%%", row[i].pass, row[i].op, row[i].name,
             row[i].milliseconds, row[i].bytes / seconds * 1e-9, row[i].operations / seconds * 1e-12,
             100 * least / seconds);
    sum += row[i].milliseconds;
    pass_sum += row[i].milliseconds;
    floor += least * 1e3;
    if (i + 1 == count || strcmp(row[i].pass, row[i + 1].pass) != 0) {
      log_info("%-10s %-37s %9.4f", row[i].pass, "in all", pass_sum);
      pass_sum = 0;
    }
  }
  log_info("parts %.4f ms; floor of the parts by traffic and products %.4f ms", sum, floor);
}

/* The parts of a whole step on rank 0, in which sums run beside the backward pass. */
static enum status print_parts(struct bench_work *work, int64_t steps) {
  struct net_timeline timeline;
  char line[256];
  size_t used = 0;
  double sum = 0;
  TRY(bench_work_plan(work, steps + BENCH_WARM_STEPS));
  TRY(net_time_parts(work->net, &work->data, (int)steps, &timeline));
  line[0] = '\0';
  for (int i = 0; i < NET_PARTS; i++) {
    double seconds = net_part_seconds(&timeline, (enum net_part)i);
    int length = snprintf(line + used, sizeof line - used, "%s%s %.4f", i ? ", " : "",
                          net_part_name((enum net_part)i), seconds * 1e3);
    if (length > 0 && used + (size_t)length < sizeof line) used += (size_t)length;
    sum += seconds;
  }
  log_info("in the step, ms: %s; together %.4f", line, sum * 1e3);
  return STATUS_OK;
}

static enum status run(struct bench_work *work, const struct bench_options *o) {
  const bool device = work->backend->table->device;
  struct bench_ceiling ceiling = {.memory_elements = device ? 256 << 20 : 16 << 20,
                                  .matrix_side = device ? 8192 : 1024};
  struct net_profile_row *row = NULL;
  double seconds[WINDOWS];
  int count = 0;
  char plan[512];
  net_describe(work->net, plan, sizeof plan);
  log_info("%s; %d rank%s; %s; batch %lld; %s", work->backend->description, work->world->size,
           work->world->size == 1 ? "" : "s", o->model, (long long)work->batch,
           precision_choices[o->precision]);
  log_info("%s", plan);
  TRY(world_agree(work->world, bench_ceiling(work->backend, &ceiling)));
  log_info("ceilings: %.0f GB/s, %.1f TFLOP/s", ceiling.bytes_per_s * 1e-9, ceiling.operations_per_s * 1e-12);
  TRY(bench_work_plan(work, 1));
  TRY(net_profile(work->net, &work->data, (int)o->repeats, &row, &count));
  print_rows(row, count, &ceiling);
  free(row);
  TRY(bench_work_time(work, o->steps, WINDOWS, seconds));
  log_info("step: %.4f ms (%.4f to %.4f in %d windows), %.0f images/s", seconds[WINDOWS / 2] * 1e3,
           seconds[0] * 1e3, seconds[WINDOWS - 1] * 1e3, WINDOWS, (double)work->batch / seconds[WINDOWS / 2]);
  return print_parts(work, o->steps);
}

enum status bench_step(const struct world *world, const struct bench_options *options) {
  struct bench_work work;
  TRY(bench_work_open(world, options, options->batch, (int)options->threads, &work));
  enum status status = run(&work, options);
  if (status == STATUS_OK) status = world_agree(world, STATUS_OK);
  bench_work_close(&work, status);
  return status;
}
