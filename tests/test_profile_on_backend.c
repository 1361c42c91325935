/* A step timed in parts, on the backend that is the argument: its cuts, that the pieces are all of the step,
 * and when buckets of gradients are complete. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "model/base/clock.h"
#include "model/net/profile.h"
#include "model/zoo/zoo.h"
#include "tests/reference/on_backend.h"

enum { BATCH = 64, STEPS = 6, IMAGE = 32 * 32 * 3 };

static const struct backend_table *table;
static struct world world;

#define OK(call)                                                                                             \
  do {                                                                                                       \
    if ((call) != STATUS_OK) fail_msg("%s: %s", #call, error_message());                                     \
  } while (0)

static void plan_steps(struct net *net) {
  struct sample list[BATCH];
  struct step_row row[STEPS + 2];
  for (int i = 0; i < BATCH; i++) list[i] = (struct sample){.index = (uint32_t)i};
  for (int s = 0; s < STEPS + 2; s++)
    row[s] = (struct step_row){.learning_rate = 1e-3f, .scale = 1.0f / BATCH};
  OK(net_plan(net, list, BATCH, row, STEPS + 2));
}

static void check_timeline(const struct net *net, const struct net_timeline *timeline) {
  static const enum net_part begin[] = {NET_DATA, NET_FORWARD, NET_BACKWARD, NET_EXPOSED};
  int buckets = net_bucket_count(net), last = timeline->count - 1;
  assert_true(buckets > 1);
  assert_int_equal(timeline->count,
                   2 + 2 * buckets + 3); /* and the end of the backward pass, the join, the update */
  for (int i = 0; i < 4; i++) assert_int_equal(timeline->part[i], begin[i]);
  assert_int_equal(timeline->part[last], NET_UPDATE);
  assert_int_equal(timeline->part[last - 1], NET_EXPOSED);
  assert_int_equal(timeline->part[last - 2], NET_BACKWARD);
  for (int i = 0; i <= last; i++) assert_true(timeline->seconds[i] >= 0);

  double *ready = calloc((size_t)buckets, sizeof *ready), all = net_part_seconds(timeline, NET_BACKWARD),
         bytes = 0;
  assert_non_null(ready);
  net_bucket_ready(timeline, ready);
  for (int b = 0; b < buckets; b++) {
    assert_true(ready[b] > 0 && ready[b] <= all * (1 + 1e-9) && (b == 0 || ready[b] >= ready[b - 1]));
    bytes += net_bucket_bytes(net, b);
  }
  assert_true(ready[0] < all && ready[buckets - 1] > 0.5 * all);
  assert_true(bytes >= 4.0 * (double)net_region_count(net, NET_PARAMS));
  free(ready);
}

static void test_parts(void **state) {
  (void)state;
  struct backend *backend;
  struct graph *graph;
  struct net *net;
  struct net_timeline timeline;
  struct net_data data = {.mean = {0.5f, 0.5f, 0.5f}, .std = {0.25f, 0.25f, 0.25f}};
  struct net_options options = {
      .train_batch = {BATCH}, .plan_samples = BATCH, .plan_steps = STEPS + 2, .bucket_bytes = 1024};
  OK(table->open(&world, &(struct backend_options){.threads = 1}, &backend));
  OK(zoo_build("resnet20", 32, 32, 3, 10, &graph));
  OK(graph_fuse(graph));
  OK(net_create(backend, graph, &options, &net));
  OK(net_init(net, 1));
  uint8_t *images = malloc(BATCH * IMAGE);
  int32_t labels[BATCH];
  assert_non_null(images);
  for (int i = 0; i < BATCH * IMAGE; i++) images[i] = (uint8_t)(i * 7 % 251);
  for (int i = 0; i < BATCH; i++) labels[i] = i % 10;
  const void *there;
  OK(table->resident(backend, images, BATCH * IMAGE, &there));
  data.images = there;
  OK(table->resident(backend, labels, sizeof labels, &there));
  data.labels = there;

  plan_steps(net);
  double begin = clock_seconds();
  OK(net_time_parts(net, &data, STEPS, &timeline));
  double seconds = clock_seconds() - begin, sum = 0;
  check_timeline(net, &timeline);
  for (int part = 0; part < NET_PARTS; part++) sum += net_part_seconds(&timeline, (enum net_part)part);
  assert_true(sum > 0 && sum < seconds / STEPS * 2);
  assert_true(net_part_seconds(&timeline, NET_FORWARD) > 0.02 * sum);
  assert_true(net_part_seconds(&timeline, NET_BACKWARD) > net_part_seconds(&timeline, NET_UPDATE));

  /* The net goes on as before. */
  uint64_t ticket;
  struct net_metrics metrics;
  plan_steps(net);
  OK(net_train_step(net, &data, BATCH, &ticket));
  OK(net_metrics(net, ticket, &metrics));
  assert_true(isfinite(metrics.loss_sum) && metrics.loss_sum > 0);

  table->release_resident(backend, data.images);
  table->release_resident(backend, data.labels);
  net_destroy(net);
  graph_destroy(graph);
  table->close(backend);
  free(images);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts)};
  int code = suite_open(argc, argv, &table, &world);
  if (code) return code;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  world_close(&world);
  return failed ? 1 : 0;
}
