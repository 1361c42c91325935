/* PNG to RGB by libpng. Values are taken as they stand: no gamma or colour profile is applied, as other
 * readers do. */
#include "data/image_decode.h"

#ifdef CONVOY_PNG

#include <stdlib.h>
#include <string.h>

#include <png.h>

struct png_job {
  const uint8_t *data;
  size_t bytes, used;
  uint8_t *rgba;   /* owned */
  png_bytep *rows; /* owned */
  char text[128];
  enum status status;
};

static void fail(png_structp png, png_const_charp text) {
  struct png_job *job = png_get_error_ptr(png);
  snprintf(job->text, sizeof job->text, "%s", text);
  png_longjmp(png, 1);
}

static void no_warning(png_structp png, png_const_charp text) {
  (void)png, (void)text;
}

static void read_bytes(png_structp png, png_bytep to, size_t count) {
  struct png_job *job = png_get_io_ptr(png);
  if (count > job->bytes - job->used) png_error(png, "it ends early");
  memcpy(to, job->data + job->used, count);
  job->used += count;
}

/* Whatever is stored becomes 8-bit RGBA. */
static void convert(png_structp png) {
  png_set_expand(png);
  png_set_scale_16(png);
  png_set_gray_to_rgb(png);
  png_set_add_alpha(png, 255, PNG_FILLER_AFTER);
}

static void decode(struct png_job *job, png_structp png, png_infop info, const char *name,
                   struct image *image) {
  png_set_read_fn(png, job, read_bytes);
  png_set_user_limits(png, IMAGE_MAX_SIDE, IMAGE_MAX_SIDE);
  png_set_chunk_malloc_max(png, 1 << 24);
  png_read_info(png, info);
  job->status = image_create(name, png_get_image_height(png, info), png_get_image_width(png, info), image);
  if (job->status != STATUS_OK) return;
  convert(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  size_t height = (size_t)image->height, width = (size_t)image->width;
  if (png_get_rowbytes(png, info) != 4 * width) png_error(png, "it cannot be converted to RGBA");
  job->rgba = calloc(height * width, 4);
  job->rows = malloc(height * sizeof *job->rows);
  if (!job->rgba || !job->rows) png_error(png, "no memory for its pixels");
  for (size_t y = 0; y < height; y++) job->rows[y] = job->rgba + y * width * 4;
  png_read_image(png, job->rows);
  png_read_end(png, NULL);
  for (size_t i = 0; i < height * width; i++) {
    if (job->rgba[4 * i + 3] != 255) {
      job->status = RAISE(STATUS_INPUT, "%s: pixel (y %zu, x %zu) is transparent; flatten the image first",
                          name, i / width, i % width);
      return;
    }
    memcpy(image->pixels + 3 * i, job->rgba + 4 * i, 3);
  }
}

/* The jump back lands here, in a frame whose variables the decoder does not touch. */
static void attempt(struct png_job *job, png_structp png, png_infop info, const char *name,
                    struct image *image) {
  if (setjmp(png_jmpbuf(png)) == 0)
    decode(job, png, info, name, image);
  else
    job->status = RAISE(STATUS_INPUT, "%s: damaged PNG image: %s", name, job->text);
}

enum status image_png(const char *name, const uint8_t *data, size_t bytes, struct image *image) {
  struct png_job job = {.data = data, .bytes = bytes, .status = STATUS_OK};
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &job, fail, no_warning);
  png_infop info = png ? png_create_info_struct(png) : NULL;
  if (info)
    attempt(&job, png, info, name, image);
  else
    job.status = RAISE(STATUS_INPUT, "%s: libpng cannot be started", name);
  png_destroy_read_struct(&png, &info, NULL);
  free(job.rgba);
  free(job.rows);
  if (job.status != STATUS_OK) {
    free(image->pixels);
    image->pixels = NULL;
  }
  return job.status;
}

#else

enum status image_png(const char *name, const uint8_t *data, size_t bytes, struct image *image) {
  (void)data, (void)bytes, (void)image;
  return RAISE(STATUS_INPUT,
               "%s: PNG images need libpng, which was not there when convoy was built (Debian: "
               "libpng-dev); install it and build again",
               name);
}

#endif
