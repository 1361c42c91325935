/* The CUDA backend: cuDNN, cuBLASLt and own kernels on one stream, NCCL on a second. This file opens it and
 * moves memory; its table is at the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/backend/cuda_backend.h"
#include "model/backend/kernels.h"
#include "model/base/clock.h"
#include "model/ops/cudnn_plan_cuda.h"
#include "model/ops/kernels.h"
#include "model/ops/table_cuda.h"

static const size_t workspace_default = (size_t)1 << 30;

/* Gives back all that is the device's; a second call does nothing. */
static void release_device(struct cuda_backend *cuda) {
  struct cuda_context *context = &cuda->context;
  if (cuda->left) return;
  cuda->left = true;
  cuda_comm_close(cuda);
  cudnn_plans_destroy(context);
  choices_destroy(&context->choices);
  cuda_scratch_release(context);
  for (int i = 0; i < CUDA_RUNS; i++)
    if (cuda->run_done[i]) cudaEventDestroy(cuda->run_done[i]);
  if (cuda->synced) cudaEventDestroy(cuda->synced);
  for (int i = 0; i < BACKEND_STAMPS; i++)
    if (cuda->stamp[i]) cudaEventDestroy(cuda->stamp[i]);
  if (context->start) cudaEventDestroy(context->start);
  if (context->stop) cudaEventDestroy(context->stop);
  cudaFree(context->tickets);
  if (context->cudnn) cudnnDestroy(context->cudnn);
  blas_library_close(&context->blas);
  if (context->stream) cudaStreamDestroy(context->stream);
}

static void cuda_leave(struct backend *backend) {
  release_device(cuda_backend_of(backend));
  cudaDeviceReset(); /* what the end of the process would do */
}

static void cuda_close(struct backend *backend) {
  struct cuda_backend *cuda = cuda_backend_of(backend);
  if (!cuda) return;
  release_device(cuda);
  free(cuda);
}

/* Streams, events and libraries on the device that is open. */
static enum status open_libraries(struct cuda_backend *cuda) {
  struct cuda_context *context = &cuda->context;
  TRY_CUDA(cudaStreamCreateWithFlags(&context->stream, cudaStreamNonBlocking));
  TRY_CUDA(cudaEventCreate(&context->start));
  TRY_CUDA(cudaEventCreate(&context->stop));
  TRY_CUDA(cudaEventCreateWithFlags(&cuda->synced, cudaEventDisableTiming));
  for (int i = 0; i < CUDA_RUNS; i++)
    TRY_CUDA(cudaEventCreateWithFlags(&cuda->run_done[i], cudaEventDisableTiming));
  TRY_CUDA(cudaMalloc((void **)&context->tickets, CUDA_TICKETS * sizeof *context->tickets));
  TRY_CUDA(cudaMemsetAsync(context->tickets, 0, CUDA_TICKETS * sizeof *context->tickets, context->stream));
  TRY_CUDNN(cudnnCreate(&context->cudnn));
  TRY_CUDNN(cudnnSetStream(context->cudnn, context->stream));
  return STATUS_OK;
}

/* Adds to the device's kind what else a choice by timing depends on. A deterministic backend times nothing.
 */
static enum status complete_kind(struct cuda_backend *cuda) {
  const struct op_context *op = &cuda->context.op;
  char *kind = cuda->base.kind;
  int driver, runtime;
  size_t used = strlen(kind);
  TRY_CUDA(cudaDriverGetVersion(&driver));
  TRY_CUDA(cudaRuntimeGetVersion(&runtime));
  snprintf(kind + used, BACKEND_KIND - used, ", driver %d, CUDA %d, cuDNN %zu, %s%s, workspace %zu", driver,
           runtime, cudnnGetVersion(), dtype_name(op->compute), op->tf32 ? " by tf32" : "",
           op->workspace_limit);
  if (op->deterministic) kind[0] = '\0';
  return STATUS_OK;
}

static enum status cuda_open(const struct world *world, const struct backend_options *options,
                             struct backend **backend) {
  enum status status = STATUS_OK;
  const char *eager = getenv("CONVOY_EAGER");
  struct cuda_backend *cuda = calloc(1, sizeof *cuda);
  status = world_agree(world, cuda ? STATUS_OK : RAISE(STATUS_INPUT, "out of memory"));
  if (status != STATUS_OK) {
    free(cuda);
    return status;
  }
  cuda->base.table = &backend_cuda;
  cuda->base.world = world;
  cuda->base.context = &cuda->context.op;
  cuda->eager = eager && strcmp(eager, "1") == 0;
  cuda->context.op = (struct op_context){
      .compute = options->precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32,
      .tf32 = options->precision == PRECISION_TF32,
      .deterministic = options->deterministic,
      .workspace_limit = options->workspace_limit ? options->workspace_limit : workspace_default};
  TRY_OUT(cuda_open_device(options->precision, cuda));
  TRY_OUT(world_agree(world, open_libraries(cuda)));
  TRY_OUT(world_agree(world, complete_kind(cuda)));
  double before = clock_seconds();
  TRY_OUT(cuda_comm_open(cuda, options));
  cuda->base.comm_seconds = clock_seconds() - before;
  *backend = &cuda->base;
out:
  if (status != STATUS_OK) cuda_close(&cuda->base);
  return status;
}

static enum status cuda_sync(struct backend *backend) {
  struct cuda_backend *cuda = cuda_backend_of(backend);
  TRY(cuda_comm_join(backend));
  TRY_CUDA(cudaEventRecord(cuda->synced, cuda->context.stream));
  return cuda_wait_event(cuda, cuda->synced);
}

static enum status raise_memory(const char *function, cudaError_t error, size_t bytes, const char *kind) {
  size_t available = 0, whole = 0;
  (void)cudaGetLastError();
  if (error != cudaErrorMemoryAllocation && error != cudaErrorInvalidValue) /* the latter: absurdly large */
    return cuda_raise(function, kind, error);
  (void)cudaMemGetInfo(&available, &whole);
  return error_raise(
      STATUS_INPUT, function,
      "out of %s memory: %.1f MiB asked, %.1f MiB of the GPU's %.1f MiB are free: lower --batch, or "
      "use more ranks",
      kind, (double)bytes / 1048576.0, (double)available / 1048576.0, (double)whole / 1048576.0);
}

static enum status cuda_alloc(struct backend *backend, size_t bytes, void **memory) {
  struct cuda_backend *cuda = cuda_backend_of(backend);
  void *made = NULL;
  if (bytes == 0) bytes = 1;
  cudaError_t error = cudaMalloc(&made, bytes);
  if (error != cudaSuccess) {
    cuda_scratch_release(&cuda->context); /* may be what is missing */
    (void)cudaGetLastError();
    error = cudaMalloc(&made, bytes);
  }
  if (error != cudaSuccess) return raise_memory(__func__, error, bytes, "device");
  error = cudaMemsetAsync(made, 0, bytes, cuda->context.stream);
  if (error != cudaSuccess) {
    cudaFree(made);
    return cuda_raise(__func__, "cudaMemsetAsync", error);
  }
  *memory = made;
  return STATUS_OK;
}

static void cuda_release(struct backend *backend, void *memory) {
  (void)backend;
  cudaFree(memory);
}

/* Pages of the process's own that the device is then told of: large ones where there are any, which are made
 * and told in half the time that the runtime's take, and which stay when the device is left. Kernels use
 * their addresses as they are, as all devices of today can (cudaDevAttrCanUseHostPointerForRegisteredMem). */
static enum status cuda_alloc_host(struct backend *backend, size_t bytes, void **memory) {
  const size_t small = (size_t)sysconf(_SC_PAGESIZE), large = (size_t)2 << 20,
               page = bytes < large ? small : large, room = (bytes / page + 1) * page;
  (void)backend;
  void *made = aligned_alloc(page, room);
  if (!made) return RAISE(STATUS_INPUT, "out of host memory: %.1f MiB asked", (double)bytes / 1048576.0);
  if (page == large) (void)madvise(made, room, MADV_HUGEPAGE); /* only a hint */
  memset(made, 0, room);
  cudaError_t error = cudaHostRegister(made, room, cudaHostRegisterMapped | cudaHostRegisterPortable);
  if (error != cudaSuccess) {
    free(made);
    return raise_memory(__func__, error, bytes, "pinned host");
  }
  *memory = made;
  return STATUS_OK;
}

static void cuda_release_host(struct backend *backend, void *memory) {
  if (memory && !cuda_backend_of(backend)->left) cudaHostUnregister(memory);
  free(memory);
}

/* A copy from pageable memory has left `source` when the call returns; from pinned memory it must be waited
 * for. */
static enum status cuda_upload(struct backend *backend, void *device, const void *source, size_t bytes) {
  struct cuda_backend *cuda = cuda_backend_of(backend);
  struct cudaPointerAttributes attributes;
  if (bytes == 0) return STATUS_OK;
  TRY_CUDA(cudaPointerGetAttributes(&attributes, source));
  TRY_CUDA(cudaMemcpyAsync(device, source, bytes, cudaMemcpyHostToDevice, cuda->context.stream));
  if (attributes.type != cudaMemoryTypeUnregistered) TRY_CUDA(cudaStreamSynchronize(cuda->context.stream));
  return STATUS_OK;
}

static enum status cuda_download(struct backend *backend, void *destination, const void *device,
                                 size_t bytes) {
  struct cuda_backend *cuda = cuda_backend_of(backend);
  if (bytes > 0)
    TRY_CUDA(cudaMemcpyAsync(destination, device, bytes, cudaMemcpyDeviceToHost, cuda->context.stream));
  return cuda_sync(backend);
}

static enum status cuda_zero(struct backend *backend, void *device, size_t bytes) {
  TRY_CUDA(cudaMemsetAsync(device, 0, bytes, cuda_backend_of(backend)->context.stream));
  return STATUS_OK;
}

static enum status cuda_resident(struct backend *backend, const void *host, size_t bytes,
                                 const void **memory) {
  void *made = NULL;
  TRY(cuda_alloc(backend, bytes, &made));
  enum status status = cuda_upload(backend, made, host, bytes);
  if (status != STATUS_OK) {
    cudaFree(made);
    return error_trace(status, __func__);
  }
  *memory = made;
  return STATUS_OK;
}

static void cuda_release_resident(struct backend *backend, const void *memory) {
  union {
    const void *in;
    void *out;
  } same = {.in = memory};
  cuda_release(backend, same.out);
}

static enum status cuda_choices_get(struct backend *backend, bool fresh, void **bytes, size_t *count) {
  return choices_write(&cuda_backend_of(backend)->context.choices, fresh, bytes, count);
}

static enum status cuda_choices_put(struct backend *backend, const void *bytes, size_t count) {
  return choices_read(&cuda_backend_of(backend)->context.choices, bytes, count);
}

static enum status cuda_step_begin(struct backend *backend, struct step_control *control,
                                   const struct step_row *rows, const int32_t *stop, float *metrics) {
  TRY_CUDA(kernel_step_begin(cuda_backend_of(backend)->context.stream, control, rows, stop, metrics));
  return STATUS_OK;
}

static enum status cuda_gather(struct backend *backend, const struct gather_desc *desc,
                               const struct step_control *control, const struct sample *list, void *batch,
                               int32_t *labels) {
  const struct cuda_context *context = &cuda_backend_of(backend)->context;
  TRY_CUDA(kernel_gather(context->stream, context->op.compute, desc, control, list, batch, labels));
  return STATUS_OK;
}

static enum status cuda_update(struct backend *backend, const struct update_desc *desc,
                               struct step_control *control, float *params, void *low, const float *gradients,
                               float *slot0, float *slot1, const float *metrics) {
  TRY_CUDA(kernel_update(cuda_backend_of(backend)->context.stream, desc, control, params, low, gradients,
                         slot0, slot1, metrics));
  return STATUS_OK;
}

static enum status cuda_convert(struct backend *backend, const float *params, void *low, int64_t count) {
  TRY_CUDA(
      kernel_convert(cuda_backend_of(backend)->context.stream, DTYPE_F32, params, DTYPE_BF16, low, count));
  return STATUS_OK;
}

enum status cuda_add(struct backend *backend, float *data, const float *other, int64_t count) {
  TRY_CUDA(kernel_add(cuda_backend_of(backend)->context.stream, DTYPE_F32, data, other, data, count));
  return STATUS_OK;
}

static enum status cuda_publish(struct backend *backend, const struct step_control *control,
                                const float *metrics, float *ring) {
  TRY_CUDA(kernel_publish(cuda_backend_of(backend)->context.stream, control, metrics, ring));
  return STATUS_OK;
}

const struct backend_table backend_cuda = {
    .name = "cuda",
    .device = true,
    .open = cuda_open,
    .leave = cuda_leave,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .alloc_host = cuda_alloc_host,
    .release_host = cuda_release_host,
    .resident = cuda_resident,
    .release_resident = cuda_release_resident,
    .upload = cuda_upload,
    .download = cuda_download,
    .zero = cuda_zero,
    .sync = cuda_sync,
    .run = cuda_run,
    .wait = cuda_wait,
    .program_destroy = cuda_program_destroy,
    .stamp = cuda_stamp,
    .stamp_seconds = cuda_stamp_seconds,
    .step_begin = cuda_step_begin,
    .gather = cuda_gather,
    .update = cuda_update,
    .convert = cuda_convert,
    .publish = cuda_publish,
    .allreduce = cuda_allreduce,
    .comm_join = cuda_comm_join,
    .allreduce_low = cuda_allreduce_low,
    .broadcast = cuda_broadcast,
    .add = cuda_add,
    .exchange_add = cuda_exchange_add,
    .usage = cuda_usage,
    .choices_get = cuda_choices_get,
    .choices_put = cuda_choices_put,
    .ops =
        {
#define OP(NAME, name)                                                                                       \
  [OP_##NAME] = {.create = name##_cuda_create,                                                               \
                 .forward = name##_cuda_forward,                                                             \
                 .backward = name##_cuda_backward,                                                           \
                 .destroy = name##_cuda_destroy},
#include "model/ops/ops.def"
#undef OP
        },
};
