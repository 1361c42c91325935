/* The net on one backend (its argument): the fusion pass changes no result, a step allocates nothing, runs
 * repeat to the bit, state moves through net_read and net_write, a plan may be cut short, uneven batches
 * weigh by count, lanes are summed in their tree. */
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

enum { IMAGES = 48, SIDE = 32, CHANNELS = 3, CLASSES = 10, STEPS = 4 };

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

static void open_net_as(struct fixture *f, const char *model, bool fuse, const struct net_options *net) {
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

static void open_net(struct fixture *f, const char *model, bool fuse, enum optimizer_kind optimizer) {
  struct net_options net = usual;
  net.optimizer = optimizer;
  open_net_as(f, model, fuse, &net);
}

static void close_net(struct fixture *f) {
  const struct backend_table *table = f->backend->table;
  table->release_resident(f->backend, f->images);
  table->release_resident(f->backend, f->labels);
  net_destroy(f->net);
  graph_destroy(f->graph);
  table->close(f->backend);
}

/* Plans `steps` steps of `batch` samples, from sample `first` on, and takes `taken` of them; losses per step.
 */
static void train(struct fixture *f, int first, int batch, int steps, int taken, double *loss) {
  struct sample list[IMAGES] = {{0}};
  struct step_row rows[IMAGES];
  for (int i = 0; i < steps * batch; i++)
    list[i] = (struct sample){.index = (uint32_t)((first + i) % IMAGES),
                              .flip = (uint8_t)((first + i) % 2),
                              .shift_x = (int8_t)((first + i) % 3)};
  for (int s = 0; s < steps; s++) {
    double t = s + 1;
    rows[s] = (struct step_row){
        .first = (uint32_t)(s * batch), .learning_rate = 0.01f, .scale = 1.0f / (float)batch};
    rows[s].correction1 = (float)(1 - __builtin_pow(0.9, t));
    rows[s].correction2 = (float)(1 - __builtin_pow(0.999, t));
  }
  OK(net_plan(f->net, list, steps * batch, rows, steps));
  for (int s = 0; s < taken; s++) {
    uint64_t ticket;
    struct net_metrics metrics;
    OK(net_train_step(f->net, &f->data, batch, &ticket));
    OK(net_metrics(f->net, ticket, &metrics));
    loss[s] = metrics.loss_sum / batch;
    assert_true(metrics.correct >= 0 && metrics.correct <= batch);
    assert_false(metrics.stop);
  }
}

static float *read_region(struct fixture *f, enum net_region region) {
  float *host = calloc((size_t)net_region_count(f->net, region) + 1, sizeof *host);
  assert_non_null(host);
  OK(net_read(f->net, region, host));
  return host;
}

/* Training a model plain and fused, which makes `count` nodes of that kind, gives the same losses. */
static void assert_fusion(const char *model, enum op_kind kind, int count) {
  double loss[2][STEPS];
  for (int fuse = 0; fuse < 2; fuse++) {
    struct fixture f = {0};
    open_net(&f, model, fuse, OPTIMIZER_SGD);
    int fused = 0;
    for (int i = 0; i < f.graph->node_count; i++) fused += f.graph->node[i].desc.kind == kind;
    assert_int_equal(fused, fuse ? count : 0);
    train(&f, 0, 8, STEPS, STEPS, loss[fuse]);
    close_net(&f);
  }
  for (int s = 0; s < STEPS; s++) {
    printf("step %d: plain %.7f fused %.7f\n", s, loss[0][s], loss[1][s]);
    assert_true(__builtin_fabs(loss[0][s] - loss[1][s]) <= 2e-5 * __builtin_fabs(loss[0][s]));
  }
}

static void fusion_changes_nothing(void **state) {
  (void)state;
  assert_fusion("resnet20", OP_CONV_BN, 21);
  assert_fusion("simplecnn", OP_CONV_POOL, 1);
}

/* A table that counts allocations, in front of the backend's. */
static const struct backend_table *real_table;
static int allocations;
static enum status counted_alloc(struct backend *backend, size_t bytes, void **memory) {
  allocations++;
  return real_table->alloc(backend, bytes, memory);
}
static enum status counted_alloc_host(struct backend *backend, size_t bytes, void **memory) {
  allocations++;
  return real_table->alloc_host(backend, bytes, memory);
}

static void steps_allocate_nothing(void **state) {
  (void)state;
  struct fixture f = {0};
  double loss[3];
  open_net(&f, "resnet20", true, OPTIMIZER_SGD);
  real_table = f.backend->table;
  struct backend_table counting = *real_table;
  counting.alloc = counted_alloc;
  counting.alloc_host = counted_alloc_host;
  f.backend->table = &counting;
  void *probe = NULL;
  OK(f.backend->table->alloc(f.backend, 256, &probe));
  assert_int_equal(allocations, 1); /* the counter counts */
  f.backend->table->release(f.backend, probe);
  train(&f, 0, 8, 3, 3, loss);
  assert_int_equal(allocations, 1);
  f.backend->table = real_table;
  close_net(&f);
}

static void runs_repeat_to_the_bit(void **state) {
  (void)state;
  float *params[2];
  double loss[2][STEPS];
  int64_t count = 0;
  for (int run = 0; run < 2; run++) {
    struct fixture f = {0};
    open_net(&f, "resnet20", true, OPTIMIZER_ADAM);
    train(&f, 3, 8, STEPS, STEPS, loss[run]);
    params[run] = read_region(&f, NET_PARAMS);
    count = net_region_count(f.net, NET_PARAMS);
    close_net(&f);
  }
  assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
  assert_memory_equal(params[0], params[1], (size_t)count * sizeof(float));
  free(params[0]);
  free(params[1]);
}

static void state_moves_to_another_net(void **state) {
  (void)state;
  struct fixture a = {0}, b = {0};
  double loss_a[STEPS], loss_b[STEPS];
  open_net(&a, "resnet20", true, OPTIMIZER_ADAM);
  train(&a, 0, 8, 2, 2, loss_a);
  open_net(&b, "resnet20", true, OPTIMIZER_ADAM);
  OK(net_init(b.net, 99));
  for (int region = 0; region < NET_REGION_COUNT; region++) {
    float *host = read_region(&a, (enum net_region)region);
    OK(net_write(b.net, (enum net_region)region, host));
    free(host);
  }
  train(&a, 16, 8, STEPS, STEPS, loss_a);
  train(&b, 16, 8, STEPS, STEPS, loss_b);
  assert_memory_equal(loss_a, loss_b, sizeof loss_a);
  close_net(&a);
  close_net(&b);
}

static void plans_may_be_cut_short(void **state) {
  (void)state;
  struct fixture a = {0}, b = {0};
  double loss_a[STEPS], loss_b[STEPS];
  open_net(&a, "simplecnn", true, OPTIMIZER_SGD);
  open_net(&b, "simplecnn", true, OPTIMIZER_SGD);
  train(&a, 0, 8, 4, 4, loss_a);
  train(&b, 0, 8, 6, 2, loss_b);      /* two steps of a longer plan */
  train(&b, 16, 8, 2, 2, loss_b + 2); /* then the next two samples' steps */
  assert_memory_equal(loss_a, loss_b, sizeof loss_a);
  train(&a, 0, 5, 2, 2, loss_a);
  assert_true(loss_a[0] > 0 && loss_a[1] > 0);
  close_net(&a);
  close_net(&b);
}

static void wishes_ride_on_the_step(void **state) {
  (void)state;
  struct fixture f = {0};
  struct sample list[8] = {{0}};
  struct step_row rows[4];
  for (int i = 0; i < 4; i++) rows[i] = (struct step_row){.learning_rate = 0.01f, .scale = 0.125f};
  uint64_t ticket;
  struct net_metrics metrics;
  open_net(&f, "simplecnn", true, OPTIMIZER_SGD);
  OK(net_plan(f.net, list, 8, rows, 4));
  OK(net_train_step(f.net, &f.data, 8, &ticket));
  OK(net_metrics(f.net, ticket, &metrics));
  assert_false(metrics.stop);
  assert_false(metrics.save);
  net_request_save(f.net, true);
  OK(net_train_step(f.net, &f.data, 8, &ticket));
  OK(net_metrics(f.net, ticket, &metrics));
  assert_true(metrics.save && !metrics.stop);
  net_request_stop(f.net);
  OK(net_train_step(f.net, &f.data, 8, &ticket));
  OK(net_metrics(f.net, ticket, &metrics));
  assert_true(metrics.save && metrics.stop);
  net_request_save(f.net, false);
  OK(net_train_step(f.net, &f.data, 8, &ticket));
  OK(net_metrics(f.net, ticket, &metrics));
  assert_true(metrics.stop && !metrics.save);
  close_net(&f);
}

static void non_finite_loss_halts(void **state) {
  (void)state;
  struct fixture f = {0};
  double loss[STEPS];
  open_net(&f, "simplecnn", true, OPTIMIZER_SGD);
  train(&f, 0, 8, 2, 2, loss);
  float *good = read_region(&f, NET_PARAMS), *bad = read_region(&f, NET_PARAMS);
  int64_t count = net_region_count(f.net, NET_PARAMS);
  bad[net_item(f.net, 0).offset] = __builtin_inff();
  OK(net_write(f.net, NET_PARAMS, bad));
  train(&f, 0, 8, 1, 1, loss);
  assert_true(__builtin_isfinite(loss[0]) == 0);
  OK(net_write(f.net, NET_PARAMS, good));
  train(&f, 0, 8, 2, 2, loss); /* halted: nothing moves any more */
  float *after = read_region(&f, NET_PARAMS);
  assert_memory_equal(good, after, (size_t)count * sizeof(float));
  free(good);
  free(bad);
  free(after);
  close_net(&f);
}

/* ---- lanes ---- */

enum { LANES = 4 };

/* One step of samples [first, first + count) of a global batch of `all`, from the initial state. What it
 * summed: the gradient stands in the momentum; *statistics is PARAMS after it. The caller frees both. */
static struct net_metrics one_step(struct fixture *f, int first, int count, int all, float **gradient,
                                   float **params) {
  struct sample list[IMAGES] = {{0}};
  struct step_row row = {.learning_rate = 0.01f, .scale = 1.0f / (float)all};
  struct net_metrics metrics;
  uint64_t ticket;
  for (int i = 0; i < count; i++)
    list[i] = (struct sample){.index = (uint32_t)(first + i), .flip = (uint8_t)((first + i) % 2)};
  OK(net_init(f->net, 7));
  OK(net_plan(f->net, list, count, &row, 1));
  OK(net_train_step(f->net, &f->data, count, &ticket));
  OK(net_metrics(f->net, ticket, &metrics));
  *gradient = read_region(f, NET_OPTIMIZER0);
  *params = read_region(f, NET_PARAMS);
  return metrics;
}

/* The lanes of `count` samples, each run by itself, summed by hand: the gradient must be equal to the bit,
 * the running statistics, which the update mixes with their former values, closely. */
static void check_lanes(struct fixture *lanes, struct fixture *plain, int count) {
  float *gradient[LANES] = {0}, *params[LANES] = {0}, *found, *found_params, *initial;
  float loss[LANES] = {0}, correct = 0;
  int64_t learned = net_region_count(plain->net, NET_OPTIMIZER0);
  OK(net_init(plain->net, 7));
  initial = read_region(plain, NET_PARAMS);
  for (int lane = 0, first = 0; lane < LANES; lane++) {
    int samples = count / LANES + (lane < count % LANES);
    if (samples == 0) {
      gradient[lane] = calloc((size_t)learned, sizeof(float));
      assert_non_null(gradient[lane]);
      continue;
    }
    struct net_metrics metrics = one_step(plain, first, samples, count, &gradient[lane], &params[lane]);
    loss[lane] = (float)metrics.loss_sum;
    correct += (float)metrics.correct;
    first += samples;
  }
  struct net_metrics metrics = one_step(lanes, 0, count, count, &found, &found_params);
  int64_t not_zero = 0;
  for (int64_t i = 0; i < learned; i++) {
    float sum = (gradient[0][i] + gradient[1][i]) + (gradient[2][i] + gradient[3][i]);
    not_zero += sum != 0;
    if (sum != found[i])
      fail_msg("%d samples: gradient %lld is %.9g, expected %.9g", count, (long long)i, (double)found[i],
               (double)sum);
  }
  assert_true(not_zero > learned / 2);
  float sum = (loss[0] + loss[1]) + (loss[2] + loss[3]), reduced = (float)metrics.loss_sum;
  assert_memory_equal(&sum, &reduced, sizeof sum);
  assert_true((double)correct == metrics.correct);
  int statistics = 0;
  for (int item = 0; item < net_item_count(plain->net); item++) {
    struct net_item at = net_item(plain->net, item);
    for (int64_t i = at.offset; !at.learned && i < at.offset + tensor_count(&at.tensor); i++) {
      double kept = 0.9 * (double)initial[i], expected = kept;
      for (int lane = 0; lane < LANES; lane++)
        if (params[lane]) expected += (double)params[lane][i] - kept;
      if (!(__builtin_fabs(expected - (double)found_params[i]) <= 1e-5 * (1 + __builtin_fabs(expected))))
        fail_msg("%s: %.9g, expected %.9g", at.name, (double)found_params[i], expected);
      statistics++;
    }
  }
  assert_true(statistics > 0);
  for (int lane = 0; lane < LANES; lane++) {
    free(gradient[lane]);
    free(params[lane]);
  }
  free(found);
  free(found_params);
  free(initial);
}

static void lanes_are_summed_in_their_tree(void **state) {
  (void)state;
  struct fixture lanes = {0}, plain = {0};
  struct net_options options = usual;
  options.weight_decay = 0;
  options.train_batch[0] = 4; /* of 13: 4, 3, 3, 3; of 2: 1, 1, 0, 0 */
  options.train_batch[1] = 3;
  options.train_batch[2] = 1;
  open_net_as(&plain, "resnet20", true, &options);
  options.train_batch[0] = 13;
  options.train_batch[1] = 2;
  options.train_batch[2] = 0;
  options.lanes = LANES;
  open_net_as(&lanes, "resnet20", true, &options);
  check_lanes(&lanes, &plain, 13);
  check_lanes(&lanes, &plain, 2);
  check_lanes(&lanes, &plain, 13); /* nothing of the empty lanes or of the former step is left */
  float *gradient, *params;
  net_request_stop(lanes.net);
  assert_true(one_step(&lanes, 0, 13, 13, &gradient, &params).stop);
  free(gradient);
  free(params);
  close_net(&lanes);
  close_net(&plain);
}

static void lanes_must_halve(void **state) {
  (void)state;
  struct fixture f = {0};
  const struct backend_table *table;
  struct backend_options device = {.precision = PRECISION_FP32, .deterministic = true};
  struct net_options options = usual;
  options.lanes = 3;
  OK(backend_find(backend_name, &table));
  OK(table->open(&world, &device, &f.backend));
  OK(zoo_build("simplecnn", SIDE, SIDE, CHANNELS, CLASSES, &f.graph));
  assert_int_equal(net_create(f.backend, f.graph, &options, &f.net), STATUS_INTERNAL);
  assert_null(f.net);
  error_clear();
  graph_destroy(f.graph);
  table->close(f.backend);
}

int main(int argc, char **argv) {
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
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fusion_changes_nothing), cmocka_unit_test(steps_allocate_nothing),
      cmocka_unit_test(runs_repeat_to_the_bit), cmocka_unit_test(state_moves_to_another_net),
      cmocka_unit_test(plans_may_be_cut_short), cmocka_unit_test(wishes_ride_on_the_step),
      cmocka_unit_test(non_finite_loss_halts),  cmocka_unit_test(lanes_are_summed_in_their_tree),
      cmocka_unit_test(lanes_must_halve),
  };
  int failed = cmocka_run_group_tests_name("net", tests, NULL, NULL);
  world_close(&world);
  return failed ? 1 : 0;
}
