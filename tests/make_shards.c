/* Rewrites a shard as a user's script might have made it, well or badly, for the whole-program suites.
 *
 * usage: make_shards FROM.h5 TO.h5 [WORD...]
 *   good:  nchw, attributes (keep them; else a plain file), names (of ten classes), labels=u8|i32|i64be,
 * chunk=ROWS, deflate, shuffle, fletcher32, compact, rows=FIRST:COUNT, bgr bad:   float, int16, images=NAME,
 * labels-name=NAME, group, flat, short-labels, label=ROW:VALUE, crop, filter (one that readers lack),
 * classes=N */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hdf5.h>

#include "data/shard_read.h"

enum { STRANGE_FILTER = 32111 };

struct order {
  const char *images, *labels;
  hid_t label_type;
  long chunk, first, count, bad_row, bad_label, classes;
  bool nchw, attributes, names, deflate, shuffle, fletcher32, compact, bgr;
  bool floats, int16, group, flat, short_labels, crop, filter;
};

static void need(bool good, const char *what) {
  if (good) return;
  fprintf(stderr, "make_shards: %s\n", what);
  exit(1);
}

static struct order parse(int argc, char **argv) {
  struct order order = {.images = "images", .labels = "labels", .label_type = H5T_STD_U8LE, .bad_row = -1};
  order.count = -1;
  for (int i = 3; i < argc; i++) {
    const char *word = argv[i], *value = strchr(word, '=');
    value = value ? value + 1 : "";
    const struct {
      const char *name;
      bool *flag;
    } flags[] = {{"nchw", &order.nchw},
                 {"attributes", &order.attributes},
                 {"names", &order.names},
                 {"deflate", &order.deflate},
                 {"shuffle", &order.shuffle},
                 {"fletcher32", &order.fletcher32},
                 {"compact", &order.compact},
                 {"bgr", &order.bgr},
                 {"float", &order.floats},
                 {"int16", &order.int16},
                 {"group", &order.group},
                 {"flat", &order.flat},
                 {"crop", &order.crop},
                 {"filter", &order.filter},
                 {"short-labels", &order.short_labels}};
    bool known = false;
    for (size_t f = 0; f < sizeof flags / sizeof *flags; f++)
      if (strcmp(word, flags[f].name) == 0) known = *flags[f].flag = true;
    if (known) continue;
    if (strncmp(word, "images=", 7) == 0)
      order.images = value;
    else if (strncmp(word, "labels-name=", 12) == 0)
      order.labels = value;
    else if (strcmp(word, "labels=i32") == 0)
      order.label_type = H5T_STD_I32LE;
    else if (strcmp(word, "labels=i64be") == 0)
      order.label_type = H5T_STD_I64BE;
    else if (strcmp(word, "labels=u8") != 0 && sscanf(word, "chunk=%ld", &order.chunk) != 1 &&
             sscanf(word, "rows=%ld:%ld", &order.first, &order.count) != 2 &&
             sscanf(word, "classes=%ld", &order.classes) != 1 &&
             sscanf(word, "label=%ld:%ld", &order.bad_row, &order.bad_label) != 2)
      need(false, word);
  }
  return order;
}

/* A filter that only this program has. */
static size_t pass_through(unsigned flags, size_t count, const unsigned values[], size_t bytes,
                           size_t *capacity, void **buffer) {
  (void)flags, (void)count, (void)values, (void)buffer;
  if (*capacity < bytes) *capacity = bytes;
  return bytes;
}

static hid_t properties_of(const struct order *order, int rank, const hsize_t *dim) {
  hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
  if (order->compact) need(H5Pset_layout(properties, H5D_COMPACT) >= 0, "compact");
  if (order->chunk == 0) return properties;
  hsize_t chunk[4];
  for (int i = 0; i < rank; i++) chunk[i] = i == 0 ? (hsize_t)order->chunk : (dim[i] + 1) / 2;
  need(H5Pset_chunk(properties, rank, chunk) >= 0, "chunk");
  if (order->shuffle) need(H5Pset_shuffle(properties) >= 0, "shuffle");
  if (order->deflate) need(H5Pset_deflate(properties, 6) >= 0, "deflate");
  if (order->fletcher32) need(H5Pset_fletcher32(properties) >= 0, "fletcher32");
  if (order->filter)
    need(H5Pset_filter(properties, STRANGE_FILTER, H5Z_FLAG_MANDATORY, 0, NULL) >= 0, "filter");
  return properties;
}

static void put(hid_t file, const struct order *order, const char *name, hid_t stored, hid_t type, int rank,
                const hsize_t *dim, const void *data) {
  hid_t space = H5Screate_simple(rank, dim, NULL), properties = properties_of(order, rank, dim);
  hid_t set = H5Dcreate2(file, name, stored, space, H5P_DEFAULT, properties, H5P_DEFAULT);
  need(set >= 0, "H5Dcreate2");
  if (dim[0] > 0) need(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0, "H5Dwrite");
  H5Dclose(set);
  H5Pclose(properties);
  H5Sclose(space);
}

static void put_number(hid_t file, const char *name, hid_t type, const void *value) {
  hid_t space = H5Screate(H5S_SCALAR);
  hid_t attribute = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  need(attribute >= 0 && H5Awrite(attribute, type, value) >= 0, "attribute");
  H5Aclose(attribute);
  H5Sclose(space);
}

/* Names of ten classes, in a heap of HDF5's. */
static void put_names(hid_t file) {
  static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
  hsize_t count = 10;
  hid_t space = H5Screate_simple(1, &count, NULL), type = H5Tcopy(H5T_C_S1);
  need(H5Tset_size(type, H5T_VARIABLE) >= 0, "H5Tset_size");
  hid_t attribute = H5Acreate2(file, "classes", type, space, H5P_DEFAULT, H5P_DEFAULT);
  need(attribute >= 0 && H5Awrite(attribute, type, names) >= 0, "names");
  H5Aclose(attribute);
  H5Tclose(type);
  H5Sclose(space);
}

/* The images in the wanted layout, type and size. */
static void put_images(hid_t file, const struct order *order, const struct shard_info *info, long count,
                       const uint8_t *rows) {
  long height = info->height - order->crop, width = info->width, channels = info->channels, at = 0;
  size_t values = (size_t)(count * height * width * channels);
  float *real = malloc((values + 1) * sizeof *real);
  uint8_t *bytes = malloc(values + 1);
  need(real && bytes, "memory");
  for (long n = 0; n < count; n++)
    for (long i = 0; i < height * width * channels; i++, at++) {
      long c = order->nchw ? i / (height * width) : i % channels;
      long p = order->nchw ? i % (height * width) : i / channels;
      if (order->bgr) c = channels - 1 - c;
      bytes[at] = rows[(n * info->height * width + p) * channels + c];
      real[at] = (float)bytes[at] / 255.0f;
    }
  hsize_t nhwc[4] = {(hsize_t)count, (hsize_t)height, (hsize_t)width, (hsize_t)channels};
  hsize_t nchw[4] = {nhwc[0], nhwc[3], nhwc[1], nhwc[2]};
  hsize_t flat[2] = {nhwc[0], (hsize_t)(height * width * channels)};
  hid_t stored = order->floats ? H5T_IEEE_F32LE : order->int16 ? H5T_STD_I16LE : H5T_STD_U8LE;
  put(file, order, order->images, stored, order->floats ? H5T_NATIVE_FLOAT : H5T_NATIVE_UINT8,
      order->flat ? 2 : 4,
      order->flat   ? flat
      : order->nchw ? nchw
                    : nhwc,
      order->floats ? (void *)real : (void *)bytes);
  free(real);
  free(bytes);
}

static void put_labels(hid_t file, const struct order *order, long count, int64_t *labels) {
  if (order->bad_row >= 0) labels[order->bad_row] = order->bad_label;
  hsize_t dim[1] = {(hsize_t)(count - order->short_labels)};
  put(file, order, order->labels, order->label_type, H5T_NATIVE_INT64, 1, dim, labels);
}

int main(int argc, char **argv) {
  need(argc >= 3, "usage: make_shards FROM.h5 TO.h5 [WORD...]");
  static const H5Z_class2_t strange = {.version = H5Z_CLASS_T_VERS,
                                       .id = STRANGE_FILTER,
                                       .encoder_present = 1,
                                       .decoder_present = 1,
                                       .name = "strange",
                                       .filter = pass_through};
  H5Zregister(&strange);
  struct order order = parse(argc, argv);
  struct shard *shard = NULL;
  if (shard_open(argv[1], &shard) != STATUS_OK) need(false, error_message());
  const struct shard_info info = *shard_describe(shard);
  long count = order.count < 0 ? (long)info.count : order.count;
  size_t row_bytes = (size_t)info.height * (size_t)info.width * (size_t)info.channels;
  uint8_t *images = malloc((size_t)count * row_bytes + 1);
  int64_t *labels = malloc(((size_t)count + 1) * sizeof *labels);
  need(images && labels, "memory");
  if (shard_read(shard, order.first, count, images, labels) != STATUS_OK) need(false, error_message());
  shard_close(shard);
  hid_t file = H5Fcreate(argv[2], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  need(file >= 0, "H5Fcreate");
  if (order.group)
    H5Gclose(H5Gcreate2(file, "images", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  else
    put_images(file, &order, &info, count, images);
  put_labels(file, &order, count, labels);
  if (order.attributes) put_number(file, "digest", H5T_NATIVE_UINT64, &info.digest);
  if (order.attributes) order.classes = info.classes;
  if (order.names)
    put_names(file);
  else if (order.classes > 0)
    put_number(file, "classes", H5T_NATIVE_LONG, &order.classes);
  need(H5Fclose(file) >= 0, "H5Fclose");
  free(images);
  free(labels);
  return 0;
}
