/* Digests of the parameters, gathered and compared; see replica.h. */
#include "app/replica.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct replica {
  uint64_t digest;
  char host[64];
};

static int count_equal(const struct replica *all, int size, uint64_t digest) {
  int count = 0;
  for (int r = 0; r < size; r++) count += all[r].digest == digest;
  return count;
}

/* The digest that most ranks have; of equally frequent ones that of the lowest rank. */
static uint64_t usual_digest(const struct replica *all, int size) {
  int best = 0, most = 0;
  for (int r = 0; r < size; r++) {
    int count = count_equal(all, size, all[r].digest);
    if (count > most) best = r, most = count;
  }
  return all[best].digest;
}

static enum status compare(const struct replica *all, int size, int64_t step) {
  uint64_t usual = usual_digest(all, size);
  int odd = 0;
  while (odd < size && all[odd].digest == usual) odd++;
  if (odd == size) return STATUS_OK;
  enum status status =
      RAISE(STATUS_COMM,
            "replica mismatch after step %" PRId64
            ": rank %d on host %s holds other parameters than %s (digest %016" PRIx64 ", expected %016" PRIx64
            "); its device or memory may be faulty; this step was not saved; start again with --resume",
            step, odd, all[odd].host, size == 2 ? "rank 0, or rank 0 is the wrong one" : "most ranks",
            all[odd].digest, usual);
  for (int r = odd + 1; r < size; r++)
    if (all[r].digest != usual) error_detail("rank %d on host %s differs too", r, all[r].host);
  return status;
}

enum status replica_check(const struct world *world, const float *params, int64_t count, int64_t step) {
  if (world->size == 1) return STATUS_OK;
  struct replica mine = {.digest = XXH3_64bits(params, (size_t)count * sizeof *params)};
  struct replica *all = calloc((size_t)world->size, sizeof *all);
  enum status status = all ? STATUS_OK : RAISE(STATUS_INPUT, "no memory for %d digests", world->size);
  snprintf(mine.host, sizeof mine.host, "%s", world->host);
  TRY_OUT(world_agree(world, status));
  TRY_OUT(world_allgather(world, &mine, sizeof mine, all));
  status = world_agree(world, compare(all, world->size, step));
out:
  free(all);
  return status;
}

enum status replica_disturb(const struct world *world, struct net *net, int64_t step) {
  const char *wish = getenv("CONVOY_TEST_PERTURB_RANK");
  int rank;
  long long from = 0;
  if (!wish || sscanf(wish, "%d@%lld", &rank, &from) < 1 || rank != world->rank || step < from)
    return STATUS_OK;
  unsetenv("CONVOY_TEST_PERTURB_RANK");
  float *params = malloc((size_t)net_region_count(net, NET_PARAMS) * sizeof *params);
  if (!params) return RAISE(STATUS_INPUT, "no memory for a copy of the parameters");
  enum status status;
  uint32_t bits;
  TRY_OUT(net_read(net, NET_PARAMS, params));
  memcpy(&bits, params, sizeof bits);
  bits ^= 1;
  memcpy(params, &bits, sizeof bits);
  TRY_OUT(net_write(net, NET_PARAMS, params));
out:
  free(params);
  return status;
}
