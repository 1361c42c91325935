/* Convolution + bias + relu + maxpool for filters with few taps, as a first layer has: far too thin for a
 * library's tiles, and what lies between convolution and pooling need not exist.
 *
 * A block holds a band of an image in shared memory; a lane owns a filter and keeps its taps (forward) or
 * their gradients (backward) in registers; a warp takes one pooled place after the other. Only the places
 * that a pooling window chose have a gradient, so backward visits one convolution output a pooled one. */
#ifndef CONVOY_MODEL_OPS_CUDA_CONV_POOL_H
#define CONVOY_MODEL_OPS_CUDA_CONV_POOL_H

#include "model/ops/cuda_vector.h"

extern "C" {
#include "model/ops/kernels.h"
}

enum {
  BAND_FILTERS = 32,       /* of a block */
  BAND_BYTES = 40 << 10,   /* of shared memory, at most */
  BAND_MOST_BLOCKS = 256,  /* of backward */
  BAND_GROUP = 16,         /* blocks whose sums the last of them adds */
  BAND_MOST_TICKETS = 4096 /* counters that there are */
};

/* How an image is cut into bands. Rows of a band in shared memory are `pitch` floats apart. */
struct band_grid {
  int rows;          /* pooled rows of a band */
  int bands;         /* of an image */
  int tile_h, pitch; /* of the band in shared memory */
  int64_t items;     /* bands of all images; an int on the device */
};

/* At least `items` bands if there can be, and none larger than the shared memory. */
static inline struct band_grid band_grid(const struct conv_pool_args *args, int64_t items) {
  struct band_grid grid;
  const int width = (args->w + 2 * args->pad) * args->c + 2; /* a pair may be read past the end */
  const int shift = (args->pool * args->c + 1) / 2 * 2; /* the choices of a window fall in different banks */
  grid.pitch = (width - shift + 31) / 32 * 32 + shift;
  grid.rows = args->out_h;
  for (;;) {
    grid.bands = (args->out_h + grid.rows - 1) / grid.rows;
    grid.tile_h = (grid.rows - 1) * args->pool_stride + args->pool - 1 + args->kernel_h;
    grid.items = args->n * grid.bands;
    bool large = (size_t)grid.tile_h * (size_t)grid.pitch * sizeof(float) > BAND_BYTES;
    if (grid.rows == 1 || (!large && grid.items >= items)) return grid;
    grid.rows = (grid.rows + 1) / 2;
  }
}

static inline size_t band_bytes(const struct band_grid *grid) {
  return (size_t)grid->tile_h * (size_t)grid->pitch * sizeof(float);
}

static inline unsigned band_filter_blocks(const struct conv_pool_args *args) {
  return (unsigned)ceil_div(args->filters, BAND_FILTERS);
}

/* Calls body(R, S, C) as constants, if the filters are of a size that is compiled. */
template <typename F> static inline int with_taps(const struct conv_pool_args *args, F body) {
  const int r = args->kernel_h, s = args->kernel_w, c = args->c;
  if (r == 3 && s == 3 && c == 3) return body(number<3>(), number<3>(), number<3>());
  if (r == 3 && s == 3 && c == 1) return body(number<3>(), number<3>(), number<1>());
  if (r == 5 && s == 5 && c == 1) return body(number<5>(), number<5>(), number<1>());
  return (int)cudaErrorInvalidValue;
}

/* The image of band number `item`, and its first pooled row there. */
struct band_place {
  int image, top;
};

__device__ __forceinline__ band_place band_at(const struct band_grid &grid, int item) {
  const int image = item / grid.bands;
  return {image, (item - image * grid.bands) * grid.rows};
}

/* The band's rows of the image, zero where it is padded. */
template <typename T>
__device__ __forceinline__ void band_fill(const struct conv_pool_args &args, const struct band_grid &grid,
                                          const band_place &place, float *tile) {
  const int first = place.top * args.pool_stride - args.pad;
  const int row = args.w * args.c, left = args.pad * args.c, warps = (int)blockDim.x / 32;
  const T *image = (const T *)args.in + (int64_t)place.image * args.h * row;
  for (int y = (int)threadIdx.x / 32; y < grid.tile_h; y += warps) {
    const bool inside = first + y >= 0 && first + y < args.h;
    const T *from = image + (int64_t)(first + y) * row - left;
#pragma unroll 4
    for (int x = (int)threadIdx.x % 32; x < grid.pitch; x += 32)
      tile[y * grid.pitch + x] = inside && x >= left && x < left + row ? to_float(from[x]) : 0.0f;
  }
}

/* The pooled places of a band that a warp takes: every warps-th. */
struct band_walk {
  int o, count;    /* the place, of so many in the band */
  int x, y, width; /* where it is */
  int64_t first;   /* the band's first place, in all of out */
};

__device__ __forceinline__ band_walk band_walk_begin(const struct conv_pool_args &args,
                                                     const struct band_grid &grid, const band_place &place) {
  const int left = args.out_h - place.top, rows = left < grid.rows ? left : grid.rows;
  band_walk walk;
  walk.o = (int)threadIdx.x / 32;
  walk.count = rows * args.out_w;
  walk.width = args.out_w;
  walk.y = walk.o / walk.width;
  walk.x = walk.o - walk.y * walk.width;
  walk.first = ((int64_t)place.image * args.out_h + place.top) * args.out_w;
  return walk;
}

__device__ __forceinline__ void band_walk_on(band_walk &walk) {
  const int warps = (int)blockDim.x / 32;
  walk.o += warps;
  walk.x += warps;
  while (walk.x >= walk.width) walk.x -= walk.width, walk.y++;
}

#endif
