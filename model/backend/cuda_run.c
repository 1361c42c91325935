/* Steps recorded as CUDA graphs, replayed, and waited for. */
#include <stdlib.h>
#include <time.h>

#include "model/backend/cuda_backend.h"

/* A recorded step. */
struct program {
  cudaGraphExec_t exec;
};

enum { POLLS_BUSY = 20000, POLL_NANOSECONDS = 20000, POLLS_A_CHECK = 5000 };

static enum status poll_event(struct cuda_backend *cuda, cudaEvent_t event) {
  const struct timespec pause = {.tv_nsec = POLL_NANOSECONDS};
  for (long polls = 0;; polls++) {
    cudaError_t error = cudaEventQuery(event);
    if (error == cudaSuccess) return STATUS_OK;
    if (error != cudaErrorNotReady) return cuda_raise("cuda_wait_event", "waiting for the device", error);
    if (polls < POLLS_BUSY) continue;
    nanosleep(&pause, NULL);
    if (polls % POLLS_A_CHECK == 0) TRY(cuda_comm_check(cuda));
  }
}

enum status cuda_wait_event(struct cuda_backend *cuda, cudaEvent_t event) {
  world_wait_begin(cuda->base.world);
  enum status status = poll_event(cuda, event);
  world_wait_end(cuda->base.world);
  return status;
}

void cuda_program_destroy(struct backend *backend, struct program *program) {
  (void)backend;
  if (!program) return;
  if (program->exec) cudaGraphExecDestroy(program->exec);
  free(program);
}

/* What body enqueues, as a graph. The step itself is not run. */
static enum status record(struct cuda_backend *cuda, enum status (*body)(void *), void *argument,
                          cudaGraph_t *graph) {
  *graph = NULL;
  /* Relaxed: a kernel's code may be loaded at its first launch, which is here. */
  TRY_CUDA(cudaStreamBeginCapture(cuda->context.stream, cudaStreamCaptureModeRelaxed));
  enum status status = body(argument);
  if (status == STATUS_OK)
    status = cuda_comm_join(&cuda->base); /* a stream left apart would spoil the capture */
  cudaError_t error = cudaStreamEndCapture(cuda->context.stream, graph);
  if (status == STATUS_OK && error != cudaSuccess) status = cuda_raise(__func__, "recording a step", error);
  if (status != STATUS_OK) {
    (void)cudaGetLastError();
    cuda->comm.started = false;
    if (*graph) cudaGraphDestroy(*graph);
    *graph = NULL;
    return error_trace(status, __func__);
  }
  return STATUS_OK;
}

static enum status program_create(struct cuda_backend *cuda, enum status (*body)(void *), void *argument,
                                  struct program **program) {
  enum status status = STATUS_OK;
  cudaGraph_t graph = NULL;
  struct program *made = calloc(1, sizeof *made);
  if (!made) return RAISE(STATUS_INPUT, "out of memory");
  TRY_OUT(record(cuda, body, argument, &graph));
  cudaError_t error = cudaGraphInstantiate(&made->exec, graph, 0);
  if (error == cudaSuccess) error = cudaGraphUpload(made->exec, cuda->context.stream);
  if (error != cudaSuccess) TRY_OUT(cuda_raise(__func__, "making a recorded step executable", error));
  *program = made;
out:
  if (graph) cudaGraphDestroy(graph);
  if (status != STATUS_OK) cuda_program_destroy(&cuda->base, made);
  return status;
}

enum status cuda_run(struct backend *backend, struct program **program, enum status (*body)(void *),
                     void *argument, uint64_t *ticket) {
  struct cuda_backend *cuda = cuda_backend_of(backend);
  cudaStream_t stream = cuda->context.stream;
  if (cuda->eager) {
    TRY(body(argument));
    TRY(cuda_comm_join(backend));
  } else {
    if (!*program) {
      cuda_scratch_release(&cuda->context); /* algorithms are chosen by now; frees are not for a capture */
      TRY(program_create(cuda, body, argument, program));
    }
    TRY_CUDA(cudaGraphLaunch((*program)->exec, stream));
  }
  TRY_CUDA(cudaEventRecord(cuda->run_done[cuda->runs % CUDA_RUNS], stream));
  *ticket = cuda->runs++;
  return STATUS_OK;
}

enum status cuda_wait(struct backend *backend, uint64_t ticket) {
  struct cuda_backend *cuda = cuda_backend_of(backend);
  /* The slot may hold a later run's event by now, which is complete only after this run. */
  return cuda_wait_event(cuda, cuda->run_done[ticket % CUDA_RUNS]);
}

/* Inside a recording the event becomes a node of the graph: each replay sets its time anew. */
enum status cuda_stamp(struct backend *backend, int index) {
  struct cuda_backend *cuda = cuda_backend_of(backend);
  cudaStream_t stream = cuda->context.stream;
  enum cudaStreamCaptureStatus capture;
  if (!cuda->stamp[index]) TRY_CUDA(cudaEventCreate(&cuda->stamp[index]));
  TRY_CUDA(cudaStreamIsCapturing(stream, &capture));
  bool recorded = capture == cudaStreamCaptureStatusActive;
  TRY_CUDA(cudaEventRecordWithFlags(cuda->stamp[index], stream,
                                    recorded ? cudaEventRecordExternal : cudaEventRecordDefault));
  return STATUS_OK;
}

enum status cuda_stamp_seconds(struct backend *backend, int count, double *seconds) {
  const struct cuda_backend *cuda = cuda_backend_of(backend);
  for (int i = 0; i < count; i++) {
    float milliseconds;
    TRY_CUDA(cudaEventElapsedTime(&milliseconds, cuda->stamp[i], cuda->stamp[i + 1]));
    seconds[i] = 1e-3 * (double)milliseconds;
  }
  return STATUS_OK;
}
