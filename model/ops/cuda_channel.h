/* How kernels walk an array of (rows, channels), and a sum over the rows with a fixed order.
 *
 * A block owns a tile of lanes * V neighbouring channels (blockIdx.y) and every gridDim.x-th group of rows; a
 * thread keeps its V channels, so what belongs to a channel stays in registers, and a warp reads whole
 * 128-byte lines. */
#ifndef CONVOY_MODEL_OPS_CUDA_CHANNEL_H
#define CONVOY_MODEL_OPS_CUDA_CHANNEL_H

#include "model/ops/cuda_vector.h"

enum {
  CHANNEL_THREADS = 512,
  CHANNEL_MAX_LANES = 16,
  CHANNEL_SUM_BLOCKS = 264,
  CHANNEL_EACH_BLOCKS = 132 * 16
};

struct channel_grid {
  int64_t rows, channels;
  int lanes;     /* threads side by side: a power of two, at most CHANNEL_MAX_LANES */
  int tile_rows; /* rows a block reads at once */
  int tiles;     /* blocks along the channels */
  int slices;    /* blocks along the rows */
};

/* `vector`: channels a thread holds, a divisor of channels. */
static inline struct channel_grid channel_grid(int64_t rows, int64_t channels, int vector, int blocks) {
  struct channel_grid grid = {rows, channels, 1, 0, 0, 0};
  int64_t packs = channels / vector;
  while (grid.lanes < CHANNEL_MAX_LANES && grid.lanes < packs) grid.lanes *= 2;
  grid.tile_rows = CHANNEL_THREADS / grid.lanes;
  grid.tiles = (int)ceil_div(packs, grid.lanes);
  int64_t slices = ceil_div(blocks, grid.tiles), most = ceil_div(rows, grid.tile_rows);
  grid.slices = (int)(slices < most ? slices : most);
  if (grid.slices < 1) grid.slices = 1;
  return grid;
}

static inline size_t channel_partials(const struct channel_grid *grid, int vector) {
  return (size_t)grid->tiles * (size_t)grid->slices * 2 * (size_t)(grid->lanes * vector);
}

/* Where a thread stands. */
struct channel_place {
  int lane;
  int64_t channel, row, stride; /* its first channel, its first row, and the step to the next */
};

__device__ __forceinline__ channel_place channel_here(const struct channel_grid &grid, int vector) {
  channel_place at;
  at.lane = (int)threadIdx.x & (grid.lanes - 1);
  at.channel = ((int64_t)blockIdx.y * grid.lanes + at.lane) * vector;
  at.row = (int64_t)blockIdx.x * grid.tile_rows + (int)threadIdx.x / grid.lanes;
  at.stride = (int64_t)gridDim.x * grid.tile_rows;
  return at;
}

/* Sums a and b of all threads of all blocks that share a tile: within a warp, over the warps of a block in
 * order, and in the tile's last block over the blocks in order. Returns true there, in all threads;
 * total[2][lanes * V] then holds the sums of a, then those of b. partial: channel_partials floats; tickets:
 * one a tile, zero before and after. */
template <int V>
__device__ bool channel_sum(float (&a)[V], float (&b)[V], const struct channel_grid &grid, float *partial,
                            uint32_t *tickets, double (&total)[2 * CHANNEL_MAX_LANES * V]) {
  constexpr int WARPS = CHANNEL_THREADS / 32;
  __shared__ float warp_sum[WARPS][2 * CHANNEL_MAX_LANES * V];
  __shared__ double group_sum[CHANNEL_THREADS];
  __shared__ bool last;
  const int tile = grid.lanes * V, values = 2 * tile;
  const int lane = (int)threadIdx.x & (grid.lanes - 1), warp = (int)threadIdx.x / 32;
#pragma unroll
  for (int i = 0; i < V; i++) {
    for (int offset = 16; offset >= grid.lanes; offset /= 2) {
      a[i] += __shfl_xor_sync(0xffffffffu, a[i], offset);
      b[i] += __shfl_xor_sync(0xffffffffu, b[i], offset);
    }
    if ((int)(threadIdx.x % 32) < grid.lanes) {
      warp_sum[warp][lane * V + i] = a[i];
      warp_sum[warp][tile + lane * V + i] = b[i];
    }
  }
  __syncthreads();
  float *mine = partial + ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * (size_t)values;
  for (int v = (int)threadIdx.x; v < values; v += CHANNEL_THREADS) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum += warp_sum[w][v];
    mine[v] = sum;
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc(&tickets[blockIdx.y], gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (!last) return false;
  __threadfence();
  /* values divides CHANNEL_THREADS: it is a power of two of at most 2 * 16 * 8. */
  const int groups = CHANNEL_THREADS / values, v = (int)threadIdx.x % values,
            group = (int)threadIdx.x / values;
  const float *all = partial + (size_t)blockIdx.y * gridDim.x * (size_t)values;
  double sum = 0;
#pragma unroll 8
  for (int s = group; s < (int)gridDim.x; s += groups) sum += (double)__ldcg(&all[(size_t)s * values + v]);
  group_sum[threadIdx.x] = sum;
  __syncthreads();
  if ((int)threadIdx.x < values) {
    double whole = 0;
    for (int g = 0; g < groups; g++) whole += group_sum[g * values + (int)threadIdx.x];
    total[threadIdx.x] = whole;
  }
  __syncthreads();
  return true;
}

/* V for rows of `channels` values of T at these addresses. */
template <typename T> static inline bool channel_wide(int64_t channels, bool aligned) {
  return aligned && channels % wide<T>::count == 0;
}

#endif
