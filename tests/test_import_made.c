/* CIFAR-10's binary files are read, and the generated set. */
#include "tests/fixtures/image_files.h"

#ifdef MADE_IMAGES

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/synth.h"

/* CIFAR-10's binary version: planes become pixels, labels and names are kept. */
static void cifar_binary_is_read(void **state) {
  (void)state;
  enum { ROW = 3073, ROWS = 4 };
  static uint8_t data[ROWS * ROW];
  make_by_shell("rm -rf '%s' && mkdir -p '%s'", made_folder, made("c/cifar-10-batches-bin"));
  for (int batch = 0; batch < 6; batch++) {
    char name[64];
    snprintf(name, sizeof name,
             batch ? "c/cifar-10-batches-bin/data_batch_%d.bin" : "c/cifar-10-batches-bin/test_batch.bin",
             batch);
    for (int row = 0; row < ROWS; row++)
      for (int i = 0; i < ROW; i++)
        data[row * ROW + i] =
            i ? make_value((uint32_t)(batch * ROWS + row), i - 1) : (uint8_t)((batch + row) % 10);
    make_file(name, (struct made_bytes){data, sizeof data});
  }
  make_by_shell(
      "printf 'airplane\\nautomobile\\nbird\\ncat\\ndeer\\ndog\\nfrog\\nhorse\\nship\\ntruck\\n\\n' > '%s'",
      made("c/cifar-10-batches-bin/batches.meta.txt"));
  must_refuse(made("c"), "airplane",
              "no training image"); /* the labels of these few rows do not reach all classes */
  for (int batch = 1; batch < 6; batch++) {
    char name[64];
    snprintf(name, sizeof name, "c/cifar-10-batches-bin/data_batch_%d.bin", batch);
    for (int row = 0; row < ROWS; row++)
      for (int i = 0; i < ROW; i++)
        data[row * ROW + i] =
            i ? make_value((uint32_t)(batch * ROWS + row), i - 1) : (uint8_t)((batch * ROWS + row) % 10);
    make_file(name, (struct made_bytes){data, sizeof data});
  }
  make_by_shell("cd '%s' && tar czf c.tar.gz -C c cifar-10-batches-bin", made_folder);
  struct dataset *a = must_import(made("c/cifar-10-batches-bin"), made("out-a")),
                 *b = must_import(made("c.tar.gz"), made("out-b"));
  assert_true(a->digest == b->digest);
  assert_int_equal(a->train.count, 5 * ROWS);
  assert_string_equal(a->class_name[9], "truck");
  int found = 0;
  for (int64_t n = 0; n < a->train.count; n++)
    for (uint32_t image = ROWS; image < 6 * ROWS; image++) {
      bool same = true;
      for (int p = 0; p < 1024 && same; p++)
        for (int c = 0; c < 3 && same; c++)
          same = a->train.images[n * 3072 + 3 * p + c] == make_value(image, c * 1024 + p);
      if (!same) continue;
      found++;
      assert_int_equal(a->train.labels[n], image % 10);
    }
  assert_int_equal(found, 5 * ROWS);
  dataset_close(a);
  dataset_close(b);
  make_file("c/cifar-10-batches-bin/data_batch_3.bin", (struct made_bytes){data, sizeof data - 1});
  must_refuse(made("c"), "data_batch_3.bin", "multiple of 3073");
  data[ROW] = 10;
  make_file("c/cifar-10-batches-bin/data_batch_3.bin", (struct made_bytes){data, sizeof data});
  must_refuse(made("c"), "data_batch_3.bin", "row 1: label 10");
  assert_int_equal(unlink(made("c/cifar-10-batches-bin/data_batch_3.bin")), 0);
  must_refuse(made("c"), "data_batch_3.bin", "missing");
}

static void synth_is_balanced_and_repeatable(void **state) {
  (void)state;
  make_by_shell("rm -rf '%s' && mkdir '%s'", made_folder, made_folder);
  struct synth_options options = {.out = made("s"),
                                  .train = 50,
                                  .test = 20,
                                  .train_shards = 3,
                                  .test_shards = 1,
                                  .classes = 5,
                                  .size = 16,
                                  .seed = 1};
  struct dataset *dataset = NULL;
  assert_int_equal(synth_run(&options), STATUS_OK);
  assert_int_equal(dataset_open(&made_world, options.out, DATASET_TRAIN | DATASET_TEST, &dataset), STATUS_OK);
  int seen[5] = {0};
  for (int i = 0; i < 50; i++) seen[dataset->train.labels[i]]++;
  for (int c = 0; c < 5; c++) assert_int_equal(seen[c], 10);
  assert_int_equal(dataset->classes, 5);
  uint8_t image[16 * 16 * 3];
  int32_t label;
  synth_image(&options, 0, 17, image, &label);
  assert_memory_equal(image, dataset->train.images + 17 * sizeof image, sizeof image);
  assert_memory_not_equal(image, dataset->train.images + 22 * sizeof image, sizeof image);
  assert_memory_not_equal(image, dataset->test.images + 17 * sizeof image, sizeof image);
  dataset_close(dataset);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cifar_binary_is_read),
      cmocka_unit_test(synth_is_balanced_and_repeatable),
  };
  return cmocka_run_group_tests(tests, made_start, made_stop);
}

#else

int main(void) {
  return made_skipped();
}

#endif
