/* Fine-tuning on one backend (its argument): frozen parameters stay to the bit and change no other gradient,
 * frozen layers use their running statistics, adapters start as nothing, learn, and merge into the weights
 * beside them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "model/net/adapt.h"
#include "model/net/net.h"
#include "model/zoo/zoo.h"
#include "tests/reference/on_backend.h"

enum { IMAGES = 32, SIDE = 16, CHANNELS = 3, CLASSES = 4, BATCH = 8, STEPS = 4, RANK = 3 };
static const float alpha = 6;

static const struct backend_table *table;
static struct world world;
static uint8_t images[IMAGES * SIDE * SIDE * CHANNELS];
static int32_t labels[IMAGES];

#define OK(call)                                                                                             \
  do {                                                                                                       \
    if ((call) != STATUS_OK) fail_msg("%s: %s", #call, error_message());                                     \
  } while (0)

/* A net on images in memory, with a copy of its initial parameters. */
struct fixture {
  struct backend *backend;
  struct graph *graph;
  struct net *net;
  struct net_data data;
  const void *images, *labels;
  float *initial;
};

/* Two matrices behind each other: the first one can have an adapter. */
static int two_matrices(struct graph *graph) {
  int x = graph_avgpool(
      graph,
      graph_conv2d(graph, "stem", graph_images(graph),
                   (struct conv2d_attr){
                       .filters = 12, .kernel_h = 3, .kernel_w = 3, .stride = 2, .pad = 1, .bias = true},
                   INIT_UNIFORM_FAN_IN));
  x = graph_activation(graph, ACTIVATION_RELU, graph_linear(graph, "middle", x, 20));
  return graph_linear(graph, "fc", x, graph->classes);
}

static struct graph *build(const char *model, const char *freeze, int rank, bool fuse) {
  struct graph *graph;
  if (strcmp(model, "two matrices") == 0) {
    OK(graph_create(SIDE, SIDE, CHANNELS, CLASSES, &graph));
    OK(graph_finish(graph, two_matrices(graph)));
  } else {
    OK(zoo_build(model, SIDE, SIDE, CHANNELS, CLASSES, &graph));
  }
  if (rank) OK(graph_adapt(graph, rank, alpha));
  if (freeze) OK(graph_freeze(graph, freeze));
  if (fuse) OK(graph_fuse(graph));
  return graph;
}

static float *read_region(const struct fixture *f, enum net_region region) {
  float *host = calloc((size_t)net_region_count(f->net, region) + 1, sizeof *host);
  assert_non_null(host);
  OK(net_read(f->net, region, host));
  return host;
}

static void open_net(struct fixture *f, struct graph *graph, float decay) {
  struct backend_options options = {.precision = PRECISION_FP32, .deterministic = true};
  struct net_options net = {.momentum = 0.9f,
                            .weight_decay = decay,
                            .train_batch = {BATCH},
                            .eval_batch = {BATCH},
                            .plan_samples = IMAGES,
                            .plan_steps = IMAGES};
  *f = (struct fixture){.graph = graph};
  OK(table->open(&world, &options, &f->backend));
  OK(net_create(f->backend, f->graph, &net, &f->net));
  OK(table->resident(f->backend, images, sizeof images, &f->images));
  OK(table->resident(f->backend, labels, sizeof labels, &f->labels));
  f->data = (struct net_data){
      .images = f->images, .labels = f->labels, .mean = {.5f, .5f, .5f}, .std = {.25f, .25f, .25f}};
  OK(net_init(f->net, 7));
  f->initial = read_region(f, NET_PARAMS);
}

static void close_net(struct fixture *f) {
  table->release_resident(f->backend, f->images);
  table->release_resident(f->backend, f->labels);
  net_destroy(f->net);
  graph_destroy(f->graph);
  table->close(f->backend);
  free(f->initial);
}

/* Steps on the first images, the same in each run; the last one's loss. `train` false: one evaluation. */
static double run(struct fixture *f, int steps, bool train, float rate) {
  struct sample list[BATCH] = {{0}};
  struct net_metrics metrics = {0};
  for (uint32_t i = 0; i < BATCH; i++) list[i].index = i;
  for (int s = 0; s < steps; s++) {
    struct step_row row = {.learning_rate = rate, .scale = 1.0f / BATCH};
    uint64_t ticket;
    OK(net_plan(f->net, list, BATCH, &row, 1));
    OK(train ? net_train_step(f->net, &f->data, BATCH, &ticket)
             : net_eval_step(f->net, &f->data, BATCH, &ticket));
    OK(net_metrics(f->net, ticket, &metrics));
  }
  return metrics.loss_sum / BATCH;
}

static struct net_item item_of(const struct fixture *f, const char *name) {
  for (int i = 0; i < net_item_count(f->net); i++)
    if (strcmp(net_item(f->net, i).name, name) == 0) return net_item(f->net, i);
  fail_msg("no array %s", name);
  return (struct net_item){0};
}

/* Distance over size of `a`, both of count elements. */
static double distance(const float *a, const float *b, int64_t count) {
  double apart = 0, size = 1e-30;
  for (int64_t i = 0; i < count; i++) {
    apart += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    size += (double)a[i] * (double)a[i];
  }
  return sqrt(apart / size);
}

/* What is fixed has its initial bits after some steps, the rest has moved. Returns the fixed arrays. */
static int check_fixed(const struct fixture *f) {
  float *now = read_region(f, NET_PARAMS);
  int fixed = 0;
  for (int i = 0; i < net_item_count(f->net); i++) {
    struct net_item item = net_item(f->net, i);
    size_t bytes = tensor_bytes(&item.tensor);
    bool same = memcmp(now + item.offset, f->initial + item.offset, bytes) == 0;
    if (same != item.fixed) fail_msg("%s has %schanged", item.name, same ? "not " : "");
    fixed += item.fixed;
  }
  free(now);
  return fixed;
}

/* The gradients of what is trained beside frozen parts are those of the same model without. */
static void check_gradients(const char *model, const char *freeze, bool fuse) {
  struct fixture all, part;
  open_net(&all, build(model, NULL, 0, fuse), 0);
  open_net(&part, build(model, freeze, 0, fuse), 0);
  run(&all, 1, true, 0.01f);
  run(&part, 1, true, 0.01f);
  float *expected = read_region(&all, NET_OPTIMIZER0), *found = read_region(&part, NET_OPTIMIZER0);
  int compared = 0;
  for (int i = 0; i < net_item_count(part.net); i++) {
    struct net_item item = net_item(part.net, i), other = item_of(&all, item.name);
    if (!item.learned || item.fixed) continue;
    double apart = distance(expected + other.offset, found + item.offset, tensor_count(&item.tensor));
    if (!(apart <= 1e-5))
      fail_msg("%s, %s frozen: the gradient of %s is off by %g", model, freeze, item.name, apart);
    compared++;
  }
  assert_true(compared > 0);
  assert_true(net_region_count(part.net, NET_OPTIMIZER0) < net_region_count(all.net, NET_OPTIMIZER0));
  free(expected);
  free(found);
  close_net(&all);
  close_net(&part);
}

static void frozen_parts_change_no_other_gradient(void **state) {
  (void)state;
  check_gradients("simplecnn", "conv1.*", true);
  check_gradients("simplecnn", "conv1.*", false);
  check_gradients("simplecnn", "fc.weight", true);
  check_gradients("simplecnn", "*.weight", true);
  check_gradients("resnet20", "fc.*", true);
  check_gradients("resnet20", "*.bn?.weight,layer2.*.conv?.weight", true); /* batchnorm's bias still learns */
}

static void frozen_parameters_stay(void **state) {
  (void)state;
  struct fixture f;
  open_net(&f, build("resnet20", "conv1.*,bn1.*,layer1.*,*.conv2.*,layer3.0.bn1.*", 0, true), 5e-4f);
  run(&f, STEPS, true, 0.05f);
  assert_true(check_fixed(&f) > 40);
  assert_true(item_of(&f, "layer1.0.bn1.running_var").fixed);
  assert_true(item_of(&f, "layer3.0.bn1.running_mean").fixed);
  assert_false(item_of(&f, "layer3.0.bn2.running_mean").fixed);
  assert_false(item_of(&f, "layer3.0.bn1.running_mean").learned);
  close_net(&f);
}

/* Statistics that are not the initial ones. */
static void disturb_statistics(struct fixture *f) {
  for (int i = 0; i < net_item_count(f->net); i++) {
    struct net_item item = net_item(f->net, i);
    for (int64_t k = 0; !item.learned && k < tensor_count(&item.tensor); k++)
      f->initial[item.offset + k] += 0.05f * (float)(k % 7);
  }
  OK(net_write(f->net, NET_PARAMS, f->initial));
}

/* With all batchnorms frozen a training step computes what an evaluation does; fused and unfused alike. */
static void frozen_layers_use_running_statistics(void **state) {
  (void)state;
  double loss[2];
  float *gradient[2];
  int64_t count = 0;
  for (int fuse = 0; fuse < 2; fuse++) {
    struct fixture f;
    open_net(&f, build("resnet20", "*bn*,*downsample.1.*", 0, fuse), 0);
    disturb_statistics(&f);
    double evaluated = run(&f, 1, false, 0);
    loss[fuse] = run(&f, 1, true, 1e-3f);
    if (!(fabs(loss[fuse] - evaluated) <= 1e-5 * evaluated))
      fail_msg("loss %.9g in training, %.9g in evaluation", loss[fuse], evaluated);
    gradient[fuse] = read_region(&f, NET_OPTIMIZER0);
    count = net_region_count(f.net, NET_OPTIMIZER0);
    check_fixed(&f);
    close_net(&f);
  }
  assert_true(fabs(loss[0] - loss[1]) <= 2e-5 * loss[0]);
  double apart = distance(gradient[0], gradient[1], count);
  if (!(apart <= 1e-4)) fail_msg("fused and unfused gradients are apart by %g", apart);
  free(gradient[0]);
  free(gradient[1]);
}

/* ---- adapters ---- */

static void logits_of(struct fixture *f, float logits[BATCH * CLASSES]) {
  run(f, 1, false, 0);
  OK(net_logits(f->net, BATCH, logits));
}

/* The parameters of `plain` become those of `adapted`, adapters merged. Returns how many were. */
static int merge_into(struct fixture *plain, const struct fixture *adapted) {
  float *from = read_region(adapted, NET_PARAMS), *to = read_region(plain, NET_PARAMS);
  int merged = 0;
  for (int i = 0; i < net_item_count(plain->net); i++) {
    struct net_item item = net_item(plain->net, i);
    char a[GRAPH_NAME], b[GRAPH_NAME];
    memcpy(to + item.offset, from + item_of(adapted, item.name).offset, tensor_bytes(&item.tensor));
    if (item.tensor.rank < 2 || strcmp(item.name, "fc.weight") == 0 || !adapter_names(item.name, a, b))
      continue;
    struct net_item down = item_of(adapted, a), up = item_of(adapted, b);
    struct tensor shape_a, shape_b;
    adapter_shapes(&item.tensor, RANK, &shape_a, &shape_b);
    assert_true(tensor_equal(&shape_a, &down.tensor) && tensor_equal(&shape_b, &up.tensor));
    adapter_merge(&item.tensor, RANK, alpha / RANK, from + down.offset, from + up.offset, to + item.offset);
    merged++;
  }
  OK(net_write(plain->net, NET_PARAMS, to));
  free(from);
  free(to);
  return merged;
}

static void check_adapters(const char *model, int count) {
  struct fixture plain, adapted;
  float before[BATCH * CLASSES], first[BATCH * CLASSES], after[BATCH * CLASSES], merged[BATCH * CLASSES];
  open_net(&plain, build(model, NULL, 0, true), 0);
  open_net(&adapted, build(model, NULL, RANK, true), 5e-4f);
  logits_of(&plain, before);
  logits_of(&adapted, first);
  assert_true(distance(before, first, BATCH * CLASSES) <= 1e-5); /* B is zero */
  double initial = run(&adapted, 1, true, 0.02f), trained = run(&adapted, 3 * STEPS, true, 0.02f);
  assert_true(trained < initial);
  check_fixed(&adapted);
  for (int i = 0; i < net_item_count(adapted.net); i++) {
    struct net_item item = net_item(adapted.net, i);
    bool head = strncmp(item.name, "fc.", 3) == 0;
    assert_true(item.fixed == !(head || adapter_has_name(item.name)));
  }
  logits_of(&adapted, after);
  assert_true(distance(first, after, BATCH * CLASSES) > 1e-2);
  assert_int_equal(merge_into(&plain, &adapted), count);
  logits_of(&plain, merged);
  double apart = distance(after, merged, BATCH * CLASSES);
  print_message("%s: %d adapters, loss %.4f to %.4f; merged logits apart by %.2g\n", model, count, initial,
                trained, apart);
  assert_true(apart <= 1e-5);
  close_net(&plain);
  close_net(&adapted);
}

static void adapters_learn_and_merge(void **state) {
  (void)state;
  check_adapters("resnet20", 21);
  check_adapters("simplecnn", 1);
  check_adapters("two matrices", 2);
}

static void refuse(const char *patterns, const char *text) {
  struct graph *graph;
  OK(zoo_build("resnet20", SIDE, SIDE, CHANNELS, CLASSES, &graph));
  assert_int_equal(graph_freeze(graph, patterns), STATUS_INPUT);
  if (!strstr(error_message(), text)) fail_msg("'%s' does not say '%s'", error_message(), text);
  error_clear();
  graph_destroy(graph);
}

static void what_cannot_be_frozen_is_refused(void **state) {
  (void)state;
  refuse("layer9.*", "'layer9.*'; the nearest is 'layer1.0.conv1.weight'");
  refuse("conv1.*,fc.wieght", "'fc.wieght'; the nearest is 'fc.weight'");
  refuse("fc.*,", "matches ''");
  refuse("*", "freezes all parameters");
  struct graph *graph;
  OK(graph_create(SIDE, SIDE, CHANNELS, SIDE * SIDE * CHANNELS, &graph));
  OK(graph_finish(graph, graph_linear(graph, "fc", graph_images(graph), SIDE * SIDE * CHANNELS)));
  assert_int_equal(graph_adapt(graph, 2, 1), STATUS_INPUT);
  assert_int_equal(graph_adapt(graph, 0, 1), STATUS_INPUT);
  error_clear();
  graph_destroy(graph);
}

int main(int argc, char **argv) {
  int code = suite_open(argc, argv, &table, &world);
  if (code) return code;
  for (size_t i = 0; i < sizeof images; i++) images[i] = (uint8_t)(i * 2654435761u >> 13);
  for (int i = 0; i < IMAGES; i++) labels[i] = i % CLASSES;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(frozen_parts_change_no_other_gradient), cmocka_unit_test(frozen_parameters_stay),
      cmocka_unit_test(frozen_layers_use_running_statistics),  cmocka_unit_test(adapters_learn_and_merge),
      cmocka_unit_test(what_cannot_be_frozen_is_refused),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  world_close(&world);
  return failed ? 1 : 0;
}
