/* Finding, reading and fitting image files; see predict_image.h. */
#include "app/predict_image.h"

#include <errno.h>
#include <fts.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "app/input.h"
#include "data/image_decode.h"

enum { MAX_BYTES = 1 << 28 };

/* ---- lists ---- */

static enum status append(struct predict_list *list, const char *path) {
  if (list->count == list->capacity) {
    int64_t capacity = 2 * list->capacity + 16;
    char **grown = realloc((void *)list->path, (size_t)capacity * sizeof *grown);
    if (!grown) return RAISE(STATUS_INPUT, "no memory for %lld names", (long long)capacity);
    list->path = grown;
    list->capacity = capacity;
  }
  list->path[list->count] = strdup(path);
  if (!list->path[list->count]) return RAISE(STATUS_INPUT, "no memory for a name");
  list->count++;
  return STATUS_OK;
}

static bool is_image_name(const char *name) {
  static const char *const endings[] = {".jpg", ".jpeg", ".png"};
  const char *dot = strrchr(name, '.');
  for (int i = 0; dot && i < 3; i++)
    if (strcasecmp(dot, endings[i]) == 0) return true;
  return false;
}

static int by_name(const FTSENT **a, const FTSENT **b) {
  return strcmp((*a)->fts_name, (*b)->fts_name);
}

static enum status visit(FTS *walk, FTSENT *entry, struct predict_list *list) {
  if (entry->fts_level > 0 && entry->fts_name[0] == '.') {
    fts_set(walk, entry, FTS_SKIP);
    return STATUS_OK;
  }
  if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_NS || entry->fts_info == FTS_ERR)
    return RAISE(STATUS_INPUT, "%s cannot be read: %s", entry->fts_path, strerror(entry->fts_errno));
  if (entry->fts_info != FTS_F || !is_image_name(entry->fts_name)) return STATUS_OK;
  return append(list, entry->fts_path);
}

static enum status add_folder(struct predict_list *list, const char *path) {
  int64_t before = list->count;
  enum status status = STATUS_OK;
  char *root = strdup(path);
  if (!root) return RAISE(STATUS_INPUT, "no memory for a path");
  for (size_t length = strlen(root); length > 1 && root[length - 1] == '/';) root[--length] = '\0';
  FTS *walk = fts_open((char *[]){root, NULL}, FTS_LOGICAL | FTS_NOCHDIR, by_name);
  if (!walk) TRY_OUT(RAISE(STATUS_INPUT, "folder %s cannot be read: %s", path, strerror(errno)));
  for (FTSENT *entry; errno = 0, (entry = fts_read(walk)) != NULL;) TRY_OUT(visit(walk, entry, list));
  if (errno != 0) TRY_OUT(RAISE(STATUS_INPUT, "folder %s cannot be read: %s", path, strerror(errno)));
  if (list->count == before)
    TRY_OUT(RAISE(STATUS_INPUT, "folder %s has no files that end in .jpg, .jpeg or .png", path));
out:
  if (walk) fts_close(walk);
  free(root);
  return status;
}

enum status predict_list_add(struct predict_list *list, const char *path) {
  struct stat info;
  if (stat(path, &info) != 0) return RAISE(STATUS_INPUT, "%s cannot be read: %s", path, strerror(errno));
  return S_ISDIR(info.st_mode) ? add_folder(list, path) : append(list, path);
}

void predict_list_destroy(struct predict_list *list) {
  for (int64_t i = 0; i < list->count; i++) free(list->path[i]);
  free((void *)list->path);
  *list = (struct predict_list){0};
}

/* ---- one image ---- */

static enum status read_file(const char *path, uint8_t **data, size_t *bytes) {
  enum status status = STATUS_OK;
  char reason[INPUT_REASON];
  int64_t size;
  FILE *file = input_open(path, &size, reason);
  *data = NULL;
  if (!file) TRY_OUT(RAISE(STATUS_INPUT, "%s cannot be read: %s", path, reason));
  if (size > MAX_BYTES)
    TRY_OUT(RAISE(STATUS_INPUT, "%s has %lld bytes, expected at most %d", path, (long long)size, MAX_BYTES));
  *bytes = (size_t)size;
  *data = malloc(*bytes + 1);
  if (!*data) TRY_OUT(RAISE(STATUS_INPUT, "%s: no memory for its %zu bytes", path, *bytes));
  if (fread(*data, 1, *bytes, file) != *bytes) {
    free(*data);
    TRY_OUT(RAISE(STATUS_INPUT, "%s cannot be read whole", path));
  }
out:
  if (file) fclose(file);
  return status;
}

/* One line of `from` pixels (3 values each, `step` values apart) to `to` pixels. */
static void resample(const float *source, int from, int step_from, float *target, int to, int step_to) {
  double scale = (double)from / to, support = scale > 1 ? scale : 1;
  for (int t = 0; t < to; t++) {
    double centre = (t + 0.5) * scale, weight_sum = 0, sum[3] = {0};
    int first = (int)fmax(0, floor(centre - support)), last = (int)fmin(from, ceil(centre + support));
    for (int s = first; s < last; s++) {
      double weight = 1 - fabs(s + 0.5 - centre) / support;
      if (weight <= 0) continue;
      weight_sum += weight;
      for (int c = 0; c < 3; c++)
        sum[c] += weight * (double)source[(size_t)s * (size_t)step_from + (size_t)c];
    }
    for (int c = 0; c < 3; c++)
      target[(size_t)t * (size_t)step_to + (size_t)c] = (float)(sum[c] / weight_sum);
  }
}

/* Resamples columns into height x image->width, then rows into height x width. */
static enum status fit(struct image *image, int height, int width) {
  size_t values = (size_t)image->height * (size_t)image->width * 3;
  size_t between = (size_t)height * (size_t)image->width * 3, last = (size_t)height * (size_t)width * 3;
  float *memory = malloc((values + between + last) * sizeof *memory);
  uint8_t *pixels = malloc(last);
  if (!memory || !pixels) {
    free(memory);
    free(pixels);
    return RAISE(STATUS_INPUT, "no memory to resample an image of %dx%d", image->height, image->width);
  }
  float *columns = memory + values, *rows = columns + between;
  for (size_t i = 0; i < values; i++) memory[i] = image->pixels[i];
  for (int x = 0; x < image->width; x++)
    resample(memory + 3 * x, image->height, 3 * image->width, columns + 3 * x, height, 3 * image->width);
  for (int y = 0; y < height; y++)
    resample(columns + (size_t)y * 3 * (size_t)image->width, image->width, 3,
             rows + (size_t)y * 3 * (size_t)width, width, 3);
  for (size_t i = 0; i < last; i++) pixels[i] = (uint8_t)lrintf(rows[i]);
  free(memory);
  free(image->pixels);
  *image = (struct image){.height = height, .width = width, .pixels = pixels};
  return STATUS_OK;
}

static void take_pixels(const struct image *image, int channels, uint8_t *pixels) {
  size_t count = (size_t)image->height * (size_t)image->width;
  for (size_t i = 0; i < count; i++) {
    const uint8_t *rgb = image->pixels + 3 * i;
    if (channels == 3)
      memcpy(pixels + 3 * i, rgb, 3);
    else
      pixels[i] = (uint8_t)((299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2] + 500) / 1000);
  }
}

enum status predict_image(const char *path, int height, int width, int channels, uint8_t *pixels) {
  uint8_t *data;
  size_t bytes;
  struct image image = {0};
  if (channels != 1 && channels != 3)
    return RAISE(STATUS_INPUT, "the model takes images of %d channels; files give 1 or 3", channels);
  TRY(read_file(path, &data, &bytes));
  enum status status = image_decode(path, data, bytes, &image);
  free(data);
  if (status == STATUS_OK && (image.height != height || image.width != width))
    status = fit(&image, height, width);
  if (status == STATUS_OK) take_pixels(&image, channels, pixels);
  free(image.pixels);
  return status;
}
