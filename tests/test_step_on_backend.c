/* A backend's step, held to the reference: control rows, optimizers, halting, metrics, and programs that are
 * recorded and replayed. The argument names the backend; exit 77 where it has no device here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "tests/reference/arrays.h"
#include "tests/reference/device.h"
#include "tests/reference/on_backend.h"
#include "tests/reference/reference.h"

/* Parameters, gradients and optimizer state, in doubles and on the device. */
enum { DECAYED = 501, LEARNED = 1003, TOTAL = 1050, GUARDED = TOTAL + 5, STEPS = 3 };
struct training {
  double *w, *d, *m, *v;
  float *device_w, *device_d, *device_m, *device_v, *metrics;
  uint16_t *low;
  struct step_control *control;
  struct step_row *rows;
  int32_t *stop;
};

static const struct step_row rows[STEPS + 2] = {
    {.learning_rate = 0.1f, .correction1 = 0.1f, .correction2 = 0.001f, .slot = 3, .first = 1, .scale = 0.5f},
    {.learning_rate = 0.05f,
     .correction1 = 0.19f,
     .correction2 = 0.001999f,
     .slot = 1,
     .first = 2,
     .scale = 0.25f},
    {.learning_rate = 0.2f,
     .correction1 = 0.271f,
     .correction2 = 0.002997f,
     .slot = 0,
     .first = 3,
     .scale = 1},
    {.learning_rate = 0.2f, .correction1 = 0.3439f, .correction2 = 0.003994f, .slot = 2, .scale = 1},
    {.learning_rate = 0.3f, .correction1 = 0.40951f, .correction2 = 0.00499f, .slot = 4, .scale = 1},
};

static void training_create(struct training *t) {
  t->w = reference_array(GUARDED);
  t->d = reference_array(GUARDED);
  t->m = reference_array(LEARNED);
  t->v = reference_array(LEARNED);
  array_normal(t->w, GUARDED, DTYPE_F32, 0, 1, 1);
  array_normal(t->d, GUARDED, DTYPE_F32, 0, 1, 2);
  t->device_w = device_floats(t->w, GUARDED);
  t->device_d = device_floats(t->d, GUARDED);
  t->device_m = device_floats(t->m, LEARNED);
  t->device_v = device_floats(t->v, LEARNED);
  t->low = device_array(GUARDED * sizeof *t->low);
  t->metrics = device_array(METRIC_COUNT * sizeof *t->metrics);
  t->control = device_array(sizeof *t->control);
  t->rows = device_copy(rows, sizeof rows);
  void *stop;
  ok(table->alloc_host(backend, sizeof *t->stop, &stop));
  t->stop = stop;
}

static void training_destroy(struct training *t) {
  void *device[] = {t->device_w, t->device_d, t->device_m, t->device_v,
                    t->low,      t->metrics,  t->control,  t->rows};
  double *host[] = {t->w, t->d, t->m, t->v};
  for (size_t i = 0; i < sizeof device / sizeof *device; i++) table->release(backend, device[i]);
  for (size_t i = 0; i < sizeof host / sizeof *host; i++) free(host[i]);
  table->release_host(backend, t->stop);
}

/* The device's step: begin, then the update with the loss as given. */
static void device_step(struct training *t, const struct update_desc *desc, float loss) {
  ok(table->step_begin(backend, t->control, t->rows, t->stop, t->metrics));
  ok(table->upload(backend, &t->metrics[METRIC_LOSS], &loss, sizeof loss));
  bool adam = desc->kind != OPTIMIZER_SGD;
  ok(table->update(backend, desc, t->control, t->device_w, t->low, t->device_d, t->device_m,
                   adam ? t->device_v : NULL, t->metrics));
}

static void assert_training(const struct training *t, const char *name) {
  double *w = read_array(t->device_w, DTYPE_F32, GUARDED), *m = read_array(t->device_m, DTYPE_F32, LEARNED);
  double *v = read_array(t->device_v, DTYPE_F32, LEARNED), *low = read_array(t->low, DTYPE_BF16, GUARDED);
  assert_close(name, w, t->w, TOTAL, 1e-6);
  assert_close("its first state", m, t->m, LEARNED, 1e-6);
  assert_close("its second state", v, t->v, LEARNED, 1e-6);
  for (int64_t i = TOTAL; i < GUARDED; i++) assert_true(w[i] == t->w[i] && low[i] == 0);
  for (int64_t i = 0; i < LEARNED; i++) assert_true(low[i] == array_round(DTYPE_BF16, w[i]));
  free(w);
  free(m);
  free(v);
  free(low);
}

static const struct update_desc updates[] = {
    {.kind = OPTIMIZER_SGD, .weight_decay = 0.1f},
    {.kind = OPTIMIZER_SGD, .momentum = 0.9f, .weight_decay = 0.1f},
    {.kind = OPTIMIZER_SGD, .momentum = 0.9f, .weight_decay = 0.1f, .nesterov = true},
    {.kind = OPTIMIZER_ADAM, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f, .weight_decay = 0.1f},
    {.kind = OPTIMIZER_ADAMW, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-3f, .weight_decay = 0.1f},
    {.kind = OPTIMIZER_ADAM, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f},
};
static const char *const update_names[] = {"sgd",  "sgd, momentum", "sgd, nesterov",
                                           "adam", "adamw",         "adam, no decay"};

static void optimizers_are_the_reference(void **state) {
  (void)state;
  static const int64_t decayed[] = {DECAYED, 0, LEARNED};
  for (size_t u = 0; u < sizeof updates / sizeof *updates; u++)
    for (size_t k = 0; k < sizeof decayed / sizeof *decayed; k++) {
      struct training t;
      struct update_desc desc = updates[u];
      desc.decay_count = decayed[k];
      desc.parameter_count = LEARNED;
      desc.total_count = TOTAL;
      desc.statistic_momentum = 0.1f;
      training_create(&t);
      for (int s = 0; s < STEPS; s++) {
        reference_update(&desc, &rows[s], t.w, t.d, t.m, t.v);
        device_step(&t, &desc, 1.5f);
      }
      assert_training(&t, update_names[u]);
      training_destroy(&t);
    }
}

/* A loss that is not finite: nothing changes in this step and in all that follow, and control says so. */
static void a_bad_loss_halts(void **state) {
  (void)state;
  static const float losses[] = {NAN, INFINITY, -INFINITY};
  for (size_t u = 0; u < sizeof updates / sizeof *updates; u++) {
    struct training t;
    struct step_control control;
    struct update_desc desc = updates[u];
    desc.decay_count = DECAYED;
    desc.parameter_count = LEARNED;
    desc.total_count = TOTAL;
    desc.statistic_momentum = 0.1f;
    training_create(&t);
    reference_update(&desc, &rows[0], t.w, t.d, t.m, t.v);
    device_step(&t, &desc, 1.5f);
    device_step(&t, &desc, losses[u % 3]);
    ok(table->download(backend, &control, t.control, sizeof control));
    assert_int_equal(control.halted, 1);
    device_step(&t, &desc, 1.5f);
    ok(table->download(backend, &control, t.control, sizeof control));
    assert_int_equal(control.halted, 1);
    assert_int_equal(control.next, 3);
    assert_training(&t, update_names[u]);
    training_destroy(&t);
  }
}

static void steps_take_their_rows_in_order(void **state) {
  (void)state;
  struct training t;
  void *ring;
  training_create(&t);
  ok(table->alloc_host(backend, 8 * METRIC_COUNT * sizeof(float), &ring));
  for (uint32_t s = 0; s < STEPS; s++) {
    struct step_control control;
    float metrics[METRIC_COUNT], sent[METRIC_COUNT] = {1.5f + (float)s, 7, 1, -2};
    ok(table->sync(backend));
    *t.stop = s == 1;
    ok(table->upload(backend, t.metrics, sent, sizeof sent));
    ok(table->step_begin(backend, t.control, t.rows, t.stop, t.metrics));
    ok(table->download(backend, &control, t.control, sizeof control));
    ok(table->download(backend, metrics, t.metrics, sizeof metrics));
    assert_int_equal(control.next, s + 1);
    assert_memory_equal(&control.row, &rows[s], sizeof control.row);
    for (int i = 0; i < METRIC_COUNT; i++)
      assert_true(metrics[i] == (i == METRIC_STOP && s == 1 ? 1.0f : 0.0f));
    ok(table->upload(backend, t.metrics, sent, sizeof sent));
    ok(table->publish(backend, t.control, t.metrics, ring));
    ok(table->sync(backend));
    assert_memory_equal((float *)ring + METRIC_COUNT * rows[s].slot, sent, sizeof sent);
  }
  for (int i = 4 * METRIC_COUNT; i < 8 * METRIC_COUNT; i++) assert_true(((float *)ring)[i] == 0);
  table->release_host(backend, ring);
  training_destroy(&t);
}

/* A step as the net makes one: the gathered batch is used as the gradients. */
struct program_step {
  struct training t;
  struct update_desc update;
  struct gather_desc gather;
  struct sample *list;
  int32_t *labels; /* of the batch */
  float *ring;
  int calls;
};

static enum status step_body(void *argument) {
  struct program_step *s = argument;
  s->calls++;
  TRY(table->step_begin(backend, s->t.control, s->t.rows, s->t.stop, s->t.metrics));
  TRY(table->gather(backend, &s->gather, s->t.control, s->list, s->t.device_d, s->labels));
  TRY(table->allreduce(backend, s->t.device_d, TOTAL));
  TRY(table->comm_join(backend));
  TRY(table->update(backend, &s->update, s->t.control, s->t.device_w, s->t.low, s->t.device_d, s->t.device_m,
                    NULL, s->t.metrics));
  return table->publish(backend, s->t.control, s->t.metrics, s->ring);
}

enum { RUNS = 5, SIDE = 5, BATCH = 14 }; /* 14 images of 5x5x3 are the 1050 values of TOTAL */

static void program_step_create(struct program_step *s) {
  double drawn[20 * SIDE * SIDE * 3];
  uint8_t images[20 * SIDE * SIDE * 3];
  int32_t labels[20] = {0};
  struct sample list[4 + BATCH];
  void *ring;
  *s = (struct program_step){.update = updates[1]};
  training_create(&s->t);
  s->update.decay_count = DECAYED;
  s->update.parameter_count = LEARNED;
  s->update.total_count = TOTAL;
  s->update.statistic_momentum = 0.1f;
  array_below(drawn, 20 * SIDE * SIDE * 3, 256, 9);
  array_encode(images, DTYPE_U8, drawn, 20 * SIDE * SIDE * 3);
  for (int i = 0; i < 4 + BATCH; i++)
    list[i] = (struct sample){.index = (uint32_t)i, .shift_x = (int8_t)(i % 3), .flip = (uint8_t)(i % 2)};
  s->list = device_copy(list, sizeof list);
  s->labels = device_array(BATCH * sizeof *s->labels);
  s->gather = (struct gather_desc){.images = device_copy(images, sizeof images),
                                   .labels = device_copy(labels, sizeof labels),
                                   .count = BATCH,
                                   .height = SIDE,
                                   .width = SIDE,
                                   .channels = 3,
                                   .mean = {0.5f, 0.5f, 0.5f},
                                   .std = {0.5f, 0.25f, 0.5f}};
  ok(table->alloc_host(backend, 8 * METRIC_COUNT * sizeof(float), &ring));
  s->ring = ring;
}

static void program_step_destroy(struct program_step *s) {
  table->release(backend, s->list);
  table->release(backend, s->labels);
  table->release(backend, (void *)(uintptr_t)s->gather.images);
  table->release(backend, (void *)(uintptr_t)s->gather.labels);
  table->release_host(backend, s->ring);
  training_destroy(&s->t);
}

/* Every run takes its own row, samples, rate and place in the ring, whether the work is enqueued or replayed.
 */
static void programs_repeat_the_eager_step(void **state) {
  (void)state;
  struct program_step eager, recorded;
  struct program *program = NULL;
  uint64_t ticket = 0, before = 0;
  program_step_create(&eager);
  program_step_create(&recorded);
  for (int i = 0; i < RUNS; i++) ok(step_body(&eager));
  ok(table->sync(backend));
  *recorded.t.stop = 1;
  for (int i = 0; i < RUNS; i++) {
    ok(table->run(backend, &program, step_body, &recorded, &ticket));
    if (i > 0) assert_true(ticket > before);
    before = ticket;
    if (i % 2 == 0) {
      ok(table->wait(backend, ticket));
      assert_true(recorded.ring[METRIC_COUNT * rows[i].slot + METRIC_STOP] == 1);
      assert_true(eager.ring[METRIC_COUNT * rows[i].slot + METRIC_STOP] == 0);
    }
  }
  ok(table->wait(backend, ticket));
  ok(table->wait(backend, ticket)); /* again: at once */
  assert_true(recorded.calls >= 1);
  double *w = read_array(eager.t.device_w, DTYPE_F32, GUARDED);
  double *replayed = read_array(recorded.t.device_w, DTYPE_F32, GUARDED);
  struct step_control control;
  ok(table->download(backend, &control, recorded.t.control, sizeof control));
  assert_int_equal(control.next, RUNS);
  assert_memory_equal(w, replayed, GUARDED * sizeof *w);
  int changed = 0;
  for (int i = 0; i < TOTAL; i++) changed += w[i] != eager.t.w[i];
  assert_true(changed > TOTAL * 9 / 10);
  free(w);
  free(replayed);
  table->program_destroy(backend, program);
  table->program_destroy(backend, NULL);
  program_step_destroy(&eager);
  program_step_destroy(&recorded);
}

static enum status failing_body(void *argument) {
  (void)argument;
  return RAISE(STATUS_INPUT, "the body says no");
}

static void a_failing_body_fails_the_run(void **state) {
  (void)state;
  struct program *program = NULL;
  uint64_t ticket;
  assert_int_equal(table->run(backend, &program, failing_body, NULL, &ticket), STATUS_INPUT);
  assert_string_equal(error_message(), "the body says no");
  error_clear();
  table->program_destroy(backend, program);
  programs_repeat_the_eager_step(NULL); /* and the backend still works */
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(steps_take_their_rows_in_order),
      cmocka_unit_test(optimizers_are_the_reference),
      cmocka_unit_test(a_bad_loss_halts),
      cmocka_unit_test(programs_repeat_the_eager_step),
      cmocka_unit_test(a_failing_body_fails_the_run),
  };
  struct world world;
  int code = suite_open(argc, argv, &table, &world);
  if (code) return code;
  int failed = suite_run(&world, PRECISION_FP32, tests, sizeof tests / sizeof *tests);
  world_close(&world);
  return failed ? 1 : 0;
}
