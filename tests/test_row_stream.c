/* The stream of training rows: what steps read is what the list asked for, whatever the ring's size, the
 * shards and the moment at which a list is replaced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "data/child.h"
#include "data/dataset.h"
#include "data/stream.h"
#include "data/synth.h"
#include "model/base/log.h"
#include "model/base/random.h"

enum { ROWS = 403, SIDE = 8, ROW = SIDE * SIDE * 3 };

static struct world world;
static char folder[] = "/tmp/convoy-test-stream-XXXXXX";
static char path[256], command[512];
static struct dataset *memory, *streamed;

static int start(void **state) {
  (void)state;
  children_prepare(NULL, 0);
  log_open(0, "", true);
  if (world_open(&world) != STATUS_OK || !mkdtemp(folder)) return -1;
  snprintf(path, sizeof path, "%s/set", folder);
  struct synth_options options = {.out = path,
                                  .train = ROWS,
                                  .test = 3,
                                  .train_shards = 7,
                                  .test_shards = 1,
                                  .classes = 10,
                                  .size = SIDE};
  bool good = synth_run(&options) == STATUS_OK && dataset_open(&world, path, 0, &memory) == STATUS_OK &&
              dataset_open_limited(&world, path, 0, 1000, &streamed) == STATUS_OK;
  return good ? 0 : -1;
}

static int stop(void **state) {
  (void)state;
  dataset_close(memory);
  dataset_close(streamed);
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  (void)!system(command);
  world_close(&world);
  return 0;
}

static void limited_set_is_the_same(void **state) {
  (void)state;
  assert_false(memory->streamed);
  assert_true(streamed->streamed);
  assert_null(streamed->train.images);
  assert_true(memory->digest == streamed->digest && memory->mean[1] == streamed->mean[1]);
  assert_memory_equal(memory->train.labels, streamed->train.labels, ROWS * sizeof(int32_t));
  assert_memory_equal(memory->test.images, streamed->test.images, 3 * ROW);
  struct dataset *fits = NULL;
  assert_int_equal(dataset_open_limited(&world, path, 0, ROWS * ROW, &fits), STATUS_OK);
  assert_false(fits->streamed);
  dataset_close(fits);
  struct dataset *checked = NULL; /* a command that does not train keeps no training image */
  assert_int_equal(dataset_open(&world, path, DATASET_TEST | DATASET_CHECKED, &checked), STATUS_OK);
  assert_false(checked->streamed);
  assert_null(checked->train.images);
  assert_true(checked->digest == memory->digest && checked->std[2] == memory->std[2]);
  assert_memory_equal(checked->train.labels, memory->train.labels, ROWS * sizeof(int32_t));
  assert_memory_equal(checked->test.images, memory->test.images, 3 * ROW);
  dataset_close(checked);
}

/* Takes the rows of list[0..until) in steps and compares each with the data set in memory. */
static void take(struct stream *stream, const struct stream_ring *ring, const struct sample *wanted,
                 const struct sample *list, int64_t until, int64_t step, int64_t lag) {
  for (int64_t done = 0; done < until; done += step) {
    int64_t end = done + step < until ? done + step : until;
    assert_int_equal(stream_wait(stream, end), STATUS_OK);
    for (int64_t i = done; i < end; i++) {
      uint32_t slot = list[i].index;
      assert_true(slot < ring->slots);
      assert_int_equal(ring->labels[slot], memory->train.labels[wanted[i].index]);
      assert_memory_equal(ring->images + (size_t)slot * ROW,
                          memory->train.images + (size_t)wanted[i].index * ROW, ROW);
    }
    if (end - lag > 0) stream_release(stream, end - lag);
  }
}

static void rows_come_in_order(void **state) {
  (void)state;
  static const struct {
    int64_t window, held, step, lag;
    int ranks;
  } cases[] = {
      {403, 20, 10, 10, 1}, {50, 3, 1, 2, 1}, {64, 40, 20, 20, 4}, {1, 1, 1, 0, 3}, {5000, 8, 7, 1, 2}};
  static struct sample wanted[ROWS], list[ROWS];
  uint32_t order[ROWS];
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    struct stream_ring ring;
    stream_ring_plan(&ring, cases[k].window, cases[k].ranks, cases[k].held);
    ring.images = malloc((size_t)ring.slots * ROW);
    ring.labels = malloc((size_t)ring.slots * sizeof *ring.labels);
    struct stream *stream = NULL;
    assert_int_equal(stream_create(streamed, &ring, &stream), STATUS_OK);
    for (uint32_t epoch = 0; epoch < 6;
         epoch++) { /* some are left early; the last one is a part of the rows */
      random_permutation(random_key(k, RANDOM_TEST, epoch), ROWS, order);
      for (int i = 0; i < ROWS; i++) wanted[i] = list[i] = (struct sample){.index = order[i], .flip = 1};
      int64_t count = epoch == 5 ? 77 : ROWS;
      assert_int_equal(stream_begin(stream, list, count), STATUS_OK);
      assert_int_equal(list[3].flip, 1);
      take(stream, &ring, wanted, list, epoch % 2 ? count : 31 * epoch, cases[k].step, cases[k].lag);
    }
    stream_destroy(stream);
    free(ring.images);
    free(ring.labels);
  }
}

/* A file that became shorter since it was checked. */
static void a_changed_file_is_named(void **state) {
  (void)state;
  static struct sample list[ROWS];
  char shard[320];
  snprintf(shard, sizeof shard, "%s/train-00004-of-00007.h5", path);
  assert_int_equal(truncate(shard, 3000), 0);
  struct stream_ring ring;
  stream_ring_plan(&ring, 64, 1, 8);
  ring.images = malloc((size_t)ring.slots * ROW);
  ring.labels = malloc((size_t)ring.slots * sizeof *ring.labels);
  struct stream *stream = NULL;
  assert_int_equal(stream_create(streamed, &ring, &stream), STATUS_OK);
  for (int i = 0; i < ROWS; i++) list[i] = (struct sample){.index = (uint32_t)i};
  assert_int_equal(stream_begin(stream, list, ROWS), STATUS_OK);
  enum status status = STATUS_OK;
  for (int i = 1; i <= ROWS && status == STATUS_OK; i++) {
    status = stream_wait(stream, i);
    stream_release(stream, i);
  }
  assert_int_equal(status, STATUS_INPUT);
  assert_non_null(strstr(error_message(), "train-00004-of-00007.h5 has 3000 bytes"));
  error_clear();
  stream_destroy(stream);
  free(ring.images);
  free(ring.labels);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(limited_set_is_the_same),
      cmocka_unit_test(rows_come_in_order),
      cmocka_unit_test(a_changed_file_is_named),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
