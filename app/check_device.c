/* `convoy check`: the devices, sums over the ranks, and the rate of products. */
#include <stdlib.h>
#include <string.h>

#include "app/bench_ceiling.h"
#include "app/check.h"
#include "app/train_options.h"
#include "model/base/clock.h"

static bool on_gpu(const struct check *check) {
  return strcmp(check->backend->table->name, "cuda") == 0;
}

static enum status open_backend(struct check *check) {
  const struct check_options *o = &check->options;
  const struct backend_table *backend;
  struct backend_options device = {.precision = (enum precision)o->precision,
                                   .init_timeout_seconds = (int)o->init_timeout};
  TRY(world_agree(check->world, backend_find(backend_choices[o->backend], &backend)));
  return world_agree(check->world, backend->open(check->world, &device, &check->backend));
}

enum status check_device(struct check *check) {
  struct check_result own;
  enum status status = open_backend(check);
  if (status == STATUS_OK) {
    check_say(&own, CHECK_OK, NULL, "%s", check->backend->description);
    TRY(placement_gather(check->world, check->backend->description, on_gpu(check), &check->placement));
  } else {
    check_say(&own, CHECK_OK, NULL, "-");
  }
  return check_add_status(check, "device", status, &own);
}

/* Data whose sum over the ranks is exact in float. */
static void fill(float *data, int64_t count, int rank) {
  for (int64_t i = 0; i < count; i++) data[i] = (float)(i % 1000 + rank);
}

static int64_t wrong(const float *data, int64_t count, int size) {
  for (int64_t i = 0; i < count; i++) {
    double sum = (double)(i % 1000) * size + 0.5 * size * (size - 1);
    if ((double)data[i] != sum) return i;
  }
  return -1;
}

/* Sums once for the result, then a few times for the speed. */
static enum status sum_over_ranks(struct backend *backend, float *host, void *device, int64_t count,
                                  double *seconds) {
  enum { REPEATS = 5 };
  const struct backend_table *table = backend->table;
  size_t bytes = (size_t)count * sizeof *host;
  TRY(table->upload(backend, device, host, bytes));
  TRY(table->allreduce(backend, device, count));
  TRY(table->comm_join(backend));
  TRY(table->download(backend, host, device, bytes));
  TRY(table->zero(backend, device, bytes));
  TRY(table->sync(backend));
  TRY(world_barrier(backend->world));
  double begin = clock_seconds();
  for (int i = 0; i < REPEATS; i++) TRY(table->allreduce(backend, device, count));
  TRY(table->comm_join(backend));
  TRY(table->sync(backend));
  *seconds = (clock_seconds() - begin) / REPEATS;
  return STATUS_OK;
}

enum status check_allreduce(struct check *check) {
  struct backend *backend = check->backend;
  const struct world *world = check->world;
  if (!backend || world->size == 1) return STATUS_OK;
  int64_t count = on_gpu(check) ? 16 << 20 : 1 << 20;
  size_t bytes = (size_t)count * sizeof(float);
  double seconds = 0;
  struct check_result own;
  void *device = NULL;
  float *host = malloc(bytes);
  enum status status = host ? STATUS_OK : RAISE(STATUS_INPUT, "no %zu bytes of memory", bytes);
  if (status == STATUS_OK) fill(host, count, world->rank);
  if (status == STATUS_OK) status = backend->table->alloc(backend, bytes, &device);
  status = world_agree(world, status);
  if (status == STATUS_OK)
    status = world_agree(world, sum_over_ranks(backend, host, device, count, &seconds));
  check_say(&own, CHECK_OK, NULL, "-");
  if (status == STATUS_OK) {
    int64_t at = wrong(host, count, world->size);
    double rate = 2.0 * (world->size - 1) / world->size * (double)bytes / seconds;
    if (at >= 0)
      check_say(&own, CHECK_FAIL, "a fault of network, NCCL or MPI: try other versions",
                "element %lld of the sum over %d ranks is %g", (long long)at, world->size, (double)host[at]);
    else
      check_say(&own, CHECK_OK, NULL, "%zu MiB in %.3f ms, %.2f GB/s (bus), every element right", bytes >> 20,
                seconds * 1e3, rate * 1e-9);
  }
  if (status != STATUS_COMM) backend->table->release(backend, device);
  free(host);
  return check_add_status(check, "all-reduce", status, &own);
}

int check_slow(const double *rate, int count) {
  int slow = 0;
  double best = 0;
  for (int r = 0; r < count; r++) {
    if (rate[r] < rate[slow]) slow = r;
    if (rate[r] > best) best = rate[r];
  }
  return 2 * rate[slow] < best ? slow : -1;
}

enum status check_products(struct check *check) {
  struct backend *backend = check->backend;
  const struct world *world = check->world;
  if (!backend) return STATUS_OK;
  bool gpu = on_gpu(check);
  struct bench_ceiling ceiling = {.memory_elements = gpu ? 64 << 20 : 4 << 20,
                                  .matrix_side = gpu ? 4096 : 512};
  struct check_result own;
  check_say(&own, CHECK_OK, NULL, "-");
  enum status status = world_agree(world, bench_ceiling(backend, &ceiling));
  double *rate = calloc((size_t)world->size, sizeof *rate);
  if (status == STATUS_OK && !rate) status = RAISE(STATUS_INPUT, "no memory for %d rates", world->size);
  status = world_agree(world, status);
  if (status == STATUS_OK) status = world_allgather(world, &ceiling.operations_per_s, sizeof *rate, rate);
  if (status == STATUS_OK) {
    int slow = check_slow(rate, world->size);
    check_say(&own, slow == world->rank ? CHECK_WARN : CHECK_OK,
              slow == world->rank
                  ? "look for other jobs on that host, for heat and power limits; all ranks wait for it"
                  : NULL,
              "%lld³ in %s: %.2f TFLOP/s, memory %.0f GB/s", (long long)ceiling.matrix_side,
              precision_choices[check->options.precision], ceiling.operations_per_s * 1e-12,
              ceiling.bytes_per_s * 1e-9);
  }
  free(rate);
  return check_add_status(check, "products", status, &own);
}
