/* A net on the backend that a suite's argument names, on random images; shared by the suites of nets. */
#ifndef CONVOY_TESTS_NET_FIXTURE_H
#define CONVOY_TESTS_NET_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/base/random.h"
#include "model/net/net.h"
#include "model/zoo/zoo.h"

enum { IMAGES = 48, SIDE = 32, CHANNELS = 3, CLASSES = 10 };

static const char *backend_name;
static struct world world;
static uint8_t images[IMAGES * SIDE * SIDE * CHANNELS];
static int32_t labels[IMAGES];

struct fixture {
  struct backend *backend;
  struct graph *graph;
  struct net *net;
  struct net_data data;
  const void *images, *labels;
};

#define OK(call)                                                                                             \
  do {                                                                                                       \
    if ((call) != STATUS_OK) fail_msg("%s: %s", #call, error_message());                                     \
  } while (0)

static const struct net_options usual = {.momentum = 0.9f,
                                         .beta1 = 0.9f,
                                         .beta2 = 0.999f,
                                         .epsilon = 1e-8f,
                                         .weight_decay = 5e-4f,
                                         .train_batch = {8, 5},
                                         .eval_batch = {8},
                                         .plan_samples = IMAGES,
                                         .plan_steps = IMAGES};

static inline void open_net_as(struct fixture *f, const char *model, bool fuse,
                               const struct net_options *net) {
  const struct backend_table *table;
  struct backend_options options = {.precision = PRECISION_FP32, .deterministic = true};
  OK(backend_find(backend_name, &table));
  OK(table->open(&world, &options, &f->backend));
  OK(zoo_build(model, SIDE, SIDE, CHANNELS, CLASSES, &f->graph));
  if (fuse) OK(graph_fuse(f->graph));
  OK(net_create(f->backend, f->graph, net, &f->net));
  OK(table->resident(f->backend, images, sizeof images, &f->images));
  OK(table->resident(f->backend, labels, sizeof labels, &f->labels));
  f->data = (struct net_data){
      .images = f->images, .labels = f->labels, .mean = {.5f, .5f, .5f}, .std = {.25f, .25f, .25f}};
  OK(net_init(f->net, 7));
}

static inline void open_net(struct fixture *f, const char *model, bool fuse, enum optimizer_kind optimizer) {
  struct net_options net = usual;
  net.optimizer = optimizer;
  open_net_as(f, model, fuse, &net);
}

static inline void close_net(struct fixture *f) {
  const struct backend_table *table = f->backend->table;
  table->release_resident(f->backend, f->images);
  table->release_resident(f->backend, f->labels);
  net_destroy(f->net);
  graph_destroy(f->graph);
  table->close(f->backend);
}

static inline float *read_region(struct fixture *f, enum net_region region) {
  float *host = calloc((size_t)net_region_count(f->net, region) + 1, sizeof *host);
  assert_non_null(host);
  OK(net_read(f->net, region, host));
  return host;
}

/* Runs the suite on the backend argv[1] (cpu) and returns main's result; 77: there is no such device. */
static inline int run_on_backend(int argc, char **argv, const char *suite, const struct CMUnitTest *tests,
                                 size_t count) {
  backend_name = argc > 1 ? argv[1] : "cpu";
  if (world_open(&world) != STATUS_OK) {
    error_print(stderr);
    return 1;
  }
  const struct backend_table *table;
  struct backend *probe;
  struct backend_options options = {.precision = PRECISION_FP32};
  if (backend_find(backend_name, &table) != STATUS_OK || table->open(&world, &options, &probe) != STATUS_OK) {
    printf("skipped: no %s device: %s\n", backend_name, error_message());
    return 77;
  }
  table->close(probe);
  struct random_key key = random_key(1, RANDOM_TEST, 0);
  for (size_t i = 0; i < sizeof images; i++) images[i] = (uint8_t)random_below(key, i, 256);
  for (int i = 0; i < IMAGES; i++) labels[i] = (int32_t)random_below(key, sizeof images + (size_t)i, CLASSES);
  int failed = _cmocka_run_group_tests(suite, tests, count, NULL, NULL);
  world_close(&world);
  return failed ? 1 : 0;
}

#endif
