/* A thread that has kernels loaded; see cudnn_preload_cuda.h. */
#include "model/ops/cudnn_preload_cuda.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "model/base/thread.h"
#include "model/ops/cudnn_graph_cuda.h"
#include "model/ops/op_cuda.h"

enum { CAPACITY = 256 /* plans; a net has fewer, and more would only be loaded later */ };

struct cudnn_preload {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int device, count;
  bool ended; /* no plan will be added */
  struct item {
    cudnnBackendDescriptor_t plan;
    size_t bytes[4];
  } item[CAPACITY];
};

/* What the thread records with. */
struct recorder {
  cudaStream_t stream;
  cudnnHandle_t cudnn;
  void *memory; /* the operands' place: nothing is read or written, but copies into it must be possible */
  size_t bytes;
};

static void record(struct recorder *r, const struct item *item) {
  size_t at[5] = {0};
  cudaGraph_t graph = NULL;
  for (int i = 0; i < 4; i++) at[i + 1] = at[i] + cuda_align(item->bytes[i]);
  if (at[4] > r->bytes) {
    cudaFree(r->memory);
    r->bytes = cudaMalloc(&r->memory, at[4]) == cudaSuccess ? at[4] : 0;
  }
  if (r->bytes < at[4] || cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeRelaxed) != cudaSuccess)
    return;
  (void)cudnn_graph_execute(r->cudnn, item->plan, cuda_offset(r->memory, at[0]),
                            cuda_offset(r->memory, at[1]), cuda_offset(r->memory, at[2]),
                            cuda_offset(r->memory, at[3]));
  if (cudaStreamEndCapture(r->stream, &graph) == cudaSuccess && graph) cudaGraphDestroy(graph);
}

/* The next item, once it is there; false: there will be none. */
static bool take(struct cudnn_preload *preload, int index, struct item *item) {
  pthread_mutex_lock(&preload->mutex);
  while (index >= preload->count && !preload->ended) pthread_cond_wait(&preload->changed, &preload->mutex);
  const bool there = index < preload->count;
  if (there) *item = preload->item[index];
  pthread_mutex_unlock(&preload->mutex);
  return there;
}

static void *work(void *argument) {
  struct cudnn_preload *preload = argument;
  struct recorder r = {.stream = NULL};
  struct item item;
  bool good = cudaSetDevice(preload->device) == cudaSuccess &&
              cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking) == cudaSuccess &&
              cudnnCreate(&r.cudnn) == CUDNN_STATUS_SUCCESS &&
              cudnnSetStream(r.cudnn, r.stream) == CUDNN_STATUS_SUCCESS;
  for (int i = 0; good && take(preload, i, &item); i++) record(&r, &item);
  cudaFree(r.memory);
  if (r.cudnn) cudnnDestroy(r.cudnn);
  if (r.stream) cudaStreamDestroy(r.stream);
  (void)cudaGetLastError();
  return NULL;
}

static struct cudnn_preload *create(int device) {
  struct cudnn_preload *made = calloc(1, sizeof *made);
  if (!made) return NULL;
  made->device = device;
  pthread_mutex_init(&made->mutex, NULL);
  pthread_cond_init(&made->changed, NULL);
  if (thread_start(&made->thread, work, made) == 0) return made;
  pthread_cond_destroy(&made->changed);
  pthread_mutex_destroy(&made->mutex);
  free(made);
  return NULL;
}

void cudnn_preload_add(struct cudnn_preload **preload, int device, cudnnBackendDescriptor_t plan,
                       const size_t bytes[4]) {
  if (!*preload) *preload = create(device);
  struct cudnn_preload *to = *preload;
  if (!to) return;
  pthread_mutex_lock(&to->mutex);
  if (to->count < CAPACITY) {
    struct item *item = &to->item[to->count++];
    item->plan = plan;
    for (int i = 0; i < 4; i++) item->bytes[i] = bytes[i];
  }
  pthread_cond_signal(&to->changed);
  pthread_mutex_unlock(&to->mutex);
}

void cudnn_preload_end(struct cudnn_preload **preload) {
  struct cudnn_preload *from = *preload;
  if (!from) return;
  pthread_mutex_lock(&from->mutex);
  from->ended = true;
  pthread_cond_signal(&from->changed);
  pthread_mutex_unlock(&from->mutex);
  pthread_join(from->thread, NULL);
  pthread_cond_destroy(&from->changed);
  pthread_mutex_destroy(&from->mutex);
  free(from);
  *preload = NULL;
}
