/* What the kernels of batch normalisation share.
 *
 * Forward and backward each need sums over all rows before the first result. One kernel does both passes:
 * each block sums its rows, the blocks of a tile wait for each other, and each applies the result to the same
 * rows, the last read first, while they are still in the L2 cache. */
#ifndef CONVOY_MODEL_OPS_CUDA_NORM_H
#define CONVOY_MODEL_OPS_CUDA_NORM_H

#include "model/ops/cuda_channel.h"

extern "C" {
#include "model/ops/kernels.h"
}

enum {
  NORM_AT_ONCE = 4,  /* rows in flight a thread */
  NORM_BLOCKS = 132, /* that wait for each other, at most: one a multiprocessor */
};

/* A thread's way through its rows of a (rows, channels) array, NORM_AT_ONCE at a time. */
struct norm_walk {
  int64_t index; /* of the row that comes next, in elements */
  int step;      /* to the one behind it */
  int left;

  __device__ __forceinline__ norm_walk(const struct channel_grid &grid, const channel_place &at,
                                       bool backwards)
      : index(at.row * grid.channels + at.channel), step((int)(at.stride * grid.channels)),
        left((int)at.steps) {
    if (!backwards) return;
    index += (int64_t)(left - 1) * step;
    step = -step;
  }
  __device__ __forceinline__ bool has(int u) const { return u < left; }
  /* Of the row u behind, or the last one: loads need no branch. */
  __device__ __forceinline__ int64_t at(int u) const { return index + (u < left ? u : left - 1) * step; }
  __device__ __forceinline__ void advance() {
    index += NORM_AT_ONCE * (int64_t)step;
    left -= NORM_AT_ONCE;
  }
};

/* V values as they were loaded. */
template <typename T, int V> struct norm_row {
  pack<T, V> all;
  __device__ __forceinline__ void load(const T *p) { all = load_pack<T, V>(p); }
  __device__ __forceinline__ void load_once(const T *p) { all = load_last<T, V>(p); }
  __device__ __forceinline__ void read(float (&value)[V]) const { unpack<T, V>(all, value); }
};

/* As words: the compiler takes a pack's halves of words apart where they are loaded, and waits for them. */
template <> struct norm_row<bf16, 8> {
  uint4 all;
  __device__ __forceinline__ void load(const bf16 *p) { all = *reinterpret_cast<const uint4 *>(p); }
  __device__ __forceinline__ void load_once(const bf16 *p) {
    all = __ldcs(reinterpret_cast<const uint4 *>(p));
  }
  __device__ __forceinline__ void read(float (&value)[8]) const {
    const uint32_t word[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      value[2 * i] = __uint_as_float(word[i] << 16);
      value[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
    }
  }
};

/* Loads in front of this are under way before what follows it: the compiler would move those of the first row
 * behind the arrival of others. */
__device__ __forceinline__ void norm_loaded() {
  asm volatile("" ::: "memory");
}

/* Backward, what one thread a channel does with the sums of d and d (in - mean): the parameters' gradients,
 * and x = slant, y = offset of d_in = weight invstd (d - mean(d) - xhat mean(d xhat)) = scale d + slant (in -
 * mean)
 * + offset. share: 1 / rows; 0: mean and invstd are constants. */
static __device__ __forceinline__ float2 norm_finish(const struct norm_args &args, double2 total, float share,
                                                     float invstd, float weight, int64_t channel) {
  const float d_bias = (float)total.x, d_weight = (float)(total.y * (double)invstd);
  if (blockIdx.x == 0) {
    if (args.d_bias) args.d_bias[channel] = d_bias;
    if (args.d_weight) args.d_weight[channel] = d_weight;
  }
  const float scale = -weight * invstd * share;
  return make_float2(scale * d_weight * invstd, scale * d_bias);
}

static inline int norm_blocks(void) {
  int device = 0, multiprocessors = 1;
  (void)cudaGetDevice(&device);
  (void)cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  return multiprocessors < NORM_BLOCKS ? multiprocessors : NORM_BLOCKS;
}

/* Launches a kernel whose blocks wait for each other: an error if they are not resident together. */
template <typename K, typename... Args>
static int norm_launch(cudaStream_t stream, K kernel, const struct channel_grid &grid, Args... args) {
  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute attribute = {};
  config.gridDim = channel_blocks(grid);
  config.blockDim = dim3(CHANNEL_THREADS);
  config.stream = stream;
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  config.attrs = &attribute;
  config.numAttrs = grid.slices > 1 ? 1 : 0;
  return (int)cudaLaunchKernelEx(&config, kernel, args...);
}

static inline bool norm_aligned(const struct norm_args *a) {
  return aligned16(a->in) && aligned16(a->residual) && aligned16(a->out) && aligned16(a->weight) &&
         aligned16(a->bias) && aligned16(a->mean) && aligned16(a->invstd) && aligned16(a->running_mean) &&
         aligned16(a->running_var) && aligned16(a->d_out) && aligned16(a->d_in) && aligned16(a->d_residual) &&
         aligned16(a->d_weight) && aligned16(a->d_bias);
}

/* Calls body(type, vector) for the args. */
template <typename F> static int norm_with_vector(const struct norm_args *args, F body) {
  return with_type(args->dtype, [&](auto type) {
    typedef typename decltype(type)::type T;
    if (channel_wide<T>(args->channels, norm_aligned(args))) return body(type, number<wide<T>::count>());
    return body(type, number<1>());
  });
}

#endif
