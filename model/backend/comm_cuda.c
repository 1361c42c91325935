/* Sums and copies over the ranks by NCCL, on a stream of its own beside the compute stream. The communicator
 * is not blocking: its set-up is polled, so that a rank that never comes is an error and not a hang. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model/backend/cuda_backend.h"
#include "model/base/clock.h"
#include "model/ops/kernels.h"

enum { CLOSE_SECONDS = 10, CALL_SECONDS = 60 };

static enum status raise_nccl(const char *function, const char *what, ncclComm_t comm, ncclResult_t result) {
  const char *detail = ncclGetLastError(comm);
  enum status status =
      error_raise(STATUS_COMM, function,
                  "NCCL: %s at %s%s%.200s; set NCCL_DEBUG=INFO to see more, NCCL_SOCKET_IFNAME to name the "
                  "network interface",
                  ncclGetErrorString(result), what, detail && detail[0] ? ": " : "", detail ? detail : "");
  return status;
}

/* The state of the communicator once it is ready again after `result` of a call; ncclInProgress: not in time.
 */
static ncclResult_t await_ready(ncclComm_t comm, ncclResult_t result, double seconds) {
  const struct timespec pause = {.tv_nsec = 50000};
  double end = clock_seconds() + seconds;
  while (result == ncclInProgress) {
    ncclResult_t asked = ncclCommGetAsyncError(comm, &result);
    if (asked != ncclSuccess) return asked;
    if (result != ncclInProgress || clock_seconds() > end) break;
    nanosleep(&pause, NULL);
  }
  return result;
}

static enum status settle(ncclComm_t comm, ncclResult_t result, const char *what, double seconds) {
  result = await_ready(comm, result, seconds);
  if (result == ncclSuccess) return STATUS_OK;
  if (result != ncclInProgress) return raise_nccl(__func__, what, comm, result);
  return RAISE(
      STATUS_COMM,
      "NCCL: %s has not finished after %.0f s: a rank is missing or the network does not connect; set "
      "NCCL_DEBUG=INFO to see more, NCCL_SOCKET_IFNAME to name the network interface",
      what, seconds);
}

/* ncclSuccess unless the communicator has failed. */
static ncclResult_t comm_state(const struct cuda_comm *comm) {
  ncclResult_t result = ncclSuccess;
  ncclResult_t asked = ncclCommGetAsyncError(comm->comm, &result);
  if (asked != ncclSuccess) return asked;
  return result == ncclInProgress ? ncclSuccess : result;
}

enum status cuda_comm_check(const struct cuda_backend *cuda) {
  if (!cuda->comm.comm) return STATUS_OK;
  ncclResult_t result = comm_state(&cuda->comm);
  return result == ncclSuccess ? STATUS_OK : raise_nccl(__func__, "a collective", cuda->comm.comm, result);
}

static enum status connect_ranks(struct cuda_backend *cuda, int timeout_seconds) {
  const struct world *world = cuda->base.world;
  struct {
    ncclUniqueId id;
    int result;
  } root;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  memset(&root, 0, sizeof root);
  if (world->rank == 0) root.result = (int)ncclGetUniqueId(&root.id);
  TRY(world_broadcast(world, &root, sizeof root, 0));
  if (root.result != (int)ncclSuccess)
    return raise_nccl(__func__, "ncclGetUniqueId on rank 0", NULL, (ncclResult_t)root.result);
  config.blocking = 0;
  ncclResult_t result = ncclCommInitRankConfig(&cuda->comm.comm, world->size, root.id, world->rank, &config);
  return settle(cuda->comm.comm, result, "connecting the ranks", timeout_seconds);
}

/* NCCL connects the ranks' buffers for an algorithm when it first uses it: here, and not while a step is
 * recorded. */
static enum status warm_up(struct cuda_backend *cuda, int timeout_seconds, bool exchanges) {
  static const int64_t count[] = {4, 1 << 12, 1 << 18, 1 << 21, 1 << 24};
  const struct world *world = cuda->base.world;
  void *scratch;
  TRY(world_agree(world, cuda_scratch(&cuda->context, DTYPE_F32, sizeof(float) << 24, &scratch)));
  for (size_t i = 0; i < sizeof count / sizeof *count; i++)
    TRY(cuda_allreduce(&cuda->base, scratch, count[i]));
  for (size_t i = 0; i < sizeof count / sizeof *count && count[i] < 1 << 23; i++)
    TRY(cuda_allreduce_low(&cuda->base, scratch, (float *)scratch + (1 << 23), count[i]));
  TRY(cuda_comm_join(&cuda->base));
  TRY(cuda_broadcast(&cuda->base, scratch, 1 << 20, 0));
  for (int distance = 1; exchanges && distance < world->size; distance *= 2)
    if ((world->rank ^ distance) < world->size)
      TRY(cuda_exchange_add(&cuda->base, scratch, (float *)scratch + (1 << 23), 1 << 23,
                            world->rank ^ distance));
  TRY_CUDA(cudaEventRecord(cuda->synced, cuda->context.stream));
  double end = clock_seconds() + timeout_seconds;
  for (;;) {
    cudaError_t error = cudaEventQuery(cuda->synced);
    if (error == cudaSuccess) break;
    if (error != cudaErrorNotReady) return cuda_raise(__func__, "the first collective", error);
    TRY(cuda_comm_check(cuda));
    if (clock_seconds() > end)
      return RAISE(STATUS_COMM, "NCCL: the first collective has not finished after %d s", timeout_seconds);
  }
  cuda_scratch_release(&cuda->context);
  return STATUS_OK;
}

static enum status make_stream(struct cuda_comm *comm) {
  TRY_CUDA(cudaStreamCreateWithFlags(&comm->stream, cudaStreamNonBlocking));
  TRY_CUDA(cudaEventCreateWithFlags(&comm->ready, cudaEventDisableTiming));
  TRY_CUDA(cudaEventCreateWithFlags(&comm->done, cudaEventDisableTiming));
  return STATUS_OK;
}

enum status cuda_comm_open(struct cuda_backend *cuda, const struct backend_options *options) {
  const struct world *world = cuda->base.world;
  enum status status = STATUS_OK;
  int timeout_seconds = options->init_timeout_seconds > 0 ? options->init_timeout_seconds : 300;
  TRY(world_agree(world, make_stream(&cuda->comm)));
  if (world->size == 1) return STATUS_OK;
  status = connect_ranks(cuda, timeout_seconds);
  TRY(world_agree(world, status));
  status = warm_up(cuda, timeout_seconds, options->exchanges);
  TRY(world_agree(world, status));
  return STATUS_OK;
}

void cuda_comm_close(struct cuda_backend *cuda) {
  struct cuda_comm *comm = &cuda->comm;
  if (comm->comm) {
    /* In good order only if all is well; a peer that failed must not keep this rank here. An error that is
     * already recorded stays. */
    ncclResult_t result = comm_state(comm);
    if (result == ncclSuccess) result = await_ready(comm->comm, ncclCommFinalize(comm->comm), CLOSE_SECONDS);
    if (result == ncclSuccess)
      ncclCommDestroy(comm->comm);
    else
      ncclCommAbort(comm->comm);
  }
  if (comm->ready) cudaEventDestroy(comm->ready);
  if (comm->done) cudaEventDestroy(comm->done);
  if (comm->stream) cudaStreamDestroy(comm->stream);
  *comm = (struct cuda_comm){0};
}

/* Makes the comm stream wait for what is enqueued on the compute stream. */
static enum status comm_fork(struct cuda_backend *cuda) {
  TRY_CUDA(cudaEventRecord(cuda->comm.ready, cuda->context.stream));
  TRY_CUDA(cudaStreamWaitEvent(cuda->comm.stream, cuda->comm.ready, 0));
  cuda->comm.started = true;
  return STATUS_OK;
}

enum status cuda_allreduce(struct backend *backend, float *data, int64_t count) {
  struct cuda_backend *cuda = cuda_backend_of(backend);
  if (!cuda->comm.comm || count == 0) return STATUS_OK; /* the sum over one rank */
  TRY(comm_fork(cuda));
  ncclResult_t result =
      ncclAllReduce(data, data, (size_t)count, ncclFloat, ncclSum, cuda->comm.comm, cuda->comm.stream);
  return settle(cuda->comm.comm, result, "ncclAllReduce", CALL_SECONDS);
}

/* Conversions run on the communicator's stream too, beside the backward pass. */
enum status cuda_allreduce_low(struct backend *backend, float *data, void *low, int64_t count) {
  struct cuda_backend *cuda = cuda_backend_of(backend);
  cudaStream_t stream = cuda->comm.stream;
  if (!cuda->comm.comm || count == 0) return STATUS_OK; /* the sum over one rank */
  TRY(comm_fork(cuda));
  TRY_CUDA(kernel_convert(stream, DTYPE_F32, data, DTYPE_BF16, low, count));
  ncclResult_t result =
      ncclAllReduce(low, low, (size_t)count, ncclBfloat16, ncclSum, cuda->comm.comm, stream);
  TRY(settle(cuda->comm.comm, result, "ncclAllReduce", CALL_SECONDS));
  TRY_CUDA(kernel_convert(stream, DTYPE_BF16, low, DTYPE_F32, data, count));
  return STATUS_OK;
}

enum status cuda_comm_join(struct backend *backend) {
  struct cuda_backend *cuda = cuda_backend_of(backend);
  if (!cuda->comm.started) return STATUS_OK;
  TRY_CUDA(cudaEventRecord(cuda->comm.done, cuda->comm.stream));
  TRY_CUDA(cudaStreamWaitEvent(cuda->context.stream, cuda->comm.done, 0));
  cuda->comm.started = false;
  return STATUS_OK;
}

enum status cuda_broadcast(struct backend *backend, void *data, size_t bytes, int root) {
  struct cuda_backend *cuda = cuda_backend_of(backend);
  if (!cuda->comm.comm || bytes == 0) return STATUS_OK;
  TRY(comm_fork(cuda));
  ncclResult_t result = ncclBroadcast(data, data, bytes, ncclUint8, root, cuda->comm.comm, cuda->comm.stream);
  TRY(settle(cuda->comm.comm, result, "ncclBroadcast", CALL_SECONDS));
  return cuda_comm_join(backend);
}

enum status cuda_exchange_add(struct backend *backend, float *data, float *other, int64_t count, int peer) {
  struct cuda_backend *cuda = cuda_backend_of(backend);
  ncclComm_t comm = cuda->comm.comm;
  if (!comm) return RAISE(STATUS_INTERNAL, "an exchange with rank %d, but there is one rank", peer);
  TRY(comm_fork(cuda));
  ncclResult_t result = ncclGroupStart();
  if (result == ncclSuccess) {
    ncclResult_t sent = ncclSend(data, (size_t)count, ncclFloat, peer, comm, cuda->comm.stream);
    ncclResult_t received = ncclRecv(other, (size_t)count, ncclFloat, peer, comm, cuda->comm.stream);
    result = ncclGroupEnd();
    if (sent != ncclSuccess && sent != ncclInProgress) result = sent;
    if (received != ncclSuccess && received != ncclInProgress) result = received;
  }
  TRY(settle(comm, result, "ncclSend and ncclRecv", CALL_SECONDS));
  TRY(cuda_comm_join(backend));
  return cuda_add(backend, data, other, count);
}
