/* Opening and checking one shard by HDF5; see shard_hdf5.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/shard_hdf5.h"

enum { MAX_CHUNK_BYTES = 1 << 28 };

static enum status refuse_open(const char *path, long long bytes, const char *reason) {
  const char *stored = strstr(reason, "stored_eof = ");
  if (strstr(reason, "truncated file") && stored)
    return RAISE(STATUS_INPUT, "%s is truncated: %lld of %lld bytes; copy the file again", path, bytes,
                 strtoll(stored + strlen("stored_eof = "), NULL, 10));
  if (strstr(reason, "signature not found"))
    return RAISE(STATUS_INPUT, "%s is not an HDF5 file (%lld bytes)", path, bytes);
  if (strstr(reason, "lock"))
    return RAISE(STATUS_INPUT, "%s: file locking refused (%s); set HDF5_USE_FILE_LOCKING=FALSE", path,
                 reason);
  return RAISE(STATUS_INPUT, "%s cannot be opened as HDF5: %s", path, reason);
}

/* Read-only and without locks: a lock that the file system refuses must not stop a reader. A value that the
 * user set in HDF5_USE_FILE_LOCKING overrides this. */
static hid_t open_file(const char *path, char *reason, size_t capacity) {
  hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  if (access < 0) return access;
#if (H5_VERS_MAJOR == 1 && H5_VERS_MINOR == 10 && H5_VERS_RELEASE >= 7) || H5_VERSION_GE(1, 12, 1)
  H5Pset_file_locking(access, false, true);
#endif
  hid_t file = H5Fopen(path, H5F_ACC_RDONLY, access);
  if (file < 0) shard_reason(reason, capacity); /* before a further call forgets it */
  H5Pclose(access);
  return file;
}

/* The names in the root group, "images, labels", cut where text is full. */
static void list_names(hid_t file, char *text, size_t capacity) {
  H5G_info_t group;
  size_t used = 0;
  snprintf(text, capacity, "nothing");
  if (H5Gget_info(file, &group) < 0) return;
  for (hsize_t i = 0; i < group.nlinks && i < 20; i++) {
    char name[128];
    if (H5Lget_name_by_idx(file, ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name, H5P_DEFAULT) < 0)
      return;
    int written = snprintf(text + used, capacity - used, "%s'%s'", i ? ", " : "", name);
    if (written < 0 || (size_t)written >= capacity - used) return;
    used += (size_t)written;
  }
}

static enum status check_filters(const char *path, const char *name, hid_t properties) {
  int count = H5Pget_nfilters(properties);
  for (int i = 0; i < count; i++) {
    unsigned flags, config;
    size_t values = 0;
    char filter_name[64] = "";
    H5Z_filter_t filter = H5Pget_filter2(properties, (unsigned)i, &flags, &values, NULL, sizeof filter_name,
                                         filter_name, &config);
    if (filter >= 0 && H5Zfilter_avail(filter) > 0) continue;
    return RAISE(
        STATUS_INPUT,
        "%s: data set '%s' needs HDF5 filter %d (%s), which is not available; set HDF5_PLUGIN_PATH to its "
        "plugin's folder, or rewrite the file without it",
        path, name, (int)filter, filter_name[0] ? filter_name : "unnamed");
  }
  return STATUS_OK;
}

static enum status open_dataset(struct shard_file *shard, const char *name, hid_t *dataset) {
  const char *path = shard->path;
  char text[512];
  if (H5Lexists(shard->file, name, H5P_DEFAULT) <= 0) {
    list_names(shard->file, text, sizeof text);
    return RAISE(STATUS_INPUT, "%s has no data set '%s' (found: %s)", path, name, text);
  }
  hid_t object = H5Oopen(shard->file, name, H5P_DEFAULT);
  if (object < 0)
    return RAISE(STATUS_INPUT, "%s: '%s' cannot be opened: %s", path, name, shard_reason(text, sizeof text));
  if (H5Iget_type(object) != H5I_DATASET) {
    const char *found = H5Iget_type(object) == H5I_GROUP ? "a group" : "a named type";
    H5Oclose(object);
    return RAISE(STATUS_INPUT, "%s: '%s' is %s, expected a data set", path, name, found);
  }
  *dataset = object;
  return STATUS_OK;
}

/* Writes e.g. "float32" or "uint8". */
static void type_text(hid_t type, char *text, size_t capacity) {
  static const char *const kinds[] = {"int",      "float",     "time", "string", "bitfield", "opaque",
                                      "compound", "reference", "enum", "vlen",   "array"};
  H5T_class_t kind = H5Tget_class(type);
  if (kind < 0 || kind > H5T_ARRAY)
    snprintf(text, capacity, "an unknown type");
  else if (kind == H5T_INTEGER || kind == H5T_FLOAT)
    snprintf(text, capacity, "%s%s%zu", kind == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_NONE ? "u" : "",
             kinds[kind], 8 * H5Tget_size(type));
  else
    snprintf(text, capacity, "%s", kinds[kind]);
}

static enum status check_type(const struct shard_file *shard, const char *name, hid_t dataset, bool bytes) {
  hid_t type = H5Dget_type(dataset);
  bool good = H5Tget_class(type) == H5T_INTEGER &&
              (bytes ? H5Tget_size(type) == 1 && H5Tget_sign(type) == H5T_SGN_NONE : H5Tget_size(type) <= 8);
  char found[32];
  type_text(type, found, sizeof found);
  H5Tclose(type);
  if (good) return STATUS_OK;
  return RAISE(STATUS_INPUT, "%s: data set '%s' is %s, expected %s", shard->path, name, found,
               bytes ? "uint8 (pixels 0..255)" : "an integer type of at most 64 bits");
}

/* The dimensions of a data set and as text "(50,32,32,3)"; a rank above 4 gives rank 5. */
static int get_shape(hid_t dataset, hsize_t dim[4], char *text, size_t capacity) {
  hid_t space = H5Dget_space(dataset);
  hsize_t all[H5S_MAX_RANK] = {0};
  int rank = H5Sget_simple_extent_dims(space, all, NULL);
  size_t used = (size_t)snprintf(text, capacity, "(");
  for (int i = 0; i < rank && used < capacity; i++)
    used +=
        (size_t)snprintf(text + used, capacity - used, "%s%llu", i ? "," : "", (unsigned long long)all[i]);
  if (used < capacity) snprintf(text + used, capacity - used, ")");
  for (int i = 0; i < 4; i++) dim[i] = all[i];
  H5Sclose(space);
  return rank > 4 ? 5 : rank;
}

static enum status check_images(struct shard_file *shard) {
  struct shard_info *info = &shard->info;
  hsize_t dim[4];
  char shape[96];
  int rank = get_shape(shard->images, dim, shape, sizeof shape);
  bool last = dim[3] == 1 || dim[3] == 3, second = dim[1] == 1 || dim[1] == 3;
  bool good = rank == 4 && (last || second || dim[3] == 2 || dim[3] == 4);
  for (int i = 1; i < 4 && good; i++) good = dim[i] > 0 && dim[i] <= SHARD_IMAGE_BYTES;
  if (!good || dim[1] * dim[2] > SHARD_IMAGE_BYTES || dim[1] * dim[2] * dim[3] > SHARD_IMAGE_BYTES)
    return RAISE(STATUS_INPUT,
                 "%s: data set 'images' has shape %s, expected (N,H,W,C) or (N,C,H,W) with 1 or 3 channels",
                 shard->path, shape);
  if (dim[0] > UINT32_MAX)
    return RAISE(STATUS_INPUT, "%s: data set 'images' has shape %s, expected at most %u images", shard->path,
                 shape, UINT32_MAX);
  info->planar = !last && second;
  info->count = (int64_t)dim[0];
  info->height = (int32_t)dim[info->planar ? 2 : 1];
  info->width = (int32_t)dim[info->planar ? 3 : 2];
  info->channels = (int32_t)dim[info->planar ? 1 : 3];
  info->chunk_rows = 1;
  TRY(check_type(shard, "images", shard->images, true));
  hid_t properties = H5Dget_create_plist(shard->images);
  hsize_t chunk[4];
  if (H5Pget_layout(properties) == H5D_CHUNKED && H5Pget_chunk(properties, 4, chunk) == 4)
    info->chunk_rows = (int64_t)chunk[0];
  info->compressed = H5Pget_nfilters(properties) > 0;
  enum status status = check_filters(shard->path, "images", properties);
  H5Pclose(properties);
  return status;
}

static enum status check_labels(struct shard_file *shard) {
  hsize_t dim[4];
  char shape[96];
  int rank = get_shape(shard->labels, dim, shape, sizeof shape);
  if (rank != 1 && !(rank == 2 && dim[1] == 1))
    return RAISE(STATUS_INPUT, "%s: data set 'labels' has shape %s, expected (N)", shard->path, shape);
  TRY(check_type(shard, "labels", shard->labels, false));
  bool known = shard->info.height > 0; /* of the images; else they were refused */
  if (known && (int64_t)dim[0] != shard->info.count)
    return RAISE(STATUS_INPUT, "%s: %lld images but %lld labels", shard->path, (long long)shard->info.count,
                 (long long)dim[0]);
  hid_t properties = H5Dget_create_plist(shard->labels);
  enum status status = check_filters(shard->path, "labels", properties);
  H5Pclose(properties);
  return status;
}

static enum status open_hdf5(const char *path, struct shard_file **opened) {
  struct stat file;
  if (stat(path, &file) != 0) return RAISE(STATUS_INPUT, "%s cannot be opened: %s", path, strerror(errno));
  if (!S_ISREG(file.st_mode))
    return RAISE(STATUS_INPUT, "%s is %s, expected an HDF5 file", path,
                 S_ISDIR(file.st_mode) ? "a folder" : "not a regular file");
  if (file.st_size == 0) return RAISE(STATUS_INPUT, "%s is empty (0 bytes); copy the file again", path);
  struct shard_file *shard = calloc(1, sizeof *shard);
  if (!shard) return RAISE(STATUS_INPUT, "no memory to open %s", path);
  shard->file = shard->images = shard->labels = H5I_INVALID_HID;
  snprintf(shard->path, sizeof shard->path, "%s", path);
  shard->info.file_bytes = (int64_t)file.st_size;
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  char reason[256] = "out of memory";
  shard->file = open_file(path, reason, sizeof reason);
  if (shard->file < 0) {
    shard_file_close(shard);
    return refuse_open(path, (long long)file.st_size, reason);
  }
  *opened = shard;
  return STATUS_OK;
}

/* Where a data set begins in the file; -1 where it does not lie there in one piece. */
static int64_t place_of(hid_t dataset) {
  hid_t properties = H5Dget_create_plist(dataset);
  bool whole = H5Pget_layout(properties) == H5D_CONTIGUOUS && H5Pget_external_count(properties) == 0;
  haddr_t offset = whole ? H5Dget_offset(dataset) : HADDR_UNDEF;
  H5Pclose(properties);
  return offset == HADDR_UNDEF || offset > INT64_MAX ? -1 : (int64_t)offset;
}

/* A data set that was created but not filled, or whose file was cut, must not pass for zeros: of a contiguous
 * one all bytes are in the file, of a chunked one every chunk was written, none too large to be unpacked. */
static enum status check_storage(const struct shard_file *shard, const char *name, hid_t dataset) {
  hid_t properties = H5Dget_create_plist(dataset), space = H5Dget_space(dataset), type = H5Dget_type(dataset);
  hsize_t dim[H5S_MAX_RANK] = {0}, chunk[H5S_MAX_RANK] = {0}, needed = 1, found = 0,
          bytes = H5Tget_size(type);
  int rank = H5Sget_simple_extent_dims(space, dim, NULL);
  enum status status = STATUS_OK;
  if (H5Pget_layout(properties) == H5D_CHUNKED && H5Pget_chunk(properties, rank, chunk) == rank) {
    for (int i = 0; i < rank; i++) {
      needed *= dim[i] / chunk[i] + (dim[i] % chunk[i] > 0);
      bytes = chunk[i] > MAX_CHUNK_BYTES || bytes > MAX_CHUNK_BYTES ? MAX_CHUNK_BYTES + 1 : bytes * chunk[i];
    }
    if (bytes > MAX_CHUNK_BYTES)
      status = RAISE(STATUS_INPUT,
                     "%s: data set '%s' has chunks of more than %d MiB; rewrite it with smaller ones",
                     shard->path, name, MAX_CHUNK_BYTES >> 20);
    else if (H5Dget_num_chunks(dataset, space, &found) < 0 || found < needed)
      status = RAISE(STATUS_INPUT, "%s: data set '%s': %llu of %llu chunks were written; make the file again",
                     shard->path, name, (unsigned long long)found, (unsigned long long)needed);
  } else if (dim[0] > 0 && H5Dget_storage_size(dataset) == 0) {
    status =
        RAISE(STATUS_INPUT, "%s: data set '%s' was never written; make the file again", shard->path, name);
  }
  H5Tclose(type);
  H5Sclose(space);
  H5Pclose(properties);
  return status;
}

/* Lets the rows be read without HDF5 where they lie in the file as they are. */
static enum status find_rows(struct shard_file *shard) {
  struct shard_info *info = &shard->info;
  hid_t type = H5Dget_type(shard->labels);
  size_t bytes = H5Tget_size(type);
  bool plain = H5Tget_precision(type) == 8 * bytes && bytes <= 8;
  info->label_bytes = (int32_t)bytes;
  info->label_signed = H5Tget_sign(type) != H5T_SGN_NONE;
  info->label_big_endian = H5Tget_order(type) == H5T_ORDER_BE;
  H5Tclose(type);
  info->image_offset = place_of(shard->images);
  info->label_offset = place_of(shard->labels);
  info->contiguous = plain && info->image_offset >= 0 && info->label_offset >= 0;
  if (!info->contiguous) return STATUS_OK;
  int64_t row_bytes = (int64_t)info->height * info->width * info->channels;
  if (info->count * row_bytes > info->file_bytes - info->image_offset ||
      info->count * info->label_bytes > info->file_bytes - info->label_offset)
    return RAISE(STATUS_INPUT, "%s: its rows reach beyond its %lld bytes; copy the file again", shard->path,
                 (long long)info->file_bytes);
  return STATUS_OK;
}

static enum status find_images(struct shard_file *shard) {
  TRY(open_dataset(shard, "images", &shard->images));
  TRY(check_images(shard));
  return check_storage(shard, "images", shard->images);
}

static enum status find_labels(struct shard_file *shard) {
  TRY(open_dataset(shard, "labels", &shard->labels));
  TRY(check_labels(shard));
  return check_storage(shard, "labels", shard->labels);
}

void shard_file_open(const char *path, void (*fault)(void *context, enum status status), void *context,
                     struct shard_file **opened) {
  static enum status (*const parts[])(struct shard_file *) = {find_images, find_labels, shard_attributes};
  struct shard_file *shard = NULL;
  *opened = NULL;
  enum status status = open_hdf5(path, &shard), worst = status;
  if (status != STATUS_OK) fault(context, status);
  for (size_t i = 0; shard && i < sizeof parts / sizeof *parts; i++) {
    status = parts[i](shard);
    if (status == STATUS_OK) continue;
    fault(context, status);
    worst = status;
  }
  if (worst == STATUS_OK && (worst = find_rows(shard)) != STATUS_OK) fault(context, worst);
  if (worst == STATUS_OK)
    *opened = shard;
  else
    shard_file_close(shard);
}

void shard_file_close(struct shard_file *shard) {
  if (!shard) return;
  if (shard->images >= 0) H5Dclose(shard->images);
  if (shard->labels >= 0) H5Dclose(shard->labels);
  if (shard->file >= 0) H5Fclose(shard->file);
  free(shard);
}
