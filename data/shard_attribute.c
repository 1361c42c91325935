/* The attributes of a shard: format, classes and digest; see shard_hdf5.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/shard_hdf5.h"

/* Reads a string attribute of `count` elements, of fixed or variable length, and hands each to text[i]
 * (capacity DATASET_CLASS_NAME each, longer ones are refused). */
static enum status read_strings(const struct shard_file *shard, const char *name, hid_t attribute,
                                hsize_t count, char (*text)[DATASET_CLASS_NAME]) {
  hid_t type = H5Aget_type(attribute), memory = H5Tcopy(type);
  bool variable = H5Tis_variable_str(type) > 0;
  size_t width = variable ? sizeof(char *) : H5Tget_size(type);
  char *data = calloc(count ? count : 1, width);
  hid_t space = H5Aget_space(attribute);
  enum status status = STATUS_OK;
  char reason[256];
  bool read = data && H5Aread(attribute, memory, data) >= 0;
  if (!read) {
    status = RAISE(STATUS_INPUT, "%s: attribute '%s' cannot be read: %s", shard->path, name,
                   data ? shard_reason(reason, sizeof reason) : "no memory");
    goto out;
  }
  for (hsize_t i = 0; i < count; i++) {
    const char *from = data + i * width;
    if (variable) memcpy(&from, data + i * width, sizeof from);
    size_t length = from ? (variable ? strlen(from) : strnlen(from, width)) : 0;
    if (length >= DATASET_CLASS_NAME) {
      status = RAISE(STATUS_INPUT, "%s: attribute '%s', entry %llu: %zu bytes, expected at most %d",
                     shard->path, name, (unsigned long long)i, length, DATASET_CLASS_NAME - 1);
      break;
    }
    if (length) memcpy(text[i], from, length);
    text[i][length] = '\0';
  }
out:
  if (read && variable) H5Dvlen_reclaim(memory, space, H5P_DEFAULT, data);
  free(data);
  H5Sclose(space);
  H5Tclose(memory);
  H5Tclose(type);
  return status;
}

/* Opens an attribute of the file's root: its class and number of elements; *attribute < 0 if it is not there.
 */
static void open_attribute(const struct shard_file *shard, const char *name, hid_t *attribute,
                           H5T_class_t *kind, int64_t *count) {
  *attribute = H5I_INVALID_HID;
  *kind = H5T_NO_CLASS;
  *count = 0;
  if (H5Aexists(shard->file, name) <= 0) return;
  *attribute = H5Aopen(shard->file, name, H5P_DEFAULT);
  if (*attribute < 0) return;
  hid_t type = H5Aget_type(*attribute), space = H5Aget_space(*attribute);
  *kind = H5Tget_class(type);
  *count = H5Sget_simple_extent_npoints(space);
  H5Sclose(space);
  H5Tclose(type);
}

static enum status read_format(struct shard_file *shard) {
  hid_t attribute;
  H5T_class_t kind;
  int64_t count;
  char format[1][DATASET_CLASS_NAME] = {""};
  open_attribute(shard, "format", &attribute, &kind, &count);
  if (attribute < 0) return STATUS_OK;
  enum status status = STATUS_OK;
  if (kind == H5T_STRING && count == 1) status = read_strings(shard, "format", attribute, 1, format);
  H5Aclose(attribute);
  if (status != STATUS_OK) return status;
  if (strcmp(format[0], SHARD_FORMAT) != 0)
    return RAISE(STATUS_INPUT, "%s: format '%s', expected '%s'; a newer version may read it", shard->path,
                 format[0], SHARD_FORMAT);
  return STATUS_OK;
}

static enum status read_classes(struct shard_file *shard) {
  hid_t attribute;
  H5T_class_t kind;
  int64_t count, classes = 0;
  open_attribute(shard, "classes", &attribute, &kind, &count);
  if (attribute < 0) return STATUS_OK;
  bool good = true;
  if (kind == H5T_STRING)
    classes = count;
  else
    good = kind == H5T_INTEGER && count == 1 && H5Aread(attribute, H5T_NATIVE_INT64, &classes) >= 0;
  H5Aclose(attribute);
  if (!good || classes < 1 || classes > DATASET_MAX_CLASSES)
    return RAISE(STATUS_INPUT, "%s: attribute 'classes' gives %lld, expected 1..%d names or their number",
                 shard->path, (long long)classes, DATASET_MAX_CLASSES);
  shard->info.classes = (int32_t)classes;
  shard->info.named = kind == H5T_STRING;
  return STATUS_OK;
}

static enum status read_digest(struct shard_file *shard) {
  hid_t attribute;
  H5T_class_t kind;
  int64_t count;
  open_attribute(shard, "digest", &attribute, &kind, &count);
  if (attribute < 0) return STATUS_OK;
  bool good =
      kind == H5T_INTEGER && count == 1 && H5Aread(attribute, H5T_NATIVE_UINT64, &shard->info.digest) >= 0;
  H5Aclose(attribute);
  if (!good) return RAISE(STATUS_INPUT, "%s: attribute 'digest' is not one 64-bit integer", shard->path);
  shard->info.has_digest = 1;
  return STATUS_OK;
}

/* Only told, so one of another form is not a fault. */
static bool read_channels(struct shard_file *shard, const char *name, double value[4]) {
  hid_t attribute;
  H5T_class_t kind;
  int64_t count;
  open_attribute(shard, name, &attribute, &kind, &count);
  if (attribute < 0) return false;
  bool good = kind == H5T_FLOAT && count == shard->info.channels && count <= 4 &&
              H5Aread(attribute, H5T_NATIVE_DOUBLE, value) >= 0;
  H5Aclose(attribute);
  return good;
}

enum status shard_attributes(struct shard_file *shard) {
  TRY(read_format(shard));
  TRY(read_classes(shard));
  TRY(read_digest(shard));
  struct shard_info *info = &shard->info;
  info->has_moments = read_channels(shard, "mean", info->mean) && read_channels(shard, "std", info->std);
  return STATUS_OK;
}

enum status shard_class_names(struct shard_file *shard, char (*name)[DATASET_CLASS_NAME]) {
  hid_t attribute;
  H5T_class_t kind;
  int64_t count;
  open_attribute(shard, "classes", &attribute, &kind, &count);
  if (attribute < 0 || kind != H5T_STRING || count != shard->info.classes)
    return RAISE(STATUS_INTERNAL, "%s: class names asked for, but it has none", shard->path);
  enum status status = read_strings(shard, "classes", attribute, (hsize_t)count, name);
  H5Aclose(attribute);
  for (int64_t c = 0; c < count && status == STATUS_OK; c++)
    for (const char *at = name[c]; *at && status == STATUS_OK; at++)
      if ((unsigned char)*at < ' ' || *at == 127) /* lists of names are lines */
        status =
            RAISE(STATUS_INPUT, "%s: attribute 'classes': control character %d in the name of class %lld",
                  shard->path, *at, (long long)c);
  return status;
}
