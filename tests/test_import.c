/* Import: trees, archives and CIFAR-10's binary files become the same shards; what cannot be taken is named
 * and leaves nothing behind. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "data/dataset.h"
#include "data/image_decode.h"
#include "data/import.h"
#include "data/import_member.h"
#include "data/synth.h"
#include "model/base/log.h"
#include "model/base/random.h"
#include "model/base/world.h"

#if defined CONVOY_ARCHIVE && defined CONVOY_JPEG && defined CONVOY_PNG
#include <archive.h>
#include <archive_entry.h>
#include <jpeglib.h>
#include <png.h>

enum { SIDE = 12, TRAIN = 7, TEST = 3 }; /* images a class and split */

static struct world world;
static char folder[] = "/tmp/convoy-test-import-XXXXXX";
static char command[1024];
static const char *const classes[] = {"bird", "cat", "\xc3\xa9l\xc3\xa9phant"};
static const char *const splits[] = {"train", "test"};

/* ---- making files ---- */

struct bytes {
  uint8_t *data;
  size_t count;
};

static uint8_t value(uint32_t image, int at) {
  return (uint8_t)random_below(random_key(9, RANDOM_TEST, image), (uint64_t)at, 256);
}

/* A PNG of the given libpng colour type and depth; channel c of pixel i is value(image, i * channels + c), in
 * 16 bits value * 257. Alpha is `alpha`. */
static struct bytes make_png(uint32_t image, int size, int type, int depth, uint8_t alpha) {
  struct bytes out = {NULL, 0};
  FILE *stream = open_memstream((char **)&out.data, &out.count);
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
  png_infop info = png_create_info_struct(png);
  assert_true(stream && png && info && setjmp(png_jmpbuf(png)) == 0);
  png_init_io(png, stream);
  png_set_IHDR(png, info, (png_uint_32)size, (png_uint_32)size, depth, type, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  int channels = png_get_channels(png, info), wide = depth / 8;
  bool has_alpha = type & PNG_COLOR_MASK_ALPHA;
  uint8_t row[64 * 8];
  for (int y = 0; y < size; y++) {
    for (int i = 0; i < size * channels; i++)
      for (int b = 0; b < wide; b++)
        row[i * wide + b] =
            has_alpha && i % channels == channels - 1 ? alpha : value(image, y * size * channels + i);
    png_write_row(png, row);
  }
  png_write_end(png, NULL);
  png_destroy_write_struct(&png, &info);
  fclose(stream);
  return out;
}

/* A smooth JPEG of a colour space with `channels` channels: channel c is 60 * c + 40 + 4 * x. */
static struct bytes make_jpeg(int size, int channels, J_COLOR_SPACE space, bool progressive) {
  struct jpeg_compress_struct encoder;
  struct jpeg_error_mgr errors;
  unsigned char *data = NULL;
  unsigned long count = 0;
  encoder.err = jpeg_std_error(&errors);
  jpeg_create_compress(&encoder);
  jpeg_mem_dest(&encoder, &data, &count);
  encoder.image_width = encoder.image_height = (JDIMENSION)size;
  encoder.input_components = channels;
  encoder.in_color_space = space;
  jpeg_set_defaults(&encoder);
  jpeg_set_quality(&encoder, 100, TRUE);
  if (progressive) jpeg_simple_progression(&encoder);
  jpeg_start_compress(&encoder, TRUE);
  uint8_t row[64 * 4];
  for (int x = 0; x < size; x++)
    for (int c = 0; c < channels; c++) row[x * channels + c] = (uint8_t)(60 * c + 40 + 4 * x);
  JSAMPROW rows[1] = {row};
  for (int y = 0; y < size; y++) jpeg_write_scanlines(&encoder, rows, 1);
  jpeg_finish_compress(&encoder);
  jpeg_destroy_compress(&encoder);
  return (struct bytes){data, count};
}

static const char *in(const char *name) {
  static char path[4][512];
  static int next;
  next = (next + 1) % 4;
  snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
  return path[next];
}

static void shell(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(command, sizeof command, format, arguments);
  va_end(arguments);
  assert_int_equal(system(command), 0);
}

static void put(const char *name, struct bytes bytes) {
  FILE *file = fopen(in(name), "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes.data, 1, bytes.count, file), bytes.count);
  assert_int_equal(fclose(file), 0);
}

/* tree/set/train|test/CLASS/N.png and, as every third, .jpg. */
static void make_tree(void) {
  shell("rm -rf '%s' && mkdir -p '%s'", folder, in("tree/set"));
  uint32_t image = 0;
  for (int s = 0; s < 2; s++)
    for (int c = 0; c < 3; c++) {
      shell("mkdir -p '%s/tree/set/%s/%s'", folder, splits[s], classes[c]);
      for (int i = 0; i < (s ? TEST : TRAIN); i++, image++) {
        char name[256];
        bool jpeg = i % 3 == 2;
        snprintf(name, sizeof name, "tree/set/%s/%s/%03d.%s", splits[s], classes[c], i, jpeg ? "JPG" : "png");
        struct bytes bytes =
            jpeg ? make_jpeg(SIDE, 3, JCS_RGB, i % 2) : make_png(image, SIDE, PNG_COLOR_TYPE_RGB, 8, 255);
        put(name, bytes);
        free(bytes.data);
      }
    }
  shell("echo text > '%s'", in("tree/set/README.md"));
  shell("echo hidden > '%s'", in("tree/set/train/cat/._000.png"));
}

/* One member of an archive to be written. */
struct entry {
  const char *name, *link;
  struct bytes bytes;
};

static struct archive *open_archive(const char *name, bool zip) {
  struct archive *archive = archive_write_new();
  assert_non_null(archive);
  if (zip) {
    archive_write_set_format_zip(archive);
  } else {
    archive_write_set_format_pax_restricted(archive);
    archive_write_add_filter_xz(archive);
  }
  assert_int_equal(archive_write_open_filename(archive, in(name)), ARCHIVE_OK);
  return archive;
}

static void add_entry(struct archive *archive, const struct entry *entry) {
  struct archive_entry *header = archive_entry_new();
  archive_entry_set_pathname(header, entry->name);
  archive_entry_set_filetype(header, entry->link ? AE_IFLNK : AE_IFREG);
  archive_entry_set_perm(header, 0644);
  if (entry->link) archive_entry_set_symlink(header, entry->link);
  archive_entry_set_size(header, (la_int64_t)entry->bytes.count);
  assert_true(archive_write_header(archive, header) >= ARCHIVE_WARN);
  if (entry->bytes.count)
    assert_int_equal(archive_write_data(archive, entry->bytes.data, entry->bytes.count), entry->bytes.count);
  archive_entry_free(header);
}

static void close_archive(struct archive *archive) {
  assert_int_equal(archive_write_close(archive), ARCHIVE_OK);
  archive_write_free(archive);
}

/* ---- seeds for the fuzzer (tests/fuzz.sh): 'I' and an image, or 'A' and an archive ---- */

static void keep_seed(char kind, struct bytes bytes) {
  const char *seeds = getenv("CONVOY_SEEDS");
  static int number;
  char name[512];
  if (!seeds) return;
  snprintf(name, sizeof name, "%s/import-%s-%d", seeds, program_invocation_short_name, number++);
  FILE *file = fopen(name, "wb");
  assert_non_null(file);
  assert_true(fputc(kind, file) == kind && fwrite(bytes.data, 1, bytes.count, file) == bytes.count);
  assert_int_equal(fclose(file), 0);
}

static void keep_archive(const char *path) {
  struct stat info;
  if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > 1 << 16) return;
  struct bytes bytes = {malloc((size_t)info.st_size), (size_t)info.st_size};
  FILE *file = fopen(path, "rb");
  assert_true(file && bytes.data && fread(bytes.data, 1, bytes.count, file) == bytes.count);
  fclose(file);
  keep_seed('A', bytes);
  free(bytes.data);
}

/* ---- importing ---- */

static enum status import(const char *from, const char *out) {
  struct import_options options = {.from = from, .out = out, .train_shards = 5, .test_shards = 1, .seed = 3};
  error_clear();
  keep_archive(from);
  return import_run(&options);
}

static struct dataset *imported(const char *from, const char *out) {
  struct dataset *dataset = NULL;
  enum status status = import(from, out);
  if (status == STATUS_OK) status = dataset_open(&world, out, DATASET_TRAIN | DATASET_TEST, &dataset);
  if (status != STATUS_OK) error_print(stderr);
  assert_int_equal(status, STATUS_OK);
  return dataset;
}

static void assert_refused(const char *from, const char *word, const char *reason) {
  const char *out = in("refused");
  assert_int_equal(import(from, out), STATUS_INPUT);
  if (!strstr(error_message(), word) || !strstr(error_message(), reason))
    fail_msg("'%s' or '%s' is not in: %s", word, reason, error_message());
  assert_null(strpbrk(error_message(), "\n\033")); /* names may hold anything; the error is one line */
  error_clear();
  assert_int_equal(access(out, F_OK), -1);
}

static void tree_and_archives_give_the_same_shards(void **state) {
  (void)state;
  make_tree();
  struct dataset *dataset = imported(in("tree"), in("out"));
  assert_int_equal(dataset->train.count, 3 * TRAIN);
  assert_int_equal(dataset->test.count, 3 * TEST);
  assert_int_equal(dataset->train.shard_count, 5);
  assert_int_equal(dataset->height, SIDE);
  assert_int_equal(dataset->classes, 3);
  for (int c = 0; c < 3; c++) assert_string_equal(dataset->class_name[c], classes[c]);
  /* Each PNG of the tree is there once, with its label; the order is not that of the names. */
  int found = 0, ascending = 0;
  for (uint32_t image = 0; image < 3 * TRAIN; image++) {
    if (image % TRAIN % 3 == 2) continue;
    for (int64_t n = 0; n < dataset->train.count; n++) {
      bool same = true;
      for (int i = 0; i < SIDE * SIDE * 3 && same; i++)
        same = dataset->train.images[n * SIDE * SIDE * 3 + i] == value(image, i);
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
  shell("cd '%s' && tar cf set.tar -C tree/set test train README.md && tar czf set.tar.gz tree", folder);
  const char *const archives[] = {"set.tar", "set.tar.gz", "tree/set/"};
  for (int i = 0; i < 3; i++) {
    char out[32];
    snprintf(out, sizeof out, "out-%d", i);
    dataset = imported(in(archives[i]), in(out));
    assert_true(dataset->digest == digest);
    dataset_close(dataset);
  }
  shell("cmp '%s' '%s'", in("out/train-00002-of-00005.h5"), in("out-1/train-00002-of-00005.h5"));
}

static void zip_and_xz_are_read(void **state) {
  (void)state;
  make_tree();
  for (int zip = 0; zip < 2; zip++) {
    struct archive *archive = open_archive("a", zip);
    struct bytes a = make_png(1, SIDE, PNG_COLOR_TYPE_RGB, 8, 255),
                 b = make_png(2, SIDE, PNG_COLOR_TYPE_RGB, 8, 255);
    add_entry(archive, &(struct entry){"./x/train/cat/1.png", NULL, a});
    add_entry(archive, &(struct entry){"./x/test/cat/1.png", NULL, b});
    close_archive(archive);
    free(a.data);
    free(b.data);
    struct dataset *dataset = imported(in("a"), in(zip ? "zip" : "xz"));
    assert_int_equal(dataset->train.count, 1);
    assert_int_equal(dataset->test.images[5], value(2, 5));
    dataset_close(dataset);
  }
}

static void kinds_of_images_are_converted(void **state) {
  (void)state;
  static const struct {
    int type, depth, channels;
  } pngs[] = {{PNG_COLOR_TYPE_GRAY, 8, 1},
              {PNG_COLOR_TYPE_GRAY, 16, 1},
              {PNG_COLOR_TYPE_RGB, 16, 3},
              {PNG_COLOR_TYPE_GRAY_ALPHA, 8, 2},
              {PNG_COLOR_TYPE_RGB_ALPHA, 8, 4}};
  struct image image;
  for (size_t k = 0; k < sizeof pngs / sizeof *pngs; k++) {
    struct bytes bytes = make_png(4, SIDE, pngs[k].type, pngs[k].depth, 255);
    keep_seed('I', bytes);
    assert_int_equal(image_decode("x.png", bytes.data, bytes.count, &image), STATUS_OK);
    for (int i = 0; i < SIDE * SIDE; i++)
      for (int c = 0; c < 3; c++) {
        int colour = pngs[k].channels < 3 ? 0 : c;
        assert_int_equal(image.pixels[3 * i + c], value(4, i * pngs[k].channels + colour));
      }
    free(image.pixels);
    free(bytes.data);
  }
  static const struct {
    int channels;
    J_COLOR_SPACE space;
    int expected[3]; /* at x = 5 */
  } jpegs[] = {{1, JCS_GRAYSCALE, {60, 60, 60}},
               {3, JCS_RGB, {60, 120, 180}},
               /* libjpeg writes CMYK with Adobe's marker: the values are inverted, 255 - ink; black is 240 */
               {4, JCS_CMYK, {60 * 240 / 255, 120 * 240 / 255, 180 * 240 / 255}}};
  for (int k = 0; k < 6; k++) {
    struct bytes bytes = make_jpeg(SIDE, jpegs[k / 2].channels, jpegs[k / 2].space, k % 2);
    keep_seed('I', bytes);
    assert_int_equal(image_decode("x.jpg", bytes.data, bytes.count, &image), STATUS_OK);
    for (int c = 0; c < 3; c++)
      assert_in_range(image.pixels[3 * (SIDE * 6 + 5) + c], jpegs[k / 2].expected[c] - 4,
                      jpegs[k / 2].expected[c] + 4);
    free(image.pixels);
    free(bytes.data);
  }
}

/* Every proper prefix of an image is refused, and so are transparent pixels and other bytes. */
static void damaged_images_are_refused(void **state) {
  (void)state;
  struct image image;
  struct bytes kinds[] = {make_png(5, SIDE, PNG_COLOR_TYPE_RGB, 8, 255), make_jpeg(SIDE, 3, JCS_RGB, false),
                          make_jpeg(SIDE, 3, JCS_RGB, true)};
  for (int k = 0; k < 3; k++) {
    for (size_t count = 0; count < kinds[k].count; count++) {
      assert_int_equal(image_decode("dir/x.img", kinds[k].data, count, &image), STATUS_INPUT);
      assert_non_null(strstr(error_message(), "dir/x.img"));
      assert_null(image.pixels);
    }
    assert_int_equal(image_decode("dir/x.img", kinds[k].data, kinds[k].count, &image), STATUS_OK);
    free(image.pixels);
    free(kinds[k].data);
  }
  struct bytes clear = make_png(5, SIDE, PNG_COLOR_TYPE_RGB_ALPHA, 8, 254);
  assert_int_equal(image_decode("x.png", clear.data, clear.count, &image), STATUS_INPUT);
  assert_non_null(strstr(error_message(), "transparent"));
  free(clear.data);
  error_clear();
}

/* A member that says it has 8 GiB but 12 bytes, and an image that says it has 32639x32639 pixels: no memory
 * is taken on their word. */
static void claimed_sizes_are_not_believed(void **state) {
  (void)state;
  shell("rm -rf '%s' && mkdir '%s'", folder, folder);
  struct {
    char name[100], mode[8], owner[8], group[8], size[12], time[12], sum[8], type, link[100], magic[8],
        rest[247];
    char data[12];
  } tar = {.name = "set/train/cat/1.png", .mode = "0000644", .owner = "0000000", .group = "0000000"};
  memcpy(tar.size, "77777777777", 12);
  memcpy(tar.time, "00000000000", 12);
  memcpy(tar.sum, "        ", 8);
  memcpy(tar.magic, "ustar\00000", 8);
  memcpy(tar.data, "0123456789ab", 12);
  tar.type = '0';
  unsigned sum = 0;
  for (size_t i = 0; i < 512; i++) sum += ((const unsigned char *)&tar)[i];
  snprintf(tar.sum, sizeof tar.sum, "%06o", sum);
  put("huge.tar", (struct bytes){(uint8_t *)&tar, sizeof tar});
  assert_refused(in("huge.tar"), "set/train/cat/1.png", "cannot be read");
  struct bytes jpeg = make_jpeg(SIDE, 3, JCS_RGB, false);
  for (size_t i = 0; i + 9 < jpeg.count; i++)
    if (jpeg.data[i] == 0xff && jpeg.data[i + 1] == 0xc0) memset(jpeg.data + i + 5, 0x7f, 4);
  struct image image;
  keep_seed('I', jpeg);
  assert_int_equal(image_decode("x.jpg", jpeg.data, jpeg.count, &image), STATUS_INPUT);
  assert_non_null(strstr(error_message(), "image of 32639x32639"));
  free(jpeg.data);
  error_clear();
}

static void bad_members_are_named(void **state) {
  (void)state;
  struct bytes image = make_png(1, SIDE, PNG_COLOR_TYPE_RGB, 8, 255),
               large = make_png(1, SIDE + 1, PNG_COLOR_TYPE_RGB, 8, 255);
  struct bytes text = {(uint8_t *)"GIF89a", 6};
  const struct {
    struct entry entry;
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
  shell("rm -rf '%s' && mkdir '%s'", folder, folder);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct archive *archive = open_archive("bad.tar.xz", false);
    add_entry(archive, &(struct entry){"set/train/cat/1.png", NULL, image});
    add_entry(archive, &bad[i].entry);
    close_archive(archive);
    const char *base = strstr(bad[i].reason, "no training") ? "dog"
                       : strstr(bad[i].reason, "one size")  ? "train/cat/2.png"
                                                            : strrchr(bad[i].entry.name, '/') + 1;
    assert_refused(in("bad.tar.xz"), base, bad[i].reason);
  }
  free(large.data);
  free(image.data);
  shell("head -c 100 '%s' > '%s'", in("bad.tar.xz"), in("cut.tar.xz"));
  assert_refused(in("cut.tar.xz"), "cut.tar.xz", "archive");
  shell("echo hello > '%s' && mkdir '%s'", in("text"), in("none"));
  assert_refused(in("text"), "text", "archive");
  assert_refused(in("none"), "none", "holds no image");
  assert_refused(in("absent"), "absent", "No such file");
}

/* CIFAR-10's binary version: planes become pixels, labels and names are kept. */
static void cifar_binary_is_read(void **state) {
  (void)state;
  enum { ROW = 3073, ROWS = 4 };
  static uint8_t data[ROWS * ROW];
  shell("rm -rf '%s' && mkdir -p '%s'", folder, in("c/cifar-10-batches-bin"));
  for (int batch = 0; batch < 6; batch++) {
    char name[64];
    snprintf(name, sizeof name,
             batch ? "c/cifar-10-batches-bin/data_batch_%d.bin" : "c/cifar-10-batches-bin/test_batch.bin",
             batch);
    for (int row = 0; row < ROWS; row++)
      for (int i = 0; i < ROW; i++)
        data[row * ROW + i] =
            i ? value((uint32_t)(batch * ROWS + row), i - 1) : (uint8_t)((batch + row) % 10);
    put(name, (struct bytes){data, sizeof data});
  }
  shell("printf 'airplane\\nautomobile\\nbird\\ncat\\ndeer\\ndog\\nfrog\\nhorse\\nship\\ntruck\\n\\n' > '%s'",
        in("c/cifar-10-batches-bin/batches.meta.txt"));
  assert_refused(in("c"), "airplane",
                 "no training image"); /* the labels of these few rows do not reach all classes */
  for (int batch = 1; batch < 6; batch++) {
    char name[64];
    snprintf(name, sizeof name, "c/cifar-10-batches-bin/data_batch_%d.bin", batch);
    for (int row = 0; row < ROWS; row++)
      for (int i = 0; i < ROW; i++)
        data[row * ROW + i] =
            i ? value((uint32_t)(batch * ROWS + row), i - 1) : (uint8_t)((batch * ROWS + row) % 10);
    put(name, (struct bytes){data, sizeof data});
  }
  shell("cd '%s' && tar czf c.tar.gz -C c cifar-10-batches-bin", folder);
  struct dataset *a = imported(in("c/cifar-10-batches-bin"), in("out-a")),
                 *b = imported(in("c.tar.gz"), in("out-b"));
  assert_true(a->digest == b->digest);
  assert_int_equal(a->train.count, 5 * ROWS);
  assert_string_equal(a->class_name[9], "truck");
  int found = 0;
  for (int64_t n = 0; n < a->train.count; n++)
    for (uint32_t image = ROWS; image < 6 * ROWS; image++) {
      bool same = true;
      for (int p = 0; p < 1024 && same; p++)
        for (int c = 0; c < 3 && same; c++)
          same = a->train.images[n * 3072 + 3 * p + c] == value(image, c * 1024 + p);
      if (!same) continue;
      found++;
      assert_int_equal(a->train.labels[n], image % 10);
    }
  assert_int_equal(found, 5 * ROWS);
  dataset_close(a);
  dataset_close(b);
  put("c/cifar-10-batches-bin/data_batch_3.bin", (struct bytes){data, sizeof data - 1});
  assert_refused(in("c"), "data_batch_3.bin", "multiple of 3073");
  data[ROW] = 10;
  put("c/cifar-10-batches-bin/data_batch_3.bin", (struct bytes){data, sizeof data});
  assert_refused(in("c"), "data_batch_3.bin", "row 1: label 10");
  assert_int_equal(unlink(in("c/cifar-10-batches-bin/data_batch_3.bin")), 0);
  assert_refused(in("c"), "data_batch_3.bin", "missing");
}

static void output_is_protected(void **state) {
  (void)state;
  make_tree();
  dataset_close(imported(in("tree"), in("out")));
  assert_int_equal(import(in("tree"), in("out")), STATUS_INPUT);
  assert_non_null(strstr(error_message(), "--overwrite"));
  struct import_options options = {.from = in("tree"),
                                   .out = in("out"),
                                   .train_shards = 2,
                                   .test_shards = 1,
                                   .seed = 4,
                                   .overwrite = true};
  assert_int_equal(import_run(&options), STATUS_OK);
  struct dataset *dataset = NULL;
  assert_int_equal(dataset_open(&world, in("out"), DATASET_TRAIN, &dataset), STATUS_OK);
  assert_int_equal(dataset->train.shard_count, 2);
  dataset_close(dataset);
  /* A failure with --overwrite leaves the old shards. */
  shell("echo broken > '%s'", in("tree/set/train/cat/zzz.png"));
  assert_int_equal(import_run(&options), STATUS_INPUT);
  assert_non_null(strstr(error_message(), "train/cat/zzz.png"));
  assert_int_equal(dataset_open(&world, in("out"), DATASET_TRAIN, &dataset), STATUS_OK);
  assert_int_equal(dataset->train.shard_count, 2);
  dataset_close(dataset);
}

static void synth_is_balanced_and_repeatable(void **state) {
  (void)state;
  shell("rm -rf '%s' && mkdir '%s'", folder, folder);
  struct synth_options options = {.out = in("s"),
                                  .train = 50,
                                  .test = 20,
                                  .train_shards = 3,
                                  .test_shards = 1,
                                  .classes = 5,
                                  .size = 16,
                                  .seed = 1};
  struct dataset *dataset = NULL;
  assert_int_equal(synth_run(&options), STATUS_OK);
  assert_int_equal(dataset_open(&world, options.out, DATASET_TRAIN | DATASET_TEST, &dataset), STATUS_OK);
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

static int start(void **state) {
  (void)state;
  log_open(0, "", true);
  return world_open(&world) == STATUS_OK && mkdtemp(folder) ? 0 : -1;
}

static int stop(void **state) {
  (void)state;
  shell("rm -rf '%s'", folder);
  world_close(&world);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tree_and_archives_give_the_same_shards),
      cmocka_unit_test(zip_and_xz_are_read),
      cmocka_unit_test(kinds_of_images_are_converted),
      cmocka_unit_test(damaged_images_are_refused),
      cmocka_unit_test(claimed_sizes_are_not_believed),
      cmocka_unit_test(bad_members_are_named),
      cmocka_unit_test(cifar_binary_is_read),
      cmocka_unit_test(output_is_protected),
      cmocka_unit_test(synth_is_balanced_and_repeatable),
  };
  return cmocka_run_group_tests(tests, start, stop);
}

#else

int main(void) {
  puts("skipped: libarchive, libjpeg or libpng was not there at build");
  return 77;
}

#endif
