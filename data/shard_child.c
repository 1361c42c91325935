/* Rows of a shard from a child process; see shard_child.h. */
#include "data/shard_child.h"

#include <stdlib.h>
#include <string.h>

#include "data/child.h"
#include "data/shard_hdf5.h"

/* What the child may take: HDF5's own, and a piece with the chunks that it touches, thrice. */
enum { OWN_BYTES = 1 << 30, BYTES_A_SECOND = 4 << 20, LEAST_SECONDS = 5 };

struct shard_child {
  const char *path;
  struct shard_info info;
  struct child *process;
};

/* What the child gets. */
struct task {
  struct shard_info info;
  char path[];
};

/* In both directions: rows that are wanted; how it went, then the rows. */
struct request {
  int64_t first, count;
};
struct reply {
  int32_t status;
  char message[1020];
};

static size_t row_bytes(const struct shard_info *info) {
  return (size_t)info->height * (size_t)info->width * (size_t)info->channels;
}

/* ---- in the child ---- */

static void keep_first(void *context, enum status status) {
  struct reply *reply = context;
  if (reply->status != STATUS_OK) return;
  reply->status = (int32_t)status;
  snprintf(reply->message, sizeof reply->message, "%s", error_message());
}

static void open_file(const struct task *task, struct reply *reply, struct shard_file **opened) {
  shard_file_open(task->path, keep_first, reply, opened);
  if (*opened && memcmp((const char *)&(*opened)->info, (const char *)&task->info, sizeof task->info) != 0)
    keep_first(reply, RAISE(STATUS_INPUT, "%s: changed while it was read, or differs between the hosts",
                            task->path)); /* info was zeroed before it was filled */
}

static void serve(const void *context, int socket) {
  const struct task *task = context;
  struct reply reply = {.status = STATUS_OK};
  struct shard_file *file = NULL;
  struct request request;
  open_file(task, &reply, &file);
  while (child_get(socket, &request, sizeof request)) {
    size_t image_bytes = (size_t)request.count * row_bytes(&task->info);
    size_t label_bytes = (size_t)request.count * sizeof(int64_t);
    child_allow((unsigned)(image_bytes / BYTES_A_SECOND) + LEAST_SECONDS);
    uint8_t *images = malloc(image_bytes);
    int64_t *labels = malloc(label_bytes);
    if (!images || !labels)
      keep_first(&reply, RAISE(STATUS_INPUT, "no memory to read %s", task->path));
    else if (reply.status == STATUS_OK) {
      enum status status = shard_file_read(file, request.first, request.count, images, labels);
      if (status != STATUS_OK) keep_first(&reply, status);
    }
    bool good = child_put(socket, &reply, sizeof reply) && reply.status == STATUS_OK &&
                child_put(socket, images, image_bytes) && child_put(socket, labels, label_bytes);
    free(images);
    free(labels);
    if (!good) break;
  }
  shard_file_close(file);
}

/* ---- in this process ---- */

static enum status start_child(const char *path, const struct shard_info *info, struct child **process) {
  size_t rows =
      (size_t)info->chunk_rows < (size_t)info->count ? (size_t)info->chunk_rows : (size_t)info->count;
  size_t length = strlen(path) + 1, bytes = sizeof(struct task) + length;
  struct task *task = calloc(1, bytes);
  if (!task) return RAISE(STATUS_INPUT, "no memory to open %s", path);
  memcpy(&task->info, info, sizeof *info);
  memcpy(task->path, path, length);
  enum status status =
      child_start(serve, task, bytes, OWN_BYTES + 3 * rows * (row_bytes(info) + sizeof(int64_t)), process);
  free(task);
  return error_trace(status, __func__);
}

enum status shard_child_open(const char *path, const struct shard_info *info, struct shard_child **opened) {
  struct shard_child *child = calloc(1, sizeof *child);
  if (!child) return RAISE(STATUS_INPUT, "no memory to open %s", path);
  child->path = path;
  child->info = *info;
  enum status status = start_child(path, info, &child->process);
  if (status != STATUS_OK) {
    free(child);
    return status;
  }
  *opened = child;
  return STATUS_OK;
}

void shard_child_close(struct shard_child *child) {
  if (!child) return;
  child_end(child->process, NULL, 0);
  free(child);
}

enum status shard_child_read(struct shard_child *child, int64_t first, int64_t count, uint8_t *images,
                             int64_t *labels) {
  struct request request = {first, count};
  struct reply reply;
  if (!child->process) return RAISE(STATUS_INTERNAL, "%s: read after a failure", child->path);
  int socket = child_socket(child->process);
  bool there = child_put(socket, &request, sizeof request) && child_get(socket, &reply, sizeof reply);
  if (there && reply.status != STATUS_OK) {
    reply.message[sizeof reply.message - 1] = '\0';
    return RAISE((enum status)reply.status, "%s", reply.message);
  }
  if (there && child_get(socket, images, (size_t)count * row_bytes(&child->info)) &&
      child_get(socket, labels, (size_t)count * sizeof *labels))
    return STATUS_OK;
  char why[64];
  child_end(child->process, why, sizeof why);
  child->process = NULL;
  return RAISE(STATUS_INPUT,
               "%s: the HDF5 library cannot read rows %lld..%lld: %s; the file is damaged, copy it again",
               child->path, (long long)first, (long long)(first + count - 1), why[0] ? why : "it ended");
}
