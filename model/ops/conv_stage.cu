/* 3x3 convolutions of bf16 from 64 to 64 channels on 32x32 images (a CIFAR ResNet's first stage), stride 1,
 * pad 1: forward with the sums for batch normalisation, and the data gradient. Filters (74 KB) and a whole
 * image (144 KB) lie in shared memory, so that every tap reads what is there: a library's kernel for few
 * filters reads the image nine times, from L2.
 *
 * A block takes whole images. An image is cut in 4 bands of 8 rows, a band in 4 patches of 8x8 pixels, the 64
 * rows of a product. Three warp groups take every third patch; a fourth copies: an image's rows over those of
 * the last one that are done with. */
#include "model/ops/cuda_stage.h"
#include "model/ops/cuda_wgmma.h"

enum {
  SIZE = 32,
  CHANNELS = 64,
  PLANES = CHANNELS / 8,
  TAPS = 9,
  BANDS = SIZE / 8,
  PITCH = SIZE + 1, /* a row's last zero is the next one's first */
  IMAGE_PLANE = ((SIZE + 2) * PITCH + 1) * 16,
  FILTER_PLANE = CHANNELS * 16 + 16, /* planes shifted by 16 bytes lie in different banks */
  PATCHES = BANDS * SIZE / 8,
  GROUPS = 3, /* that multiply */
  WARPS = GROUPS * WGMMA_GROUP / 32,
  THREADS = (GROUPS + 1) * WGMMA_GROUP,
  PIXELS = SIZE * SIZE * CHANNELS, /* values of an image */
  BLOCKS = 132,
  SHARED = PLANES * IMAGE_PLANE + TAPS * PLANES * FILTER_PLANE
};

static int stage_blocks(int64_t n) {
  const int64_t images = ceil_div(n, BLOCKS);
  return (int)ceil_div(n, images);
}

#ifdef CONVOY_SM90A
/* Sums of a thread's values, less the warp's first value of the channel. */
struct stage_sums {
  float shift[16], sum[16], square[16];
};

/* Writes a patch, whose first pixel's first channel is `out`; adds to it if ADD. STATS: sums of what is
 * written. */
template <bool ADD, bool STATS>
static __device__ __forceinline__ void write_patch(const float (&d)[WGMMA_SUMS], bf16 *out, bool first,
                                                   stage_sums &sums) {
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % WGMMA_GROUP / 32, member = lane % 4;
  uint4 *to = reinterpret_cast<uint4 *>(out + (2 * warp * SIZE + lane / 4) * CHANNELS + 8 * member);
  enum { ROW = SIZE * CHANNELS / 8, HALF = 4 /* of a pixel's 64 channels */ };
  uint4 old[2][2];
  if (ADD)
#pragma unroll
    for (int i = 0; i < 4; i++) old[i / 2][i % 2] = to[i / 2 * ROW + i % 2 * HALF];
#pragma unroll
  for (int row = 0; row < 2; row++) {
    uint32_t v[2][4];
#pragma unroll
    for (int j = 0; j < 8; j++) v[j / 4][j % 4] = pack2(d[4 * j + 2 * row], d[4 * j + 2 * row + 1]);
    if (STATS) {
      if (row == 0 && first)
#pragma unroll
        for (int j = 0; j < 8; j++) {
          const uint32_t two = __shfl_sync(0xffffffffu, v[j / 4][j % 4], member);
          sums.shift[2 * j] = low_of(two), sums.shift[2 * j + 1] = high_of(two);
        }
#pragma unroll
      for (int i = 0; i < 16; i++) {
        const uint32_t two = v[i / 8][i / 2 % 4];
        const float x = (i % 2 ? high_of(two) : low_of(two)) - sums.shift[i];
        sums.sum[i] += x;
        sums.square[i] = fmaf(x, x, sums.square[i]);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
      transpose_quad(v[half], member);
      if (ADD) {
        const uint32_t o[4] = {old[row][half].x, old[row][half].y, old[row][half].z, old[row][half].w};
#pragma unroll
        for (int i = 0; i < 4; i++)
          v[half][i] = pack2(low_of(v[half][i]) + low_of(o[i]), high_of(v[half][i]) + high_of(o[i]));
      }
      to[row * ROW + half * HALF] = make_uint4(v[half][0], v[half][1], v[half][2], v[half][3]);
    }
  }
}

/* The block's mean and sum of squared differences from it, for each channel, from those of its warps. count:
 * values that this warp has summed. */
static __device__ __forceinline__ void finish_sums(stage_sums &sums, float2 *part, int count) {
  __shared__ float2 moments[WARPS][CHANNELS];
  __shared__ int counts[WARPS];
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  const float share = count ? 1.0f / (float)count : 0.0f;
#pragma unroll
  for (int i = 0; i < 16; i++) {
#pragma unroll
    for (int offset = 16; offset >= 4; offset /= 2) {
      sums.sum[i] += __shfl_xor_sync(0xffffffffu, sums.sum[i], offset);
      sums.square[i] += __shfl_xor_sync(0xffffffffu, sums.square[i], offset);
    }
    const float mean = sums.sum[i] * share;
    if (lane < 4)
      moments[warp][i / 2 * 8 + 2 * lane + i % 2] =
          make_float2(sums.shift[i] + mean, fmaxf(sums.square[i] - sums.sum[i] * mean, 0.0f));
  }
  if (lane == 0) counts[warp] = count;
  asm volatile("bar.sync 1, %0;" ::"n"(GROUPS * WGMMA_GROUP) : "memory"); /* of those that multiply */
  if (threadIdx.x >= CHANNELS) return;
  double mean = 0, square = 0, all = 0;
#pragma unroll
  for (int w = 0; w < WARPS; w++) {
    all += counts[w];
    mean += (double)counts[w] * (double)moments[w][threadIdx.x].x;
  }
  mean /= all;
#pragma unroll
  for (int w = 0; w < WARPS; w++) {
    const double off = (double)moments[w][threadIdx.x].x - mean;
    square += (double)moments[w][threadIdx.x].y + (double)counts[w] * off * off;
  }
  part[blockIdx.x * CHANNELS + threadIdx.x] = make_float2((float)mean, (float)square);
}

/* Copies rows [first, last] of an image; `thread` of `threads`, which take a row's halves in turn. */
template <int AT_ONCE>
static __device__ __forceinline__ void copy_rows(uint32_t image, const bf16 *from, int first, int last,
                                                 int thread, int threads) {
  const int plane = thread % PLANES, x = thread / PLANES % (SIZE / 2), step = threads / WGMMA_GROUP;
  const int halves = 2 * (last - first + 1);
  from += (first * SIZE + x) * CHANNELS + 8 * plane;
  image += (uint32_t)(plane * IMAGE_PLANE + ((first + 1) * PITCH + 1 + x) * 16);
  for (int half = thread / WGMMA_GROUP; half < halves; half += AT_ONCE * step) {
    uint4 v[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
      if (half + i * step < halves) v[i] = load_global(from + (half + i * step) * (SIZE / 2) * CHANNELS);
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      const int h = half + i * step;
      if (h < halves) store_shared(image + (uint32_t)((h / 2 * PITCH + h % 2 * (SIZE / 2)) * 16), v[i]);
    }
  }
}

/* By all threads. Blocks begin at different taps. */
static __device__ __forceinline__ void copy_filters(uint32_t filter, const bf16 *weight) {
  enum { TAP = CHANNELS * PLANES };
  static_assert(TAP == THREADS, "a thread takes one place of each tap");
  const int plane = (int)threadIdx.x % PLANES, row = (int)threadIdx.x / PLANES,
            first = (int)(blockIdx.x % TAPS);
  uint4 v[TAPS];
#pragma unroll
  for (int i = 0; i < TAPS; i++) {
    const int tap = first + i < TAPS ? first + i : first + i - TAPS;
    v[i] = load_global(weight + (row * TAPS + tap) * CHANNELS + 8 * plane);
  }
#pragma unroll
  for (int i = 0; i < TAPS; i++) {
    const int tap = first + i < TAPS ? first + i : first + i - TAPS;
    store_shared(filter + (uint32_t)((tap * PLANES + plane) * FILTER_PLANE + row * 16), v[i]);
  }
}

/* The products of a patch: of the pixels around (8 band, x), each tap's 64 channels. */
template <bool DATA>
static __device__ __forceinline__ void multiply_patch(float (&d)[WGMMA_SUMS], uint32_t image, uint32_t filter,
                                                      int band, int x) {
#ifdef CONVOY_WGMMA
  const uint64_t a = operand_rows(image + (uint32_t)((8 * band * PITCH + x) * 16), PITCH * 16,
                                  IMAGE_PLANE); /* of the tap (0, 0) */
  const uint64_t b =
      DATA ? operand_channels(filter, 128, FILTER_PLANE) : operand_rows(filter, 128, FILTER_PLANE);
  wgmma_begin();
#pragma unroll
  for (int tap = 0; tap < TAPS; tap++) {
    const int from = DATA ? TAPS - 1 - tap : tap; /* the gradient comes from the other side */
#pragma unroll
    for (int k = 0; k < CHANNELS / 16; k++)
      wgmma<0, DATA ? 1 : 0>(
          d, a + (uint64_t)((from / 3 * PITCH + from % 3) * 16 + 2 * k * IMAGE_PLANE) / 16,
          b + (uint64_t)(tap * PLANES * FILTER_PLANE + (DATA ? 2 * k * 128 : 2 * k * FILTER_PLANE)) / 16,
          tap + k > 0);
  }
  wgmma_commit();
#endif
}

/* What the copying group does. Rows that a band reads and the one above does not are a piece: `full` of them
 * when they are there, `empty` of a band when its products are done. */
static __device__ __forceinline__ void copy_images(const bf16 *in, int images, uint32_t image, uint32_t full,
                                                   uint32_t empty) {
  const int thread = (int)threadIdx.x % WGMMA_GROUP;
  for (int number = 0; number < images; number++)
    for (int band = 0; band < BANDS; band++) {
      if (number > 0) {
        const uint32_t phase = (uint32_t)(number - 1) & 1;
        if (band == 0) barrier_wait(empty, phase);
        if (band + 1 < BANDS) barrier_wait(empty + 8 * (uint32_t)(band + 1), phase);
      } else if (band == 0) {
        continue; /* all have copied it */
      }
      copy_rows<8>(image, in + (int64_t)(blockIdx.x + (unsigned)number * gridDim.x) * PIXELS,
                   band ? 8 * band + 1 : 0, band + 1 < BANDS ? 8 * band + 8 : SIZE - 1, thread, WGMMA_GROUP);
      fence_shared();
      barrier_arrive(full + 8 * (uint32_t)band);
    }
}

template <bool DATA, bool ADD, bool STATS>
__global__ void __launch_bounds__(THREADS, 1)
    stage_conv(const bf16 *in, const bf16 *weight, bf16 *out, int n, float2 *part) {
#ifdef CONVOY_WGMMA
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ uint64_t barriers[2 * BANDS];
  const uint32_t image = shared_address(memory), filter = image + PLANES * IMAGE_PLANE;
  const uint32_t full = shared_address(barriers), empty = full + 8 * BANDS;
  const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / WGMMA_GROUP, 0);
  const int images = (n - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
  if (threadIdx.x < 2 * BANDS)
    barrier_create(full + 8 * threadIdx.x,
                   threadIdx.x < BANDS ? WGMMA_GROUP : PATCHES / BANDS * WGMMA_GROUP / 32);
  for (int i = (int)threadIdx.x; i < PLANES * (2 * PITCH + SIZE + 1); i += THREADS) { /* the frame */
    const int plane = i % PLANES, at = i / PLANES;
    const int pixel = at <= PITCH       ? at
                      : at <= 2 * PITCH ? (SIZE + 1) * PITCH + at - PITCH
                                        : (at - 2 * PITCH + 1) * PITCH;
    *reinterpret_cast<uint4 *>(memory + plane * IMAGE_PLANE + pixel * 16) = make_uint4(0, 0, 0, 0);
  }
  copy_filters(filter, weight);
  copy_rows<5>(image, in + (int64_t)blockIdx.x * PIXELS, 0, 8, (int)threadIdx.x, THREADS);
  fence_shared();
  __syncthreads();
  if (group == GROUPS) {
    registers_fewer<56>();
    copy_images(in, images, image, full, empty);
  } else {
    registers_more<152>();
    stage_sums sums = {};
    int count = 0;
    for (int patch = group; patch < images * PATCHES; patch += GROUPS, count += 16) {
      const int number = patch / PATCHES, band = patch % PATCHES / (SIZE / 8), x = patch % (SIZE / 8) * 8;
      float d[WGMMA_SUMS];
      if (patch >= PATCHES / BANDS) /* the first band is there */
        barrier_wait(full + 8 * (uint32_t)band, (uint32_t)(band ? number : number - 1) & 1);
      fence_shared();
      multiply_patch<DATA>(d, image, filter, band, x);
      wgmma_wait<0>();
      wgmma_settle(d);
      if (threadIdx.x % 32 == 0) barrier_arrive(empty + 8 * (uint32_t)band);
      write_patch<ADD, STATS>(d,
                              out + (int64_t)(blockIdx.x + (unsigned)number * gridDim.x) * PIXELS +
                                  (8 * band * SIZE + x) * CHANNELS,
                              count == 0, sums);
    }
    if (STATS) finish_sums(sums, part, count);
  }
#endif
}

template <bool DATA, bool ADD, bool STATS>
static int launch(cudaStream_t stream, const struct thin_args *args, const void *in, const void *weight,
                  void *out, float *part) {
  int error = (int)cudaFuncSetAttribute(stage_conv<DATA, ADD, STATS>,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
  if (error) return error;
  stage_conv<DATA, ADD, STATS><<<(unsigned)stage_blocks(args->n), THREADS, SHARED, stream>>>(
      (const bf16 *)in, (const bf16 *)weight, (bf16 *)out, (int)args->n, (float2 *)part);
  return (int)cudaGetLastError();
}
#endif

static bool first_fits(const struct thin_args *a) {
#ifdef CONVOY_SM90A
  return hopper() && a->h == SIZE && a->w == SIZE && a->c == CHANNELS && a->filters == CHANNELS &&
         a->kernel_h == 3 && a->kernel_w == 3 && a->stride == 1 && a->pad == 1 &&
         a->n <= INT32_MAX / (SIZE * SIZE);
#else
  (void)a;
  return false;
#endif
}

bool kernel_stage_fits(const struct thin_args *args) {
  return first_fits(args) || stage2_fits(args);
}

int kernel_stage_parts(const struct thin_args *args) {
  return args->c == CHANNELS ? stage_blocks(args->n) : (int)args->n;
}

int kernel_stage_forward(cudaStream_t stream, const struct thin_args *args, const void *in,
                         const void *weight, void *out, float *part) {
  if (args->c != CHANNELS) return stage2_forward(stream, args, in, weight, out, part);
#ifdef CONVOY_SM90A
  if (part) return launch<false, false, true>(stream, args, in, weight, out, part);
  return launch<false, false, false>(stream, args, in, weight, out, part);
#else
  (void)stream, (void)args, (void)in, (void)weight, (void)out, (void)part;
  return (int)cudaErrorNotSupported;
#endif
}

int kernel_stage_data(cudaStream_t stream, const struct thin_args *args, const void *d_out,
                      const void *weight, void *d_in, bool add) {
  if (args->c != CHANNELS) return stage2_data(stream, args, d_out, weight, d_in, add);
#ifdef CONVOY_SM90A
  if (add) return launch<true, true, false>(stream, args, d_out, weight, d_in, nullptr);
  return launch<true, false, false>(stream, args, d_out, weight, d_in, nullptr);
#else
  (void)stream, (void)args, (void)d_out, (void)weight, (void)d_in, (void)add;
  return (int)cudaErrorNotSupported;
#endif
}
