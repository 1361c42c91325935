/* Ranks and GPUs; see gpu_map.h. */
#include "model/backend/gpu_map.h"

#include <string.h>

enum status gpu_choose(const struct world *world, int visible, int *device) {
  if (visible > 1 && world->seats > visible)
    return RAISE(STATUS_INPUT, "host %s: %d ranks but %d visible GPUs: start at most one rank a GPU",
                 world->host, world->seats, visible);
  *device = visible == 1 ? 0 : world->seat;
  return STATUS_OK;
}

enum status gpu_check_claims(const struct gpu_claim *claim, int ranks) {
  for (int a = 0; a < ranks; a++)
    for (int b = a + 1; b < ranks; b++)
      if (claim[a].pci[0] && strcmp(claim[a].pci, claim[b].pci) == 0 &&
          strcmp(claim[a].host, claim[b].host) == 0)
        return RAISE(
            STATUS_INPUT,
            "host %s: ranks %d and %d have the same GPU (%s): start one rank a GPU, and let each see "
            "its own or all of them",
            claim[a].host, a, b, claim[a].pci);
  return STATUS_OK;
}

double gpu_peak(int major, int minor, enum precision precision, int multiprocessors, double clock) {
  static const struct {
    int major, minor, each[3]; /* operations of a multiprocessor in one cycle: fp32, tf32, bf16 */
  } known[] = {{8, 0, {128, 1024, 2048}}, {8, 6, {256, 512, 1024}},   {8, 9, {256, 512, 1024}},
               {9, 0, {256, 2048, 4096}}, {10, 0, {256, 4096, 8192}}, {10, 3, {256, 4096, 8192}}};
  int column = precision == PRECISION_FP32 ? 0 : precision == PRECISION_TF32 ? 1 : 2;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i].major == major && known[i].minor == minor)
      return (double)known[i].each[column] * multiprocessors * clock;
  return 0;
}
