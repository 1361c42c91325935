/* Import: trees and archives become the same shards; what cannot be taken is named and leaves nothing behind.
 */
#include "tests/fixtures/image_files.h"

#ifdef MADE_IMAGES

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/import.h"

static void tree_and_archives_give_the_same_shards(void **state) {
  (void)state;
  make_tree();
  struct dataset *dataset = must_import(made("tree"), made("out"));
  assert_int_equal(dataset->train.count, 3 * TRAIN);
  assert_int_equal(dataset->test.count, 3 * TEST);
  assert_int_equal(dataset->train.shard_count, 5);
  assert_int_equal(dataset->height, SIDE);
  assert_int_equal(dataset->classes, 3);
  for (int c = 0; c < 3; c++) assert_string_equal(dataset->class_name[c], made_classes[c]);
  /* Each PNG of the tree is there once, with its label; the order is not that of the names. */
  int found = 0, ascending = 0;
  for (uint32_t image = 0; image < 3 * TRAIN; image++) {
    if (image % TRAIN % 3 == 2) continue;
    for (int64_t n = 0; n < dataset->train.count; n++) {
      bool same = true;
      for (int i = 0; i < SIDE * SIDE * 3 && same; i++)
        same = dataset->train.images[n * SIDE * SIDE * 3 + i] == make_value(image, i);
      if (!same) continue;
      found++;
      assert_int_equal(dataset->train.labels[n], image / TRAIN);
    }
  }
  assert_int_equal(found, 15);
  for (int64_t n = 1; n < dataset->train.count; n++)
    ascending += dataset->train.labels[n] >= dataset->train.labels[n - 1];
  assert_true(ascending < 3 * TRAIN - 2);
  uint64_t digest = dataset->digest;
  dataset_close(dataset);
  make_by_shell("cd '%s' && tar cf set.tar -C tree/set test train README.md && tar czf set.tar.gz tree",
                made_folder);
  const char *const archives[] = {"set.tar", "set.tar.gz", "tree/set/"};
  for (int i = 0; i < 3; i++) {
    char out[32];
    snprintf(out, sizeof out, "out-%d", i);
    dataset = must_import(made(archives[i]), made(out));
    assert_true(dataset->digest == digest);
    dataset_close(dataset);
  }
  make_by_shell("cmp '%s' '%s'", made("out/train-00002-of-00005.h5"), made("out-1/train-00002-of-00005.h5"));
}

static void zip_and_xz_are_read(void **state) {
  (void)state;
  make_tree();
  for (int zip = 0; zip < 2; zip++) {
    struct archive *archive = make_archive("a", zip);
    struct made_bytes a = make_png(1, SIDE, PNG_COLOR_TYPE_RGB, 8, 255),
                      b = make_png(2, SIDE, PNG_COLOR_TYPE_RGB, 8, 255);
    make_entry(archive, &(struct made_entry){"./x/train/cat/1.png", NULL, a});
    make_entry(archive, &(struct made_entry){"./x/test/cat/1.png", NULL, b});
    make_end(archive);
    free(a.data);
    free(b.data);
    struct dataset *dataset = must_import(made("a"), made(zip ? "zip" : "xz"));
    assert_int_equal(dataset->train.count, 1);
    assert_int_equal(dataset->test.images[5], make_value(2, 5));
    dataset_close(dataset);
  }
}

static void bad_members_are_named(void **state) {
  (void)state;
  struct made_bytes image = make_png(1, SIDE, PNG_COLOR_TYPE_RGB, 8, 255),
                    large = make_png(1, SIDE + 1, PNG_COLOR_TYPE_RGB, 8, 255);
  struct made_bytes text = {(uint8_t *)"GIF89a", 6};
  const struct {
    struct made_entry entry;
    const char *reason;
  } bad[] = {
      {{"set/train/cat/2.png", NULL, text}, "neither a JPEG nor a PNG"},
      {{"set/train/cat/2.png", NULL, {image.data, image.count - 20}}, "damaged PNG"},
      {{"set/train/cat/2.png", NULL, {image.data, 0}}, "empty"},
      {{"set/train/cat/2.png", NULL, large}, "one size"},
      {{"set/train/cat/1.png", NULL, image}, "twice"},
      {{"set/train/a\nb\033[2J/2.png", NULL, image}, "control character 10"},
      {{"set/a\nb/2.png", NULL, image}, "outside of train|test/CLASS/"},
      {{"set/train/2.png", NULL, image}, "outside of train|test/CLASS/"},
      {{"set/val/cat/2.png", NULL, image}, "outside of train|test/CLASS/"},
      {{"other/train/cat/2.png", NULL, image}, "second set"},
      {{"../train/cat/2.png", NULL, image}, "'..'"},
      {{"/train/cat/2.png", NULL, image}, "absolute"},
      {{"set/train/cat/2.png", "1.png", {NULL, 0}}, "a link"},
      {{"set/test/dog/2.png", NULL, image}, "no training image"},
      {{"set/data_batch_1.bin", NULL, text}, "both image files and CIFAR-10"},
  };
  make_by_shell("rm -rf '%s' && mkdir '%s'", made_folder, made_folder);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct archive *archive = make_archive("bad.tar.xz", false);
    make_entry(archive, &(struct made_entry){"set/train/cat/1.png", NULL, image});
    make_entry(archive, &bad[i].entry);
    make_end(archive);
    const char *base = strstr(bad[i].reason, "no training") ? "dog"
                       : strstr(bad[i].reason, "one size")  ? "train/cat/2.png"
                                                            : strrchr(bad[i].entry.name, '/') + 1;
    must_refuse(made("bad.tar.xz"), base, bad[i].reason);
  }
  free(large.data);
  free(image.data);
  make_by_shell("head -c 100 '%s' > '%s'", made("bad.tar.xz"), made("cut.tar.xz"));
  must_refuse(made("cut.tar.xz"), "cut.tar.xz", "archive");
  make_by_shell("echo hello > '%s' && mkdir '%s'", made("text"), made("none"));
  must_refuse(made("text"), "text", "archive");
  must_refuse(made("none"), "none", "holds no image");
  must_refuse(made("absent"), "absent", "No such file");
}

static void output_is_protected(void **state) {
  (void)state;
  make_tree();
  dataset_close(must_import(made("tree"), made("out")));
  assert_int_equal(try_import(made("tree"), made("out")), STATUS_INPUT);
  assert_non_null(strstr(error_message(), "--overwrite"));
  struct import_options options = {.from = made("tree"),
                                   .out = made("out"),
                                   .train_shards = 2,
                                   .test_shards = 1,
                                   .seed = 4,
                                   .overwrite = true};
  assert_int_equal(import_run(&options), STATUS_OK);
  struct dataset *dataset = NULL;
  assert_int_equal(dataset_open(&made_world, made("out"), DATASET_TRAIN, &dataset), STATUS_OK);
  assert_int_equal(dataset->train.shard_count, 2);
  dataset_close(dataset);
  /* A failure with --overwrite leaves the old shards. */
  make_by_shell("echo broken > '%s'", made("tree/set/train/cat/zzz.png"));
  assert_int_equal(import_run(&options), STATUS_INPUT);
  assert_non_null(strstr(error_message(), "train/cat/zzz.png"));
  assert_int_equal(dataset_open(&made_world, made("out"), DATASET_TRAIN, &dataset), STATUS_OK);
  assert_int_equal(dataset->train.shard_count, 2);
  dataset_close(dataset);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tree_and_archives_give_the_same_shards),
      cmocka_unit_test(zip_and_xz_are_read),
      cmocka_unit_test(bad_members_are_named),
      cmocka_unit_test(output_is_protected),
  };
  return cmocka_run_group_tests(tests, made_start, made_stop);
}

#else

int main(void) {
  return made_skipped();
}

#endif
