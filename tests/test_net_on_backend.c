/* The net on one backend (its argument): the fusion pass changes no result, a step allocates nothing, runs
 * repeat to the bit, state moves through net_read and net_write, a plan may be cut short, uneven batches
 * weigh by count, the ranks' wishes come with the metrics. */
#include "tests/net_fixture.h"

enum { STEPS = 4 };

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

/* Places in lists are 32 bits wide: what they cannot tell is refused, and not another sample taken. */
static void plans_are_numbered(void **state) {
  (void)state;
  struct fixture f = {0};
  open_net(&f, "simplecnn", true, OPTIMIZER_SGD);
  for (int i = 0; i < 2; i++) {
    struct net_options large = usual;
    struct net *net;
    *(i == 0 ? &large.plan_samples : &large.plan_steps) = (int64_t)1 << 31;
    assert_int_equal(net_create(f.backend, f.graph, &large, &net), STATUS_INPUT);
    assert_non_null(strstr(error_message(), "2147483648"));
    assert_non_null(strstr(error_message(), "use more ranks"));
  }
  close_net(&f);
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

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fusion_changes_nothing), cmocka_unit_test(steps_allocate_nothing),
      cmocka_unit_test(runs_repeat_to_the_bit), cmocka_unit_test(state_moves_to_another_net),
      cmocka_unit_test(plans_may_be_cut_short), cmocka_unit_test(wishes_ride_on_the_step),
      cmocka_unit_test(non_finite_loss_halts),  cmocka_unit_test(plans_are_numbered),
  };
  return run_on_backend(argc, argv, "net", tests, sizeof tests / sizeof *tests);
}
