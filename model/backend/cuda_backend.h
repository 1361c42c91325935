/* The CUDA backend's own state, shared by its files: cuda.c (memory, table), cuda_open.c (device), cuda_run.c
 * (recording), comm_cuda.c (NCCL). */
#ifndef CONVOY_MODEL_BACKEND_CUDA_BACKEND_H
#define CONVOY_MODEL_BACKEND_CUDA_BACKEND_H

#include <nccl.h>

#include "model/backend/backend.h"
#include "model/ops/op_cuda.h"

enum { CUDA_RUNS = 64 /* events of the latest runs */ };

/* The ranks' communicator; none for one rank. */
struct cuda_comm {
  ncclComm_t comm; /* NULL: one rank */
  cudaStream_t stream;
  cudaEvent_t ready, done; /* compute -> comm, comm -> compute */
  bool started;            /* since the last join */
};

struct cuda_backend {
  struct backend base; /* first */
  struct cuda_context context;
  struct cuda_comm comm;
  cudaEvent_t run_done[CUDA_RUNS];
  cudaEvent_t synced;
  struct backend_usage usage; /* as it was at usage_time, a clock; 0: not asked yet */
  double usage_time;
  cudaEvent_t stamp[BACKEND_STAMPS]; /* NULL: not in use yet */
  uint64_t runs;
  bool eager; /* never record: CONVOY_EAGER=1 */
  bool left;  /* the device is given back */
};

/* cuda_usage.c */
void cuda_usage(struct backend *backend, struct backend_usage *usage);
/* Loads what cuda_usage needs, so that its first call is quick. */
void cuda_usage_warm(void);

static inline struct cuda_backend *cuda_backend_of(struct backend *backend) {
  return (struct cuda_backend *)backend;
}

/* Chooses and opens this rank's device; fills base.description and, with the device's part, base.kind.
 * Collective; the same status on all ranks. */
enum status cuda_open_device(enum precision precision, struct cuda_backend *cuda);

/* Waits for the event and all before it, watching the communicator. */
enum status cuda_wait_event(struct cuda_backend *cuda, cudaEvent_t event);

enum status cuda_run(struct backend *backend, struct program **program, enum status (*body)(void *),
                     void *argument, uint64_t *ticket);
enum status cuda_wait(struct backend *backend, uint64_t ticket);
void cuda_program_destroy(struct backend *backend, struct program *program);
enum status cuda_stamp(struct backend *backend, int index);
enum status cuda_stamp_seconds(struct backend *backend, int count, double *seconds);

/* Collective; for one rank only the stream is made. */
enum status cuda_comm_open(struct cuda_backend *cuda, const struct backend_options *options);
void cuda_comm_close(struct cuda_backend *cuda);
/* STATUS_COMM if the communicator has failed. */
enum status cuda_comm_check(const struct cuda_backend *cuda);

enum status cuda_allreduce(struct backend *backend, float *data, int64_t count);
enum status cuda_allreduce_low(struct backend *backend, float *data, void *low, int64_t count);
enum status cuda_comm_join(struct backend *backend);
enum status cuda_broadcast(struct backend *backend, void *data, size_t bytes, int root);
enum status cuda_add(struct backend *backend, float *data, const float *other, int64_t count);
enum status cuda_exchange_add(struct backend *backend, float *data, float *other, int64_t count, int peer);

#endif
