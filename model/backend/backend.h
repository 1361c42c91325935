/* The one interface between the net and the hardware. Two tables implement it: backend_cpu (oneDNN, MPI) and
 * backend_cuda (cuDNN, cuBLASLt, own kernels, NCCL). No entry is optional and nothing falls back from one to
 * the other. Shapes, names, initial values and random choices are made above; a backend only computes.
 *
 * Memory: "device" pointers come from alloc or resident and are opaque to the caller; "host-visible" ones
 * come from alloc_host and are read and written by both sides. Work is ordered: each enqueued call sees the
 * results of the calls before it. Errors are STATUS_INTERNAL (a library failed), STATUS_INPUT (does not fit
 * in memory, a precision or device is not available) or STATUS_COMM. */
#ifndef CONVOY_MODEL_BACKEND_BACKEND_H
#define CONVOY_MODEL_BACKEND_BACKEND_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/base/error.h"
#include "model/base/sample.h"
#include "model/base/world.h"
#include "model/ops/op.h"

enum precision { PRECISION_FP32, PRECISION_TF32, PRECISION_BF16 };

enum { BACKEND_KIND = 256 };

struct backend_options {
  enum precision precision;
  bool deterministic;
  size_t workspace_limit;   /* bytes one op may ask for; 0: the backend's default */
  int threads;              /* CPU threads of this rank; 0: this rank's share of the cores it may run on */
  int init_timeout_seconds; /* for the communicator's set-up */
  bool exchanges;           /* exchange_add will be used (between ranks whose numbers differ in one bit) */
};

/* Every backend's own struct begins with this. */
struct backend {
  const struct backend_table *table;
  const struct world *world;  /* borrowed; outlives the backend */
  struct op_context *context; /* what its ops get; owned by the backend */
  char description[128]; /* e.g. "cuda: NVIDIA H200, sm_90, 0000:1b:00.0" or "cpu: oneDNN 2.6.0, 1 thread" */
  char kind[BACKEND_KIND]; /* device and versions that a choice by timing holds for; "": nothing is timed */
  double comm_seconds;     /* of open: the communicator's part */
};

/* One step as the host plans it. */
struct step_row {
  uint32_t first; /* its first entry in this rank's sample list */
  uint32_t slot;  /* where its metrics go in the host-visible ring */
  float learning_rate;
  float scale;       /* 1 / samples in the global batch */
  float correction1; /* Adam: 1 - beta1^t */
  float correction2; /* Adam: 1 - beta2^t */
};

/* Device memory, one per net: where the running step stands. */
struct step_control {
  struct step_row row; /* of the running step */
  uint32_t next;       /* the row that step_begin takes next */
  uint32_t halted;     /* 1: a reduced loss was not finite; updates do nothing from then on */
};

/* What a step reports, as floats; reduced over the ranks in training. */
enum { METRIC_LOSS, METRIC_CORRECT, METRIC_STOP, METRIC_RESERVED, METRIC_COUNT };

struct gather_desc {
  const uint8_t *images; /* N,H,W,C bytes, device */
  const int32_t *labels; /* N, device */
  int64_t count;         /* samples to take: batch[0..count) is list[row.first ..] */
  int height, width, channels;
  float mean[4], std[4]; /* per channel, of pixels scaled to 0..1 */
};

enum optimizer_kind { OPTIMIZER_SGD, OPTIMIZER_ADAM, OPTIMIZER_ADAMW };

/* SGD: d += weight_decay w (decayed range); m = momentum m + d; w -= lr (nesterov ? d + momentum m : m), as
 * PyTorch. Adam: Kingma and Ba, 2015, decay added to the gradient; AdamW: Loshchilov and Hutter, 2019, w -=
 * lr decay w. */
struct update_desc {
  enum optimizer_kind kind;
  float momentum, beta1, beta2, epsilon, weight_decay;
  bool nesterov;
  int64_t decay_count;     /* elements [0, decay_count) are decayed */
  int64_t parameter_count; /* elements [0, parameter_count) are learned */
  int64_t total_count;     /* [parameter_count, total_count) are running statistics:
                              w = (1 - statistic_momentum) w + statistic_momentum d */
  float statistic_momentum;
};

struct backend_usage {
  double memory_used, memory; /* bytes; memory 0: not known, or the backend has no device of its own */
  double busy;                /* of the time just before, 0 to 1; NAN: not known */
};

struct program; /* a recorded step; see run */

enum { BACKEND_STAMPS = 128 };

struct backend_table {
  const char *name; /* "cpu" or "cuda" */
  bool device;      /* computes on a device with memory of its own, while the host does something else */

  /* Opens this rank's device and, for more than one rank, the communicator. Collective. */
  enum status (*open)(const struct world *world, const struct backend_options *options,
                      struct backend **backend);
  /* Gives the process's device back, which takes a while, once all that was allocated but host-visible memory
   * is released: the process never computes again. What may follow: release_host and close. Collective. */
  void (*leave)(struct backend *backend);
  void (*close)(struct backend *backend); /* NULL: nothing */

  enum status (*alloc)(struct backend *backend, size_t bytes, void **memory); /* zeroed, 256-byte aligned */
  void (*release)(struct backend *backend, void *memory);                     /* NULL: nothing */
  enum status (*alloc_host)(struct backend *backend, size_t bytes, void **memory); /* host-visible, zeroed */
  void (*release_host)(struct backend *backend, void *memory);
  /* A device view of read-only host data that outlives it: the data itself on a CPU, a copy elsewhere. */
  enum status (*resident)(struct backend *backend, const void *host, size_t bytes, const void **memory);
  void (*release_resident)(struct backend *backend, const void *memory);

  /* Ordered after earlier work. upload: `source` may be reused when it returns. download waits for the data.
   */
  enum status (*upload)(struct backend *backend, void *device, const void *source, size_t bytes);
  enum status (*download)(struct backend *backend, void *destination, const void *device, size_t bytes);
  enum status (*zero)(struct backend *backend, void *device, size_t bytes);
  enum status (*sync)(struct backend *backend); /* waits for all enqueued work and reports its errors */

  /* Runs `body`, which only enqueues work. With *program NULL the backend may record what body enqueues and
   * keep it there; later calls may replay it without calling body, which must therefore enqueue the same work
   * each time. *ticket numbers the run. wait returns once that run and all before it are complete. */
  enum status (*run)(struct backend *backend, struct program **program, enum status (*body)(void *),
                     void *argument, uint64_t *ticket);
  enum status (*wait)(struct backend *backend, uint64_t ticket);
  void (*program_destroy)(struct backend *backend, struct program *program); /* NULL: nothing */

  /* Where time goes. stamp: keeps the moment at which the work enqueued before it is done, under an index
   * below BACKEND_STAMPS; may be recorded. stamp_seconds: seconds[i] lie between the latest stamps i and i +
   * 1, for i < count; the run that made them has been waited for. */
  enum status (*stamp)(struct backend *backend, int index);
  enum status (*stamp_seconds)(struct backend *backend, int count, double *seconds);

  /* control->row = rows[control->next++]; metrics[0..METRIC_COUNT) = 0 but metrics[METRIC_STOP] = *stop. */
  enum status (*step_begin)(struct backend *backend, struct step_control *control,
                            const struct step_row *rows, const int32_t *stop /* host-visible */,
                            float *metrics);
  /* batch (N,H,W,C, compute type) = (bytes / 255 - mean) / std, shifted and flipped as the list says; labels
   * (N). */
  enum status (*gather)(struct backend *backend, const struct gather_desc *desc,
                        const struct step_control *control, const struct sample *list, void *batch,
                        int32_t *labels);
  /* One update of all ranges at control->row's rate, unless control is halted or the metrics' loss is not
   * finite (then halted is set). `low`, if not NULL, receives the bf16 copy of params. slots: optimizer
   * state, each of parameter_count floats: SGD momentum / Adam m, and Adam v (else NULL). */
  enum status (*update)(struct backend *backend, const struct update_desc *desc, struct step_control *control,
                        float *params, void *low, const float *gradients, float *slot0, float *slot1,
                        const float *metrics);
  /* Copies params to their bf16 copy, as update does. */
  enum status (*convert)(struct backend *backend, const float *params, void *low, int64_t count);
  /* ring[METRIC_COUNT * row.slot ..] = metrics, in host-visible memory. */
  enum status (*publish)(struct backend *backend, const struct step_control *control, const float *metrics,
                         float *ring);

  /* Sums data over the ranks in place. allreduce starts once the work enqueued before it is done and runs
   * beside what is enqueued after it, in call order; comm_join makes later work wait for all that was
   * started. */
  enum status (*allreduce)(struct backend *backend, float *data, int64_t count);
  enum status (*comm_join)(struct backend *backend);
  /* allreduce in half the bytes: the ranks' numbers are rounded to bf16 on their way, and so is their sum.
   * `low` is room for `count` bf16 numbers. */
  enum status (*allreduce_low)(struct backend *backend, float *data, void *low, int64_t count);
  enum status (*broadcast)(struct backend *backend, void *data, size_t bytes, int root);

  /* Sums in a fixed order, enqueued like all other work. add: data += other. exchange_add: data += peer's
   * data, while peer adds this rank's; since a + b is b + a both then hold the same bits. `other` is room for
   * what comes. */
  enum status (*add)(struct backend *backend, float *data, const float *other, int64_t count);
  enum status (*exchange_add)(struct backend *backend, float *data, float *other, int64_t count, int peer);

  /* How much of the device is in use, by whomever; asked at most once a second. */
  void (*usage)(struct backend *backend, struct backend_usage *usage);

  /* The algorithms that ops' create chose by timing, as bytes that mean something only to a backend of the
   * same kind. get: all, or those that no put brought (`fresh`); *bytes is the caller's to free, NULL if
   * there are none. put: for the creates that follow; what is there already stays. Bytes that were damaged:
   * STATUS_INPUT, and those before the damage may be taken. */
  enum status (*choices_get)(struct backend *backend, bool fresh, void **bytes, size_t *count);
  enum status (*choices_put)(struct backend *backend, const void *bytes, size_t count);

  struct op_table ops[OP_COUNT];
};

extern const struct backend_table backend_cpu;  /* built with WITH_CPU */
extern const struct backend_table backend_cuda; /* built with WITH_CUDA */

/* The table for a name: "cpu", "cuda", or "auto": cuda if it is built in and a device is visible, else cpu.
 * STATUS_INPUT if it is not built in. */
enum status backend_find(const char *name, const struct backend_table **table);

/* A device that comes up beside what the caller does next, by threads; `warming` stays where it is until the
 * end. Not before MPI has started, which sets variables of the environment that others read. No error: open
 * tells what is wrong. */
struct backend_warming {
  struct {
    pthread_t thread;
    bool runs;
  } device, libraries;
  int local_rank;
};
void backend_warm_begin(const char *name, const struct world *world, struct backend_warming *warming);
void backend_warm_end(struct backend_warming *warming); /* waits for them */

const char *precision_name(enum precision precision);

#endif
