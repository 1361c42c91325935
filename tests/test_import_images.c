/* Decoding: kinds of images are converted, as another decoder does; damaged ones are refused. */
#include "tests/fixtures/image_files.h"

#ifdef MADE_IMAGES

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/image_decode.h"
#include "tests/left_out.h"

#ifdef CONVOY_STB
#include <stb/stb_image.h>
#endif

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
    struct made_bytes bytes = make_png(4, SIDE, pngs[k].type, pngs[k].depth, 255);
    make_seed('I', bytes);
    assert_int_equal(image_decode("x.png", bytes.data, bytes.count, &image), STATUS_OK);
    for (int i = 0; i < SIDE * SIDE; i++)
      for (int c = 0; c < 3; c++) {
        int colour = pngs[k].channels < 3 ? 0 : c;
        assert_int_equal(image.pixels[3 * i + c], make_value(4, i * pngs[k].channels + colour));
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
    struct made_bytes bytes = make_jpeg(SIDE, jpegs[k / 2].channels, jpegs[k / 2].space, k % 2);
    make_seed('I', bytes);
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
  struct made_bytes kinds[] = {make_png(5, SIDE, PNG_COLOR_TYPE_RGB, 8, 255),
                               make_jpeg(SIDE, 3, JCS_RGB, false), make_jpeg(SIDE, 3, JCS_RGB, true)};
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
  struct made_bytes clear = make_png(5, SIDE, PNG_COLOR_TYPE_RGB_ALPHA, 8, 254);
  assert_int_equal(image_decode("x.png", clear.data, clear.count, &image), STATUS_INPUT);
  assert_non_null(strstr(error_message(), "transparent"));
  free(clear.data);
  error_clear();
}

/* A member that says it has 8 GiB but 12 bytes, and an image that says it has 32639x32639 pixels: no memory
 * is taken on their word. */
static void claimed_sizes_are_not_believed(void **state) {
  (void)state;
  make_by_shell("rm -rf '%s' && mkdir '%s'", made_folder, made_folder);
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
  make_file("huge.tar", (struct made_bytes){(uint8_t *)&tar, sizeof tar});
  must_refuse(made("huge.tar"), "set/train/cat/1.png", "cannot be read");
  struct made_bytes jpeg = make_jpeg(SIDE, 3, JCS_RGB, false);
  for (size_t i = 0; i + 9 < jpeg.count; i++)
    if (jpeg.data[i] == 0xff && jpeg.data[i + 1] == 0xc0) memset(jpeg.data + i + 5, 0x7f, 4);
  struct image image;
  make_seed('I', jpeg);
  assert_int_equal(image_decode("x.jpg", jpeg.data, jpeg.count, &image), STATUS_INPUT);
  assert_non_null(strstr(error_message(), "image of 32639x32639"));
  free(jpeg.data);
  error_clear();
}

/* A picture with edges and noise. */
static struct made_bytes make_picture(int size, int across, int down, int quality, bool grey,
                                      bool progressive) {
  struct made_jpeg jpeg;
  struct jpeg_compress_struct *encoder = &jpeg.encoder;
  made_jpeg_begin(&jpeg, size, grey ? 1 : 3, grey ? JCS_GRAYSCALE : JCS_RGB, quality);
  encoder->comp_info[0].h_samp_factor = across;
  encoder->comp_info[0].v_samp_factor = down;
  if (progressive) jpeg_simple_progression(encoder);
  jpeg_start_compress(encoder, TRUE);
  uint8_t row[64 * 3];
  JSAMPROW rows[1] = {row};
  for (int y = 0; y < size; y++) {
    for (int i = 0; i < size * encoder->input_components; i++) {
      int x = i / encoder->input_components, c = i % encoder->input_components;
      int base = (x / 9 + y / 7 + c) % 2 ? 60 + 30 * c : 200 - 40 * c;
      row[i] = (uint8_t)(base + make_value((uint32_t)y, i) % 24);
    }
    jpeg_write_scanlines(encoder, rows, 1);
  }
  return made_jpeg_end(&jpeg);
}

#ifdef CONVOY_STB
/* stb_image shares no code with libjpeg and libpng. */
static void assert_as_stb(const struct made_bytes *bytes, int most, double mean) {
  struct image image;
  int width = 0, height = 0, channels, worst = 0;
  double sum = 0;
  assert_int_equal(image_decode("x", bytes->data, bytes->count, &image), STATUS_OK);
  uint8_t *other = stbi_load_from_memory(bytes->data, (int)bytes->count, &width, &height, &channels, 3);
  assert_non_null(other);
  assert_true(width == image.width && height == image.height);
  for (int i = 0; i < width * height * 3; i++) {
    int difference = abs(image.pixels[i] - other[i]);
    if (difference > worst) worst = difference;
    sum += difference;
  }
  if (worst > most || sum > mean * width * height * 3)
    fail_msg("differs from stb_image by up to %d, %.3f on average", worst, sum / (width * height * 3));
  free(other);
  free(image.pixels);
}

/* JPEGs to the rounding of transforms and colours; PNGs exactly. */
static void another_decoder_agrees(void **state) {
  (void)state;
  static const struct {
    int across, down, quality;
    bool grey, progressive;
  } kinds[] = {{1, 1, 95, false, false}, {2, 1, 75, false, false}, {2, 2, 75, false, false},
               {2, 2, 75, false, true},  {1, 1, 40, false, true},  {1, 1, 75, true, false},
               {1, 1, 90, true, true}};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    for (int size = 16; size <= 33; size += 17) { /* whole blocks, and not */
      struct made_bytes bytes = make_picture(size, kinds[k].across, kinds[k].down, kinds[k].quality,
                                             kinds[k].grey, kinds[k].progressive);
      make_seed('I', bytes);
      bool whole = kinds[k].across * kinds[k].down == 1;
      assert_as_stb(&bytes, whole ? 3 : 30, 0.6); /* halved colours are smoothed in other ways at the edges */
      free(bytes.data);
    }
  static const int types[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA};
  for (int k = 0; k < 6; k++) {
    struct made_bytes bytes = make_png((uint32_t)k, 17, types[k / 2], k % 2 ? 16 : 8, 255);
    assert_as_stb(&bytes, 0, 0);
    free(bytes.data);
  }
}
#else
static void another_decoder_agrees(void **state) {
  (void)state;
  (void)make_picture;
  leave_out("libstb-dev");
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kinds_of_images_are_converted),
      cmocka_unit_test(another_decoder_agrees),
      cmocka_unit_test(damaged_images_are_refused),
      cmocka_unit_test(claimed_sizes_are_not_believed),
  };
  return suite_status(cmocka_run_group_tests(tests, made_start, made_stop));
}

#else

int main(void) {
  return made_skipped();
}

#endif
