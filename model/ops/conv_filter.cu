/* Filter gradients of 3x3 convolutions of bf16, stride 1, pad 1, channels and filters in groups of 64, on
 * tensor cores with fp32 sums and fp32 results.
 *
 * A block makes the gradient of 64 filters by 64 channels, all nine taps, over its part of the pixels: three
 * warp groups, a row of taps each, sum products of the same d_out with in as each tap sees it, a fourth
 * copies. So nine products are made of what a block reads once. The parts are added in order by a second
 * kernel (parts.cu). */
#include "model/ops/cuda_wgmma.h"

extern "C" {
#include "model/ops/kernels.h"
}

enum {
  GROUPS = 3, /* that multiply */
  THREADS = (GROUPS + 1) * WGMMA_GROUP,
  TAPS = 9,
  PLANES = 8, /* of a block's 64 channels */
  BLOCKS = 132,
  ALIGN = 1024, /* of swizzled rows */
  TILES = 4,    /* of 64 filters by 64 channels, at most: with more, a library's kernel is as fast */
  WORTH = 160   /* images of 32x32, or as many pixels, at most: likewise */
};

/* How pixels are walked, by the image's width. */
template <int W> struct walk {
  static constexpr int rows = W == 32 ? 4 : 8; /* of an image in a stage: with all its columns */
  static constexpr int images = W == 8 ? 2 : 1;
  static constexpr int pixels = images * rows * W; /* of d_out: 128 */
  static constexpr int pitch = W + 1;              /* of in: a row's last zero is the next one's first */
  static constexpr int part = (rows + 2) * pitch + 1;
  static constexpr int around = images * part | 1; /* pixels of in; odd: planes lie in different banks */
  static constexpr int stages = 4;
  static constexpr int out_bytes = pixels * 128, in_plane = around * 16;
  static constexpr int bytes = (out_bytes + PLANES * in_plane + ALIGN - 1) / ALIGN * ALIGN; /* of a stage */
};

struct filter_shape {
  int h, channels, filters, blocks_c, splits;
  int64_t stages; /* in all */
};

static int64_t stages_of(const struct conv_args *a) {
  return a->n * a->h * a->w / 128;
}

/* Blocks that share the pixels: they fill the device once, and are as few as take the same time. */
static int splits_of(const struct conv_args *a) {
  const int64_t tiles = a->c / 64 * (a->filters / 64), stages = stages_of(a);
  int64_t most = BLOCKS / tiles > 0 ? BLOCKS / tiles : 1;
  if (most > stages) most = stages;
  return (int)ceil_div(stages, ceil_div(stages, most));
}

bool kernel_filter_fits(const struct conv_args *a) {
#ifdef CONVOY_SM90A
  if (!hopper() || a->kernel_h != 3 || a->kernel_w != 3 || a->stride != 1 || a->pad != 1 || a->c % 64 != 0 ||
      a->filters % 64 != 0 || a->n < 1 || a->n * a->h * a->w > INT32_MAX / 4096)
    return false;
  const int64_t tiles = a->c / 64 * (a->filters / 64);
  if (tiles > TILES || a->n * a->h * a->w > (int64_t)WORTH * 32 * 32) return false;
  if (a->w == 8) return a->h == 8 && a->n % 2 == 0;
  return (a->w == 16 && a->h % 8 == 0) || (a->w == 32 && a->h % 4 == 0);
#else
  (void)a;
  return false;
#endif
}

static int64_t filter_count(const struct conv_args *a) {
  return TAPS * a->filters * a->c;
}

size_t kernel_filter_workspace(const struct conv_args *args) {
  const int splits = splits_of(args);
  return splits > 1 ? (size_t)splits * (size_t)filter_count(args) : 0;
}

#ifdef CONVOY_SM90A
/* Copies what a stage sums over: d_out's pixels, swizzled rows of 64 filters, and in's with those around, in
 * planes, so that a tap is an offset. `thread` of N. */
template <int W, int N>
static __device__ __forceinline__ void copy_stage(const filter_shape &s, const bf16 *in, const bf16 *d_out,
                                                  int64_t stage, uint32_t memory, int thread) {
  typedef walk<W> K;
  enum { AT_ONCE = N / PLANES /* pixels */ };
  const int plane = thread % PLANES, mine = thread / PLANES;
  uint32_t out_at = memory + (uint32_t)(mine * 128 + (plane ^ mine % 8) * 16),
           in_at = memory + (uint32_t)(K::out_bytes + plane * K::in_plane);
  in += stage * K::pixels * s.channels + 8 * plane;
  d_out += (stage * K::pixels + mine) * s.filters + 8 * plane;
  static_assert(AT_ONCE % 8 == 0, "a thread's pixels lie alike in their groups of 8");
#pragma unroll 4
  for (int i = mine; i < K::pixels; i += AT_ONCE, out_at += AT_ONCE * 128, d_out += AT_ONCE * s.filters)
    copy16(out_at, d_out, true);
  enum { LINES = K::rows + 2, STEP = W < AT_ONCE ? AT_ONCE / W : 1 };
  const int top = (int)(stage * K::pixels / W % s.h), x = mine % W; /* row in the image, and column */
  in += x * s.channels, in_at += (uint32_t)(1 + x) * 16;
  for (int image = 0; image < K::images; image++, in += K::rows * W * s.channels, in_at += K::part * 16)
#pragma unroll 2
    for (int line = mine / W; line < LINES; line += STEP) {
      const bool inside = top + line >= 1 && top + line <= s.h;
      const bf16 *from = in + (inside ? line - 1 : 0) * W * s.channels;
#pragma unroll
      for (int i = 0; i < W; i += AT_ONCE)
        copy16(in_at + (uint32_t)(line * K::pitch + i) * 16, from + i * s.channels, inside);
    }
}

/* Zeros left and right of the images, which no copy overwrites. */
template <int W> static __device__ __forceinline__ void clear_frame(uint8_t *memory) {
  typedef walk<W> K;
  enum { COUNT = K::images * (K::rows + 3) };
  for (int i = (int)threadIdx.x; i < K::stages * COUNT * PLANES; i += THREADS) {
    const int plane = i % PLANES, at = i / PLANES % COUNT, stage = i / PLANES / COUNT;
    const int pixel = at / (K::rows + 3) * K::part + at % (K::rows + 3) * K::pitch;
    *reinterpret_cast<uint4 *>(memory + stage * K::bytes + K::out_bytes + plane * K::in_plane + pixel * 16) =
        make_uint4(0, 0, 0, 0);
  }
}

/* d[dx] += the products of a stage for the taps (dy, dx). */
template <int W>
static __device__ __forceinline__ void multiply_stage(float (&d)[3][WGMMA_SUMS], uint32_t memory, int dy) {
#ifdef CONVOY_WGMMA
  typedef walk<W> K;
  const uint64_t a = operand_swizzled(memory, 1024, 16);
  memory += K::out_bytes;
  wgmma_begin();
  /* 16 pixels at a time: of a row, or of two rows of 8 */
  const uint64_t b =
      operand_channels(memory + (uint32_t)(dy * K::pitch * 16), W == 8 ? K::pitch * 16 : 128, K::in_plane);
#pragma unroll
  for (int p = 0; p < K::pixels; p += 16)
#pragma unroll
    for (int dx = 0; dx < 3; dx++)
      wgmma<1, 1>(d[dx], a + (uint64_t)(p * 128) / 16,
                  b + (uint64_t)(p / (K::rows * W) * K::part + p / W % K::rows * K::pitch + p % W + dx), 1);
  wgmma_commit();
#endif
}

/* A block's place: a tile of 64 filters by 64 channels, and its part of the stages. */
template <int W>
__global__ void __launch_bounds__(THREADS, 1)
    filter_parts(const __grid_constant__ filter_shape s, const bf16 *in, const bf16 *d_out, float *parts) {
#ifdef CONVOY_WGMMA
  typedef walk<W> K;
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ uint64_t barriers[2 * K::stages + 1];
  const uint32_t base = (shared_address(memory) + ALIGN - 1) / ALIGN * ALIGN, full = shared_address(barriers),
                 empty = full + 8 * K::stages, begun = empty + 8 * K::stages;
  const int block_c = (int)blockIdx.x % s.blocks_c, block_f = (int)blockIdx.x / s.blocks_c;
  const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / WGMMA_GROUP, 0);
  const int64_t first = s.stages * blockIdx.y / s.splits;
  const int count = (int)(s.stages * (blockIdx.y + 1) / s.splits - first);
  in += 64 * block_c, d_out += 64 * block_f;
  if (threadIdx.x < K::stages) {
    barrier_create(full + 8 * threadIdx.x, WGMMA_GROUP);
    barrier_create(empty + 8 * threadIdx.x, GROUPS * WGMMA_GROUP / 32);
  }
  if (threadIdx.x == 0) barrier_create(begun, THREADS);
  copy_stage<W, THREADS>(s, in, d_out, first, base, (int)threadIdx.x); /* the first one by all */
  clear_frame<W>(memory + (base - shared_address(memory)));
  fence_shared();
  __syncthreads();
  barrier_arrive_copies(begun);
  if (group == GROUPS) {
    registers_fewer<40>();
    for (int i = 1; i < count; i++) {
      const uint32_t slot = (uint32_t)(i % K::stages), turn = (uint32_t)(i / K::stages);
      if (turn > 0) barrier_wait(empty + 8 * slot, (turn - 1) & 1);
      copy_stage<W, WGMMA_GROUP>(s, in, d_out, first + i, base + slot * K::bytes,
                                 (int)threadIdx.x % WGMMA_GROUP);
      barrier_arrive_copies(full + 8 * slot);
    }
  } else {
    registers_more<152>();
    float d[3][WGMMA_SUMS];
#pragma unroll
    for (int i = 0; i < 3 * WGMMA_SUMS; i++) d[i / WGMMA_SUMS][i % WGMMA_SUMS] = 0.0f;
    for (int i = 0; i < count; i++) {
      const uint32_t slot = (uint32_t)(i % K::stages), turn = (uint32_t)(i / K::stages);
      if (i == 0)
        barrier_wait(begun, 0);
      else
        barrier_wait(full + 8 * slot, (slot ? turn : turn - 1) & 1);
      fence_shared();
      multiply_stage<W>(d, base + slot * K::bytes, group);
      wgmma_wait<1>(); /* the stage before is done with */
      if (i > 0 && threadIdx.x % 32 == 0) barrier_arrive(empty + 8 * (slot ? slot - 1 : K::stages - 1));
    }
    wgmma_wait<0>();
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % WGMMA_GROUP / 32;
    const int64_t filter = (int64_t)blockIdx.y * s.filters + 64 * block_f + 16 * warp + lane / 4;
    float *to = parts + (filter * TAPS + 3 * group) * s.channels + 64 * block_c + 2 * (lane % 4);
#pragma unroll
    for (int dx = 0; dx < 3; dx++) {
      wgmma_settle(d[dx]);
#pragma unroll
      for (int i = 0; i < WGMMA_SUMS; i += 2)
        *reinterpret_cast<float2 *>(to + (i / 2 % 2 * 8 * TAPS + dx) * s.channels + i / 4 * 8) =
            make_float2(d[dx][i], d[dx][i + 1]);
    }
  }
#endif
}

template <int W>
static int launch(cudaStream_t stream, const struct conv_args *a, const void *in, const void *d_out,
                  float *d_weight, float *workspace) {
  const filter_shape s = {(int)a->h,        (int)a->c,    (int)a->filters,
                          (int)(a->c / 64), splits_of(a), stages_of(a)};
  const int bytes = walk<W>::stages * walk<W>::bytes + ALIGN;
  const dim3 grid((unsigned)(a->c / 64 * (a->filters / 64)), (unsigned)s.splits);
  const int error = launch_shared(stream, filter_parts<W>, grid, THREADS, bytes, s, (const bf16 *)in,
                                  (const bf16 *)d_out, s.splits > 1 ? workspace : d_weight);
  if (error || s.splits == 1) return error;
  return kernel_sum_parts(stream, workspace, d_weight, filter_count(a), s.splits);
}
#endif

int kernel_filter(cudaStream_t stream, const struct conv_args *args, const void *in, const void *d_out,
                  float *d_weight, float *workspace) {
#ifdef CONVOY_SM90A
  switch (args->w) {
  case 8:
    return launch<8>(stream, args, in, d_out, d_weight, workspace);
  case 16:
    return launch<16>(stream, args, in, d_out, d_weight, workspace);
  case 32:
    return launch<32>(stream, args, in, d_out, d_weight, workspace);
  }
#else
  (void)stream, (void)args, (void)in, (void)d_out, (void)d_weight, (void)workspace;
#endif
  return (int)cudaErrorNotSupported;
}
