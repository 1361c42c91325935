/* Which GPU a rank takes, and whether two ranks took the same; no vendor header, so that it is tested without
 * one. */
#ifndef CONVOY_MODEL_BACKEND_GPU_MAP_H
#define CONVOY_MODEL_BACKEND_GPU_MAP_H

#include "model/backend/backend.h"
#include "model/base/error.h"
#include "model/base/world.h"

/* What the ranks tell each other about their devices. */
struct gpu_claim {
  char host[64];
  char pci[20]; /* the PCI bus id; "" if this rank has no device */
};

/* The device of this rank, of the `visible` ones that it sees (at least 1): the only one, else that of its
 * local rank. STATUS_INPUT with more seats on the host than devices, of which there are several. */
enum status gpu_choose(const struct world *world, int visible, int *device);

/* STATUS_INPUT naming the first two ranks that have the same device of a host; claims are by rank. */
enum status gpu_check_claims(const struct gpu_claim *claim, int ranks);

/* The most operations/s that a GPU of this compute capability can do in dense products, by its
 * multiprocessors and their clock in Hz (NVIDIA's architecture whitepapers; sums in fp32); 0: not known.
 * Cards for games have half in bf16 and tf32. */
double gpu_peak(int major, int minor, enum precision precision, int multiprocessors, double clock);

#endif
