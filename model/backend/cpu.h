/* What the files of the CPU backend share. */
#ifndef CONVOY_MODEL_BACKEND_CPU_H
#define CONVOY_MODEL_BACKEND_CPU_H

#include "model/backend/backend.h"
#include "model/ops/op_cpu.h"

/* ---- communication (comm_cpu.c): MPI on a communicator of the backend's own ---- */
struct comm_cpu;

/* Collective. For one rank *comm is NULL and MPI is not touched. */
enum status comm_cpu_open(const struct world *world, struct comm_cpu **comm);
void comm_cpu_close(struct comm_cpu *comm); /* NULL: nothing */
/* In place; a NULL comm leaves the data as they are. */
enum status comm_cpu_sum(struct comm_cpu *comm, float *data, int64_t count);
/* Sends data to `peer` and receives as much from it into `other`. */
enum status comm_cpu_exchange(struct comm_cpu *comm, const float *data, float *other, int64_t count,
                              int peer);
enum status comm_cpu_broadcast(struct comm_cpu *comm, void *data, size_t bytes, int root);

/* ---- the backend ---- */
struct cpu_backend {
  struct backend base; /* first */
  struct op_cpu_context context;
  struct comm_cpu *comm;
  uint64_t ticket; /* of the last run */
  double stamp[BACKEND_STAMPS];
};

static inline struct cpu_backend *cpu_backend(struct backend *backend) {
  return (struct cpu_backend *)backend;
}

/* The entries of the backend's table that work on a step's data (cpu_step.c). */
enum status cpu_step_begin(struct backend *backend, struct step_control *control, const struct step_row *rows,
                           const int32_t *stop, float *metrics);
enum status cpu_gather(struct backend *backend, const struct gather_desc *desc,
                       const struct step_control *control, const struct sample *list, void *batch,
                       int32_t *labels);
enum status cpu_update(struct backend *backend, const struct update_desc *desc, struct step_control *control,
                       float *params, void *low, const float *gradients, float *slot0, float *slot1,
                       const float *metrics);
enum status cpu_convert(struct backend *backend, const float *params, void *low, int64_t count);
/* data = data rounded to bf16. */
void cpu_round(struct backend *backend, float *data, int64_t count);
enum status cpu_add(struct backend *backend, float *data, const float *other, int64_t count);
enum status cpu_publish(struct backend *backend, const struct step_control *control, const float *metrics,
                        float *ring);

#endif
