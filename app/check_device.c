/* `convoy check`: the devices, sums over the ranks, and the rate of products. */
#include <stdlib.h>
#include <string.h>

#include "app/bench_ceiling.h"
#include "app/check.h"
#include "app/train_options.h"
#include "model/backend/devices.h"
#include "model/base/clock.h"

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
    TRY(placement_gather(check->world, check->backend->description, check->backend->table->device,
                         &check->placement));
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
  int64_t count = check->backend->table->device ? 16 << 20 : 1 << 20;
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

bool check_weak(double rate, double peak) {
  return 3 * rate < peak;
}

enum { PRECISIONS = PRECISION_BF16 + 1 };

/* By enum precision; 0: this device has none. */
struct rates {
  double operations_per_s[PRECISIONS], bytes_per_s;
};

static double peak_of(const struct check *check, enum precision precision) {
#ifdef CONVOY_CUDA
  if (check->backend->table->device) return cuda_peak(precision);
#endif
  (void)check, (void)precision;
  return 0;
}

/* By a backend of this rank alone, beside the one that is open. */
static enum status measure(const struct check *check, enum precision precision, struct rates *rates) {
  bool gpu = check->backend->table->device;
  struct bench_ceiling ceiling = {.memory_elements = gpu ? 64 << 20 : 4 << 20,
                                  .matrix_side = gpu ? 4096 : 512};
  struct backend_options device = {.precision = precision,
                                   .init_timeout_seconds = (int)check->options.init_timeout};
  struct world alone;
  struct backend *backend = NULL;
  TRY(world_part_open(check->world, check->world->rank, &alone));
  enum status status = check->backend->table->open(&alone, &device, &backend);
  if (status == STATUS_OK) status = bench_ceiling(backend, &ceiling);
  if (backend) backend->table->close(backend);
  world_part_close(&alone);
  rates->operations_per_s[precision] = ceiling.operations_per_s;
  rates->bytes_per_s = ceiling.bytes_per_s;
  return status;
}

/* On a GPU in every precision that all ranks' devices have. */
static enum status measure_all(const struct check *check, struct rates *rates) {
  enum precision wanted = (enum precision)check->options.precision;
  for (int p = 0; p < PRECISIONS; p++) {
    if (p != (int)wanted && !check->backend->table->device) continue;
    enum status status = world_agree(check->world, measure(check, (enum precision)p, rates));
    if (status == STATUS_INPUT && p != (int)wanted) {
      error_clear();
      rates->operations_per_s[p] = 0;
      continue;
    }
    TRY(status);
  }
  return STATUS_OK;
}

/* Warns of this rank if it is far slower than another one, or than such a device can be. */
static void judge_rates(const struct check *check, const struct rates *all, struct check_result *own) {
  const struct world *world = check->world;
  const struct rates *mine = &all[world->rank];
  const char *advice = NULL;
  char text[256] = "";
  size_t used = 0;
  for (int p = 0; p < PRECISIONS; p++) {
    double rate[2] = {mine->operations_per_s[p], 0};
    if (rate[0] == 0 || used >= sizeof text) continue;
    for (int r = 0; r < world->size; r++)
      if (all[r].operations_per_s[p] > rate[1]) rate[1] = all[r].operations_per_s[p];
    double peak = peak_of(check, (enum precision)p);
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %.3g", used ? ", " : "",
                             precision_choices[p], rate[0] * 1e-12);
    if (peak > 0 && used < sizeof text)
      used += (size_t)snprintf(text + used, sizeof text - used, " of %.3g", peak * 1e-12);
    if (check_slow(rate, 2) == 0)
      advice = "look for other jobs on that host, for heat and power limits; all ranks wait for it";
    else if (check_weak(rate[0], peak))
      advice =
          "far below what such a device can do: look for other jobs on it, for heat, power and clock limits";
  }
  check_say(own, advice ? CHECK_WARN : CHECK_OK, advice, "%d³: %s TFLOP/s; memory %.0f GB/s",
            check->backend->table->device ? 4096 : 512, text, mine->bytes_per_s * 1e-9);
}

enum status check_products(struct check *check) {
  const struct world *world = check->world;
  struct check_result own;
  struct rates mine;
  memset(&mine, 0, sizeof mine);
  if (!check->backend) return STATUS_OK;
  check_say(&own, CHECK_OK, NULL, "-");
  enum status status = measure_all(check, &mine);
  struct rates *all = calloc((size_t)world->size, sizeof *all);
  if (status == STATUS_OK && !all) status = RAISE(STATUS_INPUT, "no memory for %d rates", world->size);
  status = world_agree(world, status);
  if (status == STATUS_OK) status = world_allgather(world, &mine, sizeof mine, all);
  if (status == STATUS_OK) judge_rates(check, all, &own);
  free(all);
  return check_add_status(check, "products", status, &own);
}
