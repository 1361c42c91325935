/* JPEG to RGB by libjpeg, with its default (exact integer) transform and smooth upsampling, as other readers
 * do. */
#include "data/image_decode.h"

#ifdef CONVOY_JPEG

#include <setjmp.h>
#include <stdlib.h>

#include <jpeglib.h>

struct jpeg_failure {
  struct jpeg_error_mgr manager; /* first: libjpeg hands back its address */
  jmp_buf jump;
  char text[JMSG_LENGTH_MAX];
};

/* libjpeg warns and invents pixels where data is damaged or ends early: to us that is an error too. */
static void fail(j_common_ptr common) {
  struct jpeg_failure *failure = (struct jpeg_failure *)(void *)common->err;
  common->err->format_message(common, failure->text);
  longjmp(failure->jump, 1);
}

static void message(j_common_ptr common, int level) {
  if (level < 0) fail(common);
}

static void no_output(j_common_ptr common) {
  (void)common;
}

/* Adobe's files hold inverted values, so that each is already "255 - ink". */
static void cmyk_to_rgb(const JSAMPLE *from, int width, int inverted, uint8_t *to) {
  for (int x = 0; x < width; x++, from += 4, to += 3)
    for (int c = 0; c < 3; c++) {
      int light = inverted ? from[c] : 255 - from[c], black = inverted ? from[3] : 255 - from[3];
      to[c] = (uint8_t)((light * black + 127) / 255);
    }
}

struct jpeg_job {
  struct jpeg_decompress_struct decoder;
  struct jpeg_failure failure;
  uint8_t *line; /* owned: one row of CMYK */
  enum status status;
};

static void decode(struct jpeg_job *job, const char *name, const uint8_t *data, size_t bytes,
                   struct image *image) {
  struct jpeg_decompress_struct *decoder = &job->decoder;
  jpeg_mem_src(decoder, data, (unsigned long)bytes);
  jpeg_read_header(decoder, TRUE);
  int cmyk = decoder->jpeg_color_space == JCS_CMYK || decoder->jpeg_color_space == JCS_YCCK;
  decoder->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  job->status = image_create(name, decoder->image_height, decoder->image_width, image);
  if (job->status != STATUS_OK) return;
  jpeg_start_decompress(decoder);
  if (cmyk) job->line = malloc((size_t)image->width * 4);
  if (cmyk && !job->line) {
    job->status = RAISE(STATUS_INPUT, "%s: no memory for its pixels", name);
    return;
  }
  while (decoder->output_scanline < decoder->output_height) {
    uint8_t *row = image->pixels + (size_t)decoder->output_scanline * (size_t)image->width * 3;
    JSAMPROW target = cmyk ? job->line : row;
    jpeg_read_scanlines(decoder, &target, 1);
    if (cmyk) cmyk_to_rgb(job->line, image->width, decoder->saw_Adobe_marker, row);
  }
  jpeg_finish_decompress(decoder);
}

/* The jump back lands here, in a frame whose variables the decoder does not touch. */
static void attempt(struct jpeg_job *job, const char *name, const uint8_t *data, size_t bytes,
                    struct image *image) {
  if (setjmp(job->failure.jump) == 0) {
    jpeg_create_decompress(&job->decoder);
    decode(job, name, data, bytes, image);
  } else {
    job->status = RAISE(STATUS_INPUT, "%s: damaged JPEG image: %s", name, job->failure.text);
  }
}

enum status image_jpeg(const char *name, const uint8_t *data, size_t bytes, struct image *image) {
  struct jpeg_job job = {.status = STATUS_OK};
  job.decoder.err = jpeg_std_error(&job.failure.manager);
  job.failure.manager.error_exit = fail;
  job.failure.manager.emit_message = message;
  job.failure.manager.output_message = no_output;
  attempt(&job, name, data, bytes, image);
  jpeg_destroy_decompress(&job.decoder);
  free(job.line);
  if (job.status != STATUS_OK) {
    free(image->pixels);
    image->pixels = NULL;
  }
  return job.status;
}

#else

enum status image_jpeg(const char *name, const uint8_t *data, size_t bytes, struct image *image) {
  (void)data, (void)bytes, (void)image;
  return RAISE(STATUS_INPUT,
               "%s: JPEG images need libjpeg, which was not there when convoy was built (Debian: "
               "libjpeg-dev); install it and build again",
               name);
}

#endif
