/* The HDF5 image of a checkpoint: built in memory, so that no write error can surface inside HDF5, and read
 * from memory, so that no file lock is asked for. */
#include "app/checkpoint_format.h"

#include <hdf5.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/base/library_lock.h"

static const char *const group_paths[] = {
    [CHECKPOINT_PARAMETERS] = "/parameters",   [CHECKPOINT_MOMENTUM] = "/optimizer/momentum",
    [CHECKPOINT_ADAM_M] = "/optimizer/adam_m", [CHECKPOINT_ADAM_V] = "/optimizer/adam_v",
    [CHECKPOINT_STATISTICS] = "/statistics",
};

/* The attributes of /progress. */
enum field_type { FIELD_I64, FIELD_U64, FIELD_F64, FIELD_BOOL };
#define FIELD(type, name)                                                                                    \
  { #name, type, offsetof(struct checkpoint_progress, name) }
static const struct field {
  const char *name;
  enum field_type type;
  size_t offset;
} fields[] = {
    FIELD(FIELD_I64, epoch),         FIELD(FIELD_I64, position),       FIELD(FIELD_I64, step),
    FIELD(FIELD_U64, seed),          FIELD(FIELD_BOOL, complete),      FIELD(FIELD_F64, best_accuracy),
    FIELD(FIELD_F64, seconds),       FIELD(FIELD_F64, epoch_loss_sum), FIELD(FIELD_F64, epoch_correct),
    FIELD(FIELD_F64, epoch_seconds), FIELD(FIELD_I64, epoch_samples),  FIELD(FIELD_F64, row_loss_sum),
    FIELD(FIELD_F64, row_seconds),   FIELD(FIELD_I64, row_samples),
};
enum { FIELD_COUNT = sizeof fields / sizeof *fields };

struct checkpoint {
  hid_t file;
  char *path;
  struct checkpoint_progress progress;
  int option_count;
  struct option {
    char *name, *value;
  } * options;
};

static hid_t field_type(enum field_type type, bool in_file) {
  switch (type) {
  case FIELD_I64:
    return in_file ? H5T_STD_I64LE : H5T_NATIVE_INT64;
  case FIELD_U64:
    return in_file ? H5T_STD_U64LE : H5T_NATIVE_UINT64;
  case FIELD_F64:
    return in_file ? H5T_IEEE_F64LE : H5T_NATIVE_DOUBLE;
  case FIELD_BOOL:
    return in_file ? H5T_STD_U8LE : H5T_NATIVE_UCHAR;
  }
  return H5I_INVALID_HID;
}

/* ---- building ---- */

/* Ids of what a function opens, so that one loop closes them all. */
struct ids {
  int count;
  hid_t id[8];
};

/* Remembers an id to be closed; false if the call that made it failed. */
static bool hold(struct ids *ids, hid_t id) {
  if (id >= 0) ids->id[ids->count++] = id;
  return id >= 0;
}

/* Closes what is held, newest first; false if a close failed. */
static bool release(struct ids *ids) {
  bool good = true;
  while (ids->count > 0) {
    hid_t id = ids->id[--ids->count];
    good &= H5Idec_ref(id) >= 0;
  }
  return good;
}

static bool put_number(hid_t parent, const struct field *field, const void *value) {
  struct ids ids = {0};
  hid_t space, attribute;
  bool good = hold(&ids, space = H5Screate(H5S_SCALAR)) &&
              hold(&ids, attribute = H5Acreate2(parent, field->name, field_type(field->type, true), space,
                                                H5P_DEFAULT, H5P_DEFAULT)) &&
              H5Awrite(attribute, field_type(field->type, false), value) >= 0;
  return release(&ids) && good;
}

/* A UTF-8 string of any length. */
static hid_t text_type(void) {
  hid_t type = H5Tcopy(H5T_C_S1);
  if (type < 0) return type;
  if (H5Tset_size(type, H5T_VARIABLE) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0) return type;
  H5Tclose(type);
  return H5I_INVALID_HID;
}

static bool put_text(hid_t parent, const char *name, const char *value) {
  struct ids ids = {0};
  hid_t space, type, attribute;
  bool good = hold(&ids, space = H5Screate(H5S_SCALAR)) && hold(&ids, type = text_type()) &&
              hold(&ids, attribute = H5Acreate2(parent, name, type, space, H5P_DEFAULT, H5P_DEFAULT)) &&
              H5Awrite(attribute, type, &value) >= 0;
  return release(&ids) && good;
}

static void tensor_dims(const struct tensor *tensor, hsize_t dims[TENSOR_MAX_RANK]) {
  for (int i = 0; i < tensor->rank; i++) dims[i] = (hsize_t)tensor->dim[i];
}

static void item_path(enum checkpoint_group group, const char *name, char path[512]) {
  snprintf(path, 512, "%s/%s", group_paths[group], name);
}

static bool put_item(hid_t file, const struct checkpoint_item *item) {
  struct ids ids = {0};
  hid_t space, links, create, set;
  hsize_t dims[TENSOR_MAX_RANK];
  char path[512];
  tensor_dims(&item->tensor, dims);
  item_path(item->group, item->name, path);
  bool good = hold(&ids, space = H5Screate_simple(item->tensor.rank, dims, NULL)) &&
              hold(&ids, links = H5Pcreate(H5P_LINK_CREATE)) &&
              H5Pset_create_intermediate_group(links, 1) >= 0 &&
              hold(&ids, create = H5Pcreate(H5P_DATASET_CREATE)) && H5Pset_obj_track_times(create, 0) >= 0 &&
              H5Pset_fill_time(create, H5D_FILL_TIME_NEVER) >= 0 &&
              hold(&ids, set = H5Dcreate2(file, path, H5T_IEEE_F32LE, space, links, create, H5P_DEFAULT)) &&
              H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, item->data) >= 0;
  return release(&ids) && good;
}

static bool put_content(hid_t file, const struct checkpoint_content *content) {
  struct ids ids = {0};
  hid_t progress, options;
  bool good = put_text(file, "format", CHECKPOINT_FORMAT) && put_text(file, "convoy", CONVOY_VERSION) &&
              hold(&ids, progress = H5Gcreate2(file, "/progress", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)) &&
              hold(&ids, options = H5Gcreate2(file, "/options", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  for (int i = 0; good && i < FIELD_COUNT; i++)
    good = put_number(progress, &fields[i], (const char *)&content->progress + fields[i].offset);
  for (int i = 0; good && i < content->option_count; i++)
    good = put_text(options, content->options[i].name, content->options[i].value);
  for (int i = 0; good && i < content->item_count; i++) good = put_item(file, &content->items[i]);
  return release(&ids) && good;
}

int64_t checkpoint_estimate(const struct checkpoint_item *items, int item_count) {
  int64_t bytes = 64 * 1024; /* header, progress, options */
  for (int i = 0; i < item_count; i++) bytes += (int64_t)tensor_bytes(&items[i].tensor) + 1024;
  return bytes;
}

static enum status build_image(const struct checkpoint_content *content, struct checkpoint_memory *image,
                               size_t *bytes) {
  struct ids ids = {0};
  hid_t access, file;
  ssize_t size = -1;
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  size_t estimate = (size_t)checkpoint_estimate(content->items, content->item_count);
  bool good = hold(&ids, access = H5Pcreate(H5P_FILE_ACCESS)) &&
              checkpoint_memory_use(image, estimate, access) &&
              hold(&ids, file = H5Fcreate("checkpoint", H5F_ACC_TRUNC, H5P_DEFAULT, access)) &&
              put_content(file, content) && H5Fflush(file, H5F_SCOPE_LOCAL) >= 0 &&
              (size = H5Fget_file_image(file, NULL, 0)) > 0;
  if (!release(&ids) || !good || (size_t)size > image->capacity)
    return RAISE(STATUS_INTERNAL, "HDF5 cannot build the checkpoint of step %lld in memory (%zu bytes)",
                 (long long)content->progress.step, estimate);
  *bytes = (size_t)size;
  return STATUS_OK;
}

enum status checkpoint_image_create(const struct checkpoint_content *content, struct checkpoint_memory *image,
                                    size_t *bytes) {
  *image = (struct checkpoint_memory){0};
  library_lock();
  enum status status = build_image(content, image, bytes);
  library_unlock();
  return status;
}

/* ---- reading ---- */

static enum status get_progress(struct checkpoint *checkpoint) {
  for (int i = 0; i < FIELD_COUNT; i++) {
    hid_t attribute =
        H5Aopen_by_name(checkpoint->file, "/progress", fields[i].name, H5P_DEFAULT, H5P_DEFAULT);
    herr_t error = -1;
    if (attribute >= 0) {
      error = H5Aread(attribute, field_type(fields[i].type, false),
                      (char *)&checkpoint->progress + fields[i].offset);
      H5Aclose(attribute);
    }
    if (error < 0) return RAISE(STATUS_STORAGE, "%s has no progress '%s'", checkpoint->path, fields[i].name);
  }
  return STATUS_OK;
}

static herr_t add_option(hid_t group, const char *name, const H5A_info_t *info, void *data) {
  (void)info;
  struct checkpoint *checkpoint = data;
  struct ids ids = {0};
  hid_t attribute, type;
  char *value = NULL;
  struct option *more = realloc(checkpoint->options, (size_t)(checkpoint->option_count + 1) * sizeof *more);
  if (!more) return -1;
  checkpoint->options = more;
  bool good = hold(&ids, attribute = H5Aopen(group, name, H5P_DEFAULT)) && hold(&ids, type = text_type()) &&
              H5Aread(attribute, type, &value) >= 0 && value;
  if (good) {
    more[checkpoint->option_count++] = (struct option){strdup(name), strdup(value)};
    good = more[checkpoint->option_count - 1].name && more[checkpoint->option_count - 1].value;
  }
  if (value) H5free_memory(value);
  release(&ids);
  return good ? 0 : -1;
}

static enum status get_options(struct checkpoint *checkpoint) {
  hid_t group = H5Gopen2(checkpoint->file, "/options", H5P_DEFAULT);
  herr_t error =
      group < 0 ? -1 : H5Aiterate2(group, H5_INDEX_NAME, H5_ITER_INC, NULL, add_option, checkpoint);
  if (group >= 0) H5Gclose(group);
  return error < 0 ? RAISE(STATUS_STORAGE, "%s: its options cannot be read", checkpoint->path) : STATUS_OK;
}

enum status checkpoint_open(const char *path, struct checkpoint **result) {
  TRY(checkpoint_header_verify(path));
  enum status status = STATUS_OK;
  library_lock();
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  struct checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
  if (checkpoint) checkpoint->file = H5I_INVALID_HID;
  if (!checkpoint || access < 0 || !(checkpoint->path = strdup(path))) {
    status = RAISE(STATUS_INPUT, "out of memory while reading %s", path);
    goto out;
  }
  if (H5Pset_fapl_core(access, 1 << 20, 0) >= 0) checkpoint->file = H5Fopen(path, H5F_ACC_RDONLY, access);
  if (checkpoint->file < 0) {
    status = RAISE(STATUS_STORAGE, "%s is not readable as HDF5", path);
    goto out;
  }
  TRY_OUT(get_progress(checkpoint));
  TRY_OUT(get_options(checkpoint));
  *result = checkpoint;
  checkpoint = NULL;
out:
  if (access >= 0) H5Pclose(access);
  checkpoint_close(checkpoint);
  library_unlock();
  return status;
}

void checkpoint_close(struct checkpoint *checkpoint) {
  if (!checkpoint) return;
  library_lock();
  if (checkpoint->file >= 0) H5Fclose(checkpoint->file);
  library_unlock();
  for (int i = 0; i < checkpoint->option_count; i++) {
    free(checkpoint->options[i].name);
    free(checkpoint->options[i].value);
  }
  free(checkpoint->options);
  free(checkpoint->path);
  free(checkpoint);
}

const char *checkpoint_name(const struct checkpoint *checkpoint) {
  return checkpoint->path;
}

const struct checkpoint_progress *checkpoint_progress(const struct checkpoint *checkpoint) {
  return &checkpoint->progress;
}

const char *checkpoint_option(const struct checkpoint *checkpoint, const char *name) {
  for (int i = 0; i < checkpoint->option_count; i++)
    if (strcmp(checkpoint->options[i].name, name) == 0) return checkpoint->options[i].value;
  return NULL;
}

/* Opens a data set, negative if there is none. */
static hid_t open_set(const struct checkpoint *checkpoint, enum checkpoint_group group, const char *name) {
  char path[512];
  item_path(group, name, path);
  return H5Dopen2(checkpoint->file, path, H5P_DEFAULT);
}

bool checkpoint_has(const struct checkpoint *checkpoint, enum checkpoint_group group, const char *name) {
  library_lock();
  hid_t set = open_set(checkpoint, group, name);
  if (set >= 0) H5Dclose(set);
  library_unlock();
  return set >= 0;
}

static enum status read_item(const struct checkpoint *checkpoint, const struct checkpoint_item *item) {
  struct ids ids = {0};
  hid_t set, space;
  char path[512], found[128] = "no data set", expected[128];
  struct tensor there = {.dtype = DTYPE_F32};
  item_path(item->group, item->name, path);
  if (hold(&ids, set = open_set(checkpoint, item->group, item->name)) &&
      hold(&ids, space = H5Dget_space(set))) {
    hsize_t dims[H5S_MAX_RANK];
    int rank = H5Sget_simple_extent_dims(space, dims, NULL);
    if (rank >= 1 && rank <= TENSOR_MAX_RANK) {
      there.rank = rank;
      for (int i = 0; i < rank; i++) there.dim[i] = (int64_t)dims[i];
    }
    tensor_text(&there, found, sizeof found);
  }
  enum status status = STATUS_OK;
  if (!tensor_equal(&there, &item->tensor))
    status = RAISE(STATUS_INPUT, "%s: %s is %s, expected %s: the checkpoint is of another model",
                   checkpoint->path, path, found, tensor_text(&item->tensor, expected, sizeof expected));
  else if (H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, item->data) < 0)
    status = RAISE(STATUS_STORAGE, "%s: %s cannot be read", checkpoint->path, path);
  release(&ids);
  return status;
}

enum status checkpoint_read(const struct checkpoint *checkpoint, const struct checkpoint_item *items,
                            int item_count) {
  enum status status = STATUS_OK;
  library_lock();
  for (int i = 0; i < item_count; i++) TRY_OUT(read_item(checkpoint, &items[i]));
out:
  library_unlock();
  return status;
}
