/* How kernels walk an array of (rows, channels), and sums over the rows with a fixed order.
 *
 * A block owns a tile of lanes * V neighbouring channels (blockIdx.y) and every gridDim.x-th group of rows; a
 * thread keeps its V channels, so what belongs to a channel stays in registers, and a warp reads whole
 * 128-byte lines. */
#ifndef CONVOY_MODEL_OPS_CUDA_CHANNEL_H
#define CONVOY_MODEL_OPS_CUDA_CHANNEL_H

#include "model/ops/cuda_vector.h"

enum {
  CHANNEL_THREADS = 512,
  CHANNEL_LANES = 16, /* at most */
  CHANNEL_TILE = 64,  /* channels of a block at most: 128 bytes of bf16 */
  CHANNEL_SUM_BLOCKS = 264,
  CHANNEL_EACH_BLOCKS = 132 * 2
};

struct channel_grid {
  int64_t rows, channels;
  int lanes;     /* threads side by side: a power of two */
  int tile_rows; /* rows a block reads at once */
  int tiles;     /* blocks along the channels */
  int slices;    /* blocks along the rows: tiles * slices is at most `blocks`, or slices is 1 */
  /* Each thread has `rounds` rows, those that begin in the first `rest` rows one more. */
  int64_t rounds, rest;
};

static inline void channel_slice(struct channel_grid *grid, int slices) {
  const int64_t stride = (int64_t)slices * grid->tile_rows;
  grid->slices = slices;
  grid->rounds = grid->rows / stride;
  grid->rest = grid->rows % stride;
}

/* `vector`: channels a thread holds, a divisor of channels. */
static inline struct channel_grid channel_grid(int64_t rows, int64_t channels, int vector, int blocks) {
  struct channel_grid grid = {rows, channels, 1, 0, 0, 0, 0, 0};
  int64_t packs = channels / vector;
  while (grid.lanes < CHANNEL_LANES && grid.lanes * vector < CHANNEL_TILE && grid.lanes < packs)
    grid.lanes *= 2;
  grid.tile_rows = CHANNEL_THREADS / grid.lanes;
  grid.tiles = (int)ceil_div(packs, grid.lanes);
  int64_t slices = blocks / grid.tiles, most = ceil_div(rows, grid.tile_rows);
  if (slices > most) slices = most;
  channel_slice(&grid, slices < 1 ? 1 : (int)slices);
  return grid;
}

static inline dim3 channel_blocks(const struct channel_grid &grid) {
  return dim3((unsigned)grid.slices, (unsigned)grid.tiles);
}

/* Floats of workspace of channel_sum and channel_sum_all. */
static inline size_t channel_partials(const struct channel_grid *grid, int vector) {
  return (size_t)grid->tiles * (size_t)grid->slices * 2 * (size_t)(grid->lanes * vector);
}

/* Where a thread stands. */
struct channel_place {
  int64_t channel, row, stride; /* its first channel, its first row, and the step to the next */
  int64_t steps;                /* its rows; 0 beyond the last channel */
};

__device__ __forceinline__ channel_place channel_here(const struct channel_grid &grid, int vector) {
  channel_place at;
  const int lane = (int)threadIdx.x & (grid.lanes - 1);
  at.channel = ((int64_t)blockIdx.y * grid.lanes + lane) * vector;
  at.row = (int64_t)blockIdx.x * grid.tile_rows + ((int)threadIdx.x >> __popc((unsigned)grid.lanes - 1));
  at.stride = (int64_t)gridDim.x * grid.tile_rows;
  at.steps = at.channel < grid.channels ? grid.rounds + (at.row < grid.rest ? 1 : 0) : 0;
  return at;
}

/* What a block's sums need: in shared memory. */
struct channel_sums {
  float2 warp[CHANNEL_THREADS / 32][CHANNEL_TILE];
  double2 group[CHANNEL_THREADS];
  bool last;
};

/* Sums a and b over a block's threads, within a warp, then over the warps in order, to its place in
 * `partial`.
 */
template <int V>
__device__ __forceinline__ void channel_sum_block(float (&a)[V], float (&b)[V],
                                                  const struct channel_grid &grid, float2 *partial,
                                                  channel_sums &sums) {
  const int tile = grid.lanes * V, lane = (int)threadIdx.x & (grid.lanes - 1), warp = (int)threadIdx.x / 32;
#pragma unroll
  for (int i = 0; i < V; i++) {
    for (int offset = 16; offset >= grid.lanes; offset /= 2) {
      a[i] += __shfl_xor_sync(0xffffffffu, a[i], offset);
      b[i] += __shfl_xor_sync(0xffffffffu, b[i], offset);
    }
    if ((int)(threadIdx.x % 32) < grid.lanes) sums.warp[warp][lane * V + i] = make_float2(a[i], b[i]);
  }
  __syncthreads();
  if ((int)threadIdx.x < tile) {
    float2 sum = make_float2(0, 0);
#pragma unroll
    for (int w = 0; w < CHANNEL_THREADS / 32; w++) {
      sum.x += sums.warp[w][threadIdx.x].x;
      sum.y += sums.warp[w][threadIdx.x].y;
    }
    __stcg(&partial[((size_t)blockIdx.y * gridDim.x + blockIdx.x) * (size_t)tile + threadIdx.x], sum);
  }
}

/* Sums the partial sums of a tile over its blocks, in order. The first threads of the block get the totals,
 * each of the channel of its number: x is the sum of a, y that of b. */
static __device__ __forceinline__ double2 channel_sum_slices(int tile, const float2 *partial,
                                                             channel_sums &sums) {
  enum { LOADS = 8 }; /* in flight */
  const int groups = CHANNEL_THREADS / tile, v = (int)threadIdx.x % tile, group = (int)threadIdx.x / tile;
  const float2 *all = partial + (size_t)blockIdx.y * gridDim.x * (size_t)tile + v;
  double2 sum = make_double2(0, 0), whole = sum;
  for (int s = group; s < (int)gridDim.x; s += LOADS * groups) {
    float2 part[LOADS];
#pragma unroll
    for (int u = 0; u < LOADS; u++)
      part[u] = s + u * groups < (int)gridDim.x ? __ldcg(&all[(size_t)(s + u * groups) * (size_t)tile])
                                                : make_float2(0, 0);
#pragma unroll
    for (int u = 0; u < LOADS; u++) {
      sum.x += (double)part[u].x;
      sum.y += (double)part[u].y;
    }
  }
  sums.group[threadIdx.x] = sum;
  __syncthreads();
  if ((int)threadIdx.x < tile)
    for (int g = 0; g < groups; g++) {
      whole.x += sums.group[g * tile + (int)threadIdx.x].x;
      whole.y += sums.group[g * tile + (int)threadIdx.x].y;
    }
  return whole;
}

/* Sums a and b of all threads of all blocks that share a tile. Returns true in the block that comes last, in
 * all its threads; *total is then as channel_sum_slices gives it. partial: channel_partials floats, aligned
 * to 8 bytes; tickets: one a tile, zero before and after. */
template <int V>
__device__ bool channel_sum(float (&a)[V], float (&b)[V], const struct channel_grid &grid, float *partial,
                            uint32_t *tickets, channel_sums &sums, double2 *total) {
  channel_sum_block<V>(a, b, grid, (float2 *)partial, sums);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) sums.last = atomicInc(&tickets[blockIdx.y], gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (!sums.last) return false;
  __threadfence();
  *total = channel_sum_slices(grid.lanes * V, (const float2 *)partial, sums);
  return true;
}

/* The same totals in every block: the blocks of a tile wait for each other, so they must all be resident at
 * once. tickets: two a tile, zero before and after. */
template <int V>
__device__ double2 channel_sum_all(float (&a)[V], float (&b)[V], const struct channel_grid &grid,
                                   float *partial, uint32_t *tickets, channel_sums &sums) {
  uint32_t *arrived = &tickets[2 * blockIdx.y], *left = arrived + 1;
  channel_sum_block<V>(a, b, grid, (float2 *)partial, sums);
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t count;
    __threadfence();
    atomicAdd(arrived, 1u);
    do asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(count) : "l"(arrived) : "memory");
    while (count < gridDim.x);
  }
  __syncthreads();
  const double2 total = channel_sum_slices(grid.lanes * V, (const float2 *)partial, sums);
  if (threadIdx.x == 0 && atomicInc(left, gridDim.x - 1) == gridDim.x - 1) *arrived = 0;
  return total;
}

/* May a thread hold 16 bytes of neighbouring channels? */
template <typename T> static inline bool channel_wide(int64_t channels, bool aligned) {
  return aligned && channels % wide<T>::count == 0;
}

#endif
