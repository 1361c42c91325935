/* The generated data set; see synth.h. */
#include "data/synth.h"

#include <math.h>
#include <stdlib.h>

#include "data/dataset.h"
#include "data/shard_set.h"
#include "model/base/log.h"
#include "model/base/random.h"

static const double PI = 3.14159265358979323846;

/* What is drawn once an image. */
struct drawing {
  double cos_angle, sin_angle, wave, phase; /* stripes: wave in radians a pixel */
  double y, x, radius;                      /* the patch */
  double stripe[3], ground[3], contrast;
};

enum { DRAWS = 16 }; /* positions of the random sequence before the noise */

/* A colour of full saturation: hue in turns. */
static void hue_colour(double hue, double colour[3]) {
  for (int c = 0; c < 3; c++) colour[c] = 0.5 + 0.5 * cos(2 * PI * (hue - c / 3.0));
}

static void draw(const struct synth_options *options, struct random_key key, int label,
                 struct drawing *drawing) {
  double u[DRAWS], size = options->size;
  for (int i = 0; i < DRAWS; i++) u[i] = random_uniform(key, (uint64_t)i);
  double step = 1.0 / options->classes;
  double angle = PI * (label + 0.5 * (u[0] - 0.5)) * step;
  drawing->cos_angle = cos(angle);
  drawing->sin_angle = sin(angle);
  drawing->wave = 2 * PI / (4 + 2 * u[1]); /* a period of 4 to 6 pixels */
  drawing->phase = 2 * PI * u[2];
  drawing->radius = size * (0.35 + 0.15 * u[3]);
  drawing->y = size * (0.5 + 0.25 * (u[4] - 0.5));
  drawing->x = size * (0.5 + 0.25 * (u[5] - 0.5));
  /* Neighbours in angle lie far apart in hue: 3 steps of 10 classes. */
  int turn = options->classes % 3 ? 3 : 1;
  double hue = label * turn * step + 1.3 * step * (u[6] - 0.5);
  hue_colour(hue, drawing->stripe);
  for (int c = 0; c < 3; c++) drawing->ground[c] = 0.3 + 0.4 * u[7 + c];
  drawing->contrast = 0.65 + 0.35 * u[10];
}

void synth_image(const struct synth_options *options, int split, int64_t row, uint8_t *image,
                 int32_t *label) {
  int size = options->size;
  *label = (int32_t)(row % options->classes);
  /* One sequence an image: rows are the high part of the position. */
  struct random_key key = random_key(options->seed, RANDOM_SYNTH, (uint32_t)split);
  key.seed = key.seed * 0x9e3779b97f4a7c15u + (uint64_t)row;
  struct drawing drawing;
  draw(options, key, *label, &drawing);
  for (int y = 0; y < size; y++)
    for (int x = 0; x < size; x++) {
      double dy = y - drawing.y, dx = x - drawing.x;
      double edge = (drawing.radius - sqrt(dy * dy + dx * dx)) / 2;
      double inside = edge < 0 ? 0 : edge > 1 ? 1 : edge;
      double wave = sin(drawing.wave * (drawing.cos_angle * dx + drawing.sin_angle * dy) + drawing.phase);
      double mix = inside * drawing.contrast * (0.5 + 0.5 * wave);
      uint32_t noise[4];
      random_words(key, DRAWS + (uint64_t)y * (uint64_t)size + (uint64_t)x, noise);
      for (int c = 0; c < 3; c++, image++) {
        /* The sum of two uniform numbers: a triangle of half width 0.22. */
        double grain = ((double)(noise[c] & 0xffff) + (double)(noise[c] >> 16)) / 65535.0 - 1.0;
        double value = drawing.ground[c] + mix * (drawing.stripe[c] - drawing.ground[c]) + 0.22 * grain;
        *image = (uint8_t)(255.0 * (value < 0 ? 0 : value > 1 ? 1 : value) + 0.5);
      }
    }
}

struct synth_rows {
  const struct synth_options *options;
  int split;
};

static enum status get_row(void *context, int64_t row, uint8_t *image, int32_t *label) {
  const struct synth_rows *rows = context;
  synth_image(rows->options, rows->split, row, image, label);
  return STATUS_OK;
}

static enum status check(const struct synth_options *options) {
  if (options->classes < 2 || options->classes > DATASET_MAX_CLASSES)
    return RAISE(STATUS_INPUT, "%d classes, expected 2..%d", options->classes, DATASET_MAX_CLASSES);
  if (options->size < 8 || options->size > 1024)
    return RAISE(STATUS_INPUT, "images of %d pixels a side, expected 8..1024", options->size);
  if (options->train < 1 || options->test < 0)
    return RAISE(STATUS_INPUT, "%lld training and %lld test images, expected at least 1 and 0",
                 (long long)options->train, (long long)options->test);
  return STATUS_OK;
}

enum status synth_run(const struct synth_options *options) {
  TRY(check(options));
  TRY(shard_set_check(options->out, options->overwrite));
  struct synth_rows rows[SPLIT_COUNT] = {{options, SPLIT_TRAIN}, {options, SPLIT_TEST}};
  struct shard_set set = {.shape = {options->size, options->size, 3, options->classes, NULL}};
  set.split[SPLIT_TRAIN] =
      (struct shard_rows){options->train, options->train_shards, get_row, &rows[SPLIT_TRAIN]};
  set.split[SPLIT_TEST] =
      (struct shard_rows){options->test, options->test_shards, get_row, &rows[SPLIT_TEST]};
  log_info("generating %lld training and %lld test images of %dx%d pixels, %d classes",
           (long long)options->train, (long long)options->test, options->size, options->size,
           options->classes);
  return shard_set_write(&set, options->out, options->overwrite);
}
