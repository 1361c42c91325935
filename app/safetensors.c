/* Reading safetensors; see safetensors.h. */
#include "app/safetensors.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/input.h"

enum { PREFIX = 8, MAX_HEADER = 100 << 20 /* as the format's own reader */ };

struct safetensors {
  char *path;
  uint8_t *bytes;
  size_t count;
  const uint8_t *data; /* behind the header */
  size_t data_count;
  cJSON *header;
};

/* ---- opening ---- */

static enum status read_bytes(struct safetensors *file) {
  enum status status = STATUS_OK;
  char reason[INPUT_REASON];
  int64_t bytes;
  FILE *stream = input_open(file->path, &bytes, reason);
  if (!stream) TRY_OUT(RAISE(STATUS_INPUT, "%s cannot be read: %s", file->path, reason));
  file->count = (size_t)bytes;
  file->bytes = malloc(file->count + 1);
  if (!file->bytes) TRY_OUT(RAISE(STATUS_INPUT, "%s: no memory for its %zu bytes", file->path, file->count));
  if (fread(file->bytes, 1, file->count, stream) != file->count)
    TRY_OUT(RAISE(STATUS_INPUT, "%s cannot be read whole", file->path));
out:
  if (stream) fclose(stream);
  return status;
}

static enum status read_header(struct safetensors *file) {
  uint64_t length = 0;
  for (size_t i = 0; i < PREFIX && i < file->count; i++) length |= (uint64_t)file->bytes[i] << 8 * i;
  if (file->count < PREFIX || length > MAX_HEADER || length > file->count - PREFIX)
    return RAISE(STATUS_INPUT, "%s is no safetensors file, or it is truncated (%zu bytes)", file->path,
                 file->count);
  file->header = cJSON_ParseWithLength((const char *)file->bytes + PREFIX, (size_t)length);
  if (!cJSON_IsObject(file->header))
    return RAISE(STATUS_INPUT, "%s is no safetensors file: its header is not a JSON object", file->path);
  file->data = file->bytes + PREFIX + length;
  file->data_count = file->count - PREFIX - (size_t)length;
  return STATUS_OK;
}

enum status safetensors_open(const char *path, struct safetensors **out) {
  enum status status = STATUS_OK;
  struct safetensors *file = calloc(1, sizeof *file);
  if (!file) return RAISE(STATUS_INPUT, "no memory for %s", path);
  file->path = strdup(path);
  if (!file->path) TRY_OUT(RAISE(STATUS_INPUT, "no memory for %s", path));
  TRY_OUT(read_bytes(file));
  TRY_OUT(read_header(file));
out:
  if (status == STATUS_OK)
    *out = file;
  else
    safetensors_close(file);
  return status;
}

void safetensors_close(struct safetensors *file) {
  if (!file) return;
  cJSON_Delete(file->header);
  free(file->bytes);
  free(file->path);
  free(file);
}

const char *safetensors_metadata(const struct safetensors *file, const char *name) {
  const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(file->header, "__metadata__");
  return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(metadata, name));
}

/* ---- arrays ---- */

static const cJSON *find(const struct safetensors *file, const char *name) {
  char wrapped[256];
  const cJSON *entry = cJSON_GetObjectItemCaseSensitive(file->header, name);
  snprintf(wrapped, sizeof wrapped, "module.%s", name);
  return entry ? entry : cJSON_GetObjectItemCaseSensitive(file->header, wrapped);
}

/* A number that is a whole one from 0 to 2^53. */
static bool whole(const cJSON *number, double *value) {
  if (!cJSON_IsNumber(number)) return false;
  *value = number->valuedouble;
  return *value >= 0 && *value <= 0x1p53 && *value == (double)(int64_t)*value;
}

static bool entry_shape(const cJSON *entry, struct tensor *shape) {
  const cJSON *list = cJSON_GetObjectItemCaseSensitive(entry, "shape");
  int rank = cJSON_GetArraySize(list);
  if (!cJSON_IsArray(list) || rank < 1 || rank > TENSOR_MAX_RANK) return false;
  *shape = (struct tensor){.dtype = DTYPE_F32, .rank = rank};
  for (int d = 0; d < rank; d++) {
    double value;
    if (!whole(cJSON_GetArrayItem(list, d), &value) || value > INT32_MAX) return false;
    shape->dim[d] = (int64_t)value;
  }
  return true;
}

bool safetensors_shape(const struct safetensors *file, const char *name, struct tensor *shape) {
  return entry_shape(find(file, name), shape);
}

static size_t element_bytes(const char *dtype) {
  if (!dtype) return 0;
  if (strcmp(dtype, "F32") == 0) return 4;
  if (strcmp(dtype, "BF16") == 0) return 2;
  return strcmp(dtype, "F64") == 0 ? 8 : 0;
}

/* The files are little-endian, as all hosts that this runs on. */
static float element(const uint8_t *from, size_t bytes) {
  uint16_t low;
  float single;
  double wide;
  if (bytes == 2) return memcpy(&low, from, 2), bf16_to_float(low);
  if (bytes == 4) return memcpy(&single, from, 4), single;
  return memcpy(&wide, from, 8), (float)wide;
}

enum status safetensors_read(const struct safetensors *file, const char *name, const struct tensor *shape,
                             float *data) {
  const cJSON *entry = find(file, name);
  struct tensor found;
  char expected_text[64], found_text[64];
  if (!entry) return RAISE(STATUS_INPUT, "%s has no array %s; is it of this model?", file->path, name);
  if (!entry_shape(entry, &found) || !tensor_equal(&found, shape))
    return RAISE(STATUS_INPUT, "%s: %s is %s; expected %s", file->path, name,
                 entry_shape(entry, &found) ? tensor_text(&found, found_text, sizeof found_text)
                                            : "shapeless",
                 tensor_text(shape, expected_text, sizeof expected_text));
  const char *dtype = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "dtype"));
  const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
  size_t bytes = element_bytes(dtype);
  if (bytes == 0)
    return RAISE(STATUS_INPUT, "%s: %s is of type %s; expected F32, BF16 or F64", file->path, name,
                 dtype ? dtype : "unknown");
  double begin, end, count = (double)tensor_count(shape);
  if (!whole(cJSON_GetArrayItem(offsets, 0), &begin) || !whole(cJSON_GetArrayItem(offsets, 1), &end) ||
      end > (double)file->data_count || end - begin != count * (double)bytes)
    return RAISE(STATUS_INPUT, "%s: %s does not lie where the header says; the file is damaged", file->path,
                 name);
  const uint8_t *from = file->data + (size_t)begin;
  for (size_t i = 0; i < (size_t)count; i++) data[i] = element(from + i * bytes, bytes);
  return STATUS_OK;
}
