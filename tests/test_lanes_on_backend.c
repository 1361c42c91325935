/* Lanes on one backend (the argument): each lane's gradient by itself, summed in one fixed tree. */
#include "tests/net_fixture.h"

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
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lanes_are_summed_in_their_tree),
      cmocka_unit_test(lanes_must_halve),
  };
  return run_on_backend(argc, argv, "lanes", tests, sizeof tests / sizeof *tests);
}
