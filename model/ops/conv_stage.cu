/* 3x3 convolutions of bf16 from 64 to 64 channels on 32x32 images (a CIFAR ResNet's first stage), stride 1,
 * pad 1: forward with the sums for batch normalisation, and the data gradient. Filters (74 KB) and a whole
 * image (144 KB) lie in shared memory, so that every tap reads what is there: a library's kernel for few
 * filters reads the image nine times, from L2.
 *
 * A block takes whole images. Four warp groups multiply: all filters, the 64 rows of a product, by 128
 * pixels, 8 columns of the image's upper and then of its lower half; so a product reads 96 bytes of shared
 * memory a clock, of 128 that it can. A fifth group copies: an image's rows over those of the last one that
 * are done with. */
#include "model/ops/cuda_stage.h"
#include "model/ops/cuda_wgmma.h"

enum {
  SIZE = 32,
  CHANNELS = 64,
  PLANES = CHANNELS / 8,
  TAPS = 9,
  HALF = SIZE / 2,  /* rows */
  PITCH = SIZE + 1, /* a row's last zero is the next one's first */
  IMAGE_PLANE = ((SIZE + 2) * PITCH + 1) * 16,
  FILTER_PLANE = CHANNELS * 16 + 16, /* planes shifted by 16 bytes lie in different banks */
  GROUPS = 4,                        /* that multiply: SIZE / 8 */
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
/* Of a thread's two filters, over its pixels: less the first value that it saw. */
struct stage_sums {
  float shift[2], sum[2], square[2];
};

/* 8 filters by 8 pixels, two neighbouring pixels of a filter a thread, become 8 pixels by 8 filters. */
static __device__ __forceinline__ uint32_t transpose_tile(uint32_t two) {
  uint32_t made;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(made) : "r"(two));
  return made;
}

/* Where a thread writes of a patch whose first pixel's first channel is `out`: in every second row 16 bytes,
 * of the pixel lane / 4. */
static __device__ __forceinline__ uint4 *place_of(bf16 *out) {
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % WGMMA_GROUP / 32, member = lane % 4;
  return reinterpret_cast<uint4 *>(out + (member / 2 * SIZE + lane / 4) * CHANNELS + 16 * warp +
                                   member % 2 * 8);
}

enum { TWO_ROWS = 2 * SIZE * CHANNELS / 8, PAIRS = HALF / 2, AHEAD = PAIRS / 2 };

/* What a patch is added to: rows from pair `first` on. */
static __device__ __forceinline__ void load_old(const uint4 *to, int first, uint4 (&old)[AHEAD]) {
#pragma unroll
  for (int i = 0; i < AHEAD; i++) old[i] = to[(first + i) * TWO_ROWS];
}

/* Writes a pair of rows of a patch; adds `old` if ADD. STATS: sums of what is written. */
template <bool ADD, bool STATS>
static __device__ __forceinline__ void write_pair(const float (&d)[2 * WGMMA_SUMS], int pair, uint4 *to,
                                                  const uint4 &old, bool first, stage_sums &sums) {
  uint32_t v[4];
#pragma unroll
  for (int i = 0; i < 4; i++) { /* row i / 2, filters i % 2 * 8 + lane / 4 */
    const int at = 4 * (2 * pair + i / 2) + 2 * (i % 2);
    v[i] = pack2(d[at], d[at + 1]);
    if (STATS) {
      const int f = i % 2;
      if (i < 2 && first) sums.shift[f] = low_of(v[i]);
      const float x = low_of(v[i]) - sums.shift[f], y = high_of(v[i]) - sums.shift[f];
      sums.sum[f] += x + y;
      sums.square[f] = fmaf(x, x, fmaf(y, y, sums.square[f]));
    }
    v[i] = transpose_tile(v[i]);
  }
  transpose_quad(v, (int)threadIdx.x % 4);
  if (ADD) add_pairs(v, old);
  to[pair * TWO_ROWS] = make_uint4(v[0], v[1], v[2], v[3]);
}

/* The block's mean and sum of squared differences from it, for each channel, from those of its threads, each
 * of `count` values: 4 lanes of each warp group have a channel. */
static __device__ __forceinline__ void finish_sums(const stage_sums &sums, float2 *part, int count) {
  enum { HOLDERS = 4 * GROUPS };
  __shared__ float2 moments[HOLDERS][CHANNELS];
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % WGMMA_GROUP / 32,
            holder = (int)threadIdx.x / WGMMA_GROUP * 4 + lane % 4;
  const float share = 1.0f / (float)count;
#pragma unroll
  for (int f = 0; f < 2; f++) {
    const float mean = sums.sum[f] * share;
    moments[holder][16 * warp + 8 * f + lane / 4] =
        make_float2(sums.shift[f] + mean, fmaxf(sums.square[f] - sums.sum[f] * mean, 0.0f));
  }
  meet_multiply<GROUPS * WGMMA_GROUP>();
  if (threadIdx.x >= CHANNELS) return;
  double mean = 0, square = 0;
#pragma unroll
  for (int h = 0; h < HOLDERS; h++) mean += (double)moments[h][threadIdx.x].x / HOLDERS;
#pragma unroll
  for (int h = 0; h < HOLDERS; h++) {
    const double off = (double)moments[h][threadIdx.x].x - mean;
    square += (double)moments[h][threadIdx.x].y + (double)count * off * off;
  }
  part[blockIdx.x * CHANNELS + threadIdx.x] = make_float2((float)mean, (float)square);
}

/* Copies rows [first, last] of an image; `thread` of `threads`, which take a row's halves in turn. They may
 * be overwritten once ready() returns. */
template <int AT_ONCE, typename F>
static __device__ __forceinline__ void copy_rows(uint32_t image, const bf16 *from, int first, int last,
                                                 int thread, int threads, F ready) {
  const int plane = thread % PLANES, x = thread / PLANES % (SIZE / 2), step = threads / WGMMA_GROUP;
  const int halves = 2 * (last - first + 1);
  from += (first * SIZE + x) * CHANNELS + 8 * plane;
  image += (uint32_t)(plane * IMAGE_PLANE + ((first + 1) * PITCH + 1 + x) * 16);
  for (int half = thread / WGMMA_GROUP; half < halves; half += AT_ONCE * step) {
    uint4 v[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
      if (half + i * step < halves) v[i] = load_global(from + (half + i * step) * (SIZE / 2) * CHANNELS);
    ready();
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      const int h = half + i * step;
      if (h < halves) store_shared(image + (uint32_t)((h / 2 * PITCH + h % 2 * (SIZE / 2)) * 16), v[i]);
    }
  }
}

/* Blocks begin at different taps. */
static __device__ __forceinline__ void copy_filters(uint32_t filter, const bf16 *weight) {
  enum { TAP = CHANNELS * PLANES };
  static_assert(TAP <= THREADS, "a thread takes at most one place of each tap");
  if (threadIdx.x >= TAP) return;
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

/* The products of a patch: of the pixels around it, each tap's 64 channels. */
template <bool DATA>
static __device__ __forceinline__ void multiply_patch(float (&d)[2 * WGMMA_SUMS], uint32_t patch,
                                                      uint32_t filter) {
#ifdef CONVOY_WGMMA
  const uint64_t a =
      DATA ? operand_channels(filter, 128, FILTER_PLANE) : operand_rows(filter, 128, FILTER_PLANE);
  const uint64_t b = operand_rows(patch, PITCH * 16, IMAGE_PLANE); /* of the tap (0, 0) */
  wgmma_begin();
#pragma unroll
  for (int tap = 0; tap < TAPS; tap++) {
    const int from = DATA ? TAPS - 1 - tap : tap; /* the gradient comes from the other side */
#pragma unroll
    for (int k = 0; k < CHANNELS / 16; k++)
      wgmma_wide<DATA ? 1 : 0, 0>(
          d, a + (uint64_t)(tap * PLANES * FILTER_PLANE + (DATA ? 2 * k * 128 : 2 * k * FILTER_PLANE)) / 16,
          b + (uint64_t)((from / 3 * PITCH + from % 3) * 16 + 2 * k * IMAGE_PLANE) / 16, tap + k > 0);
  }
  wgmma_commit();
#endif
}

/* What the copying group does: of the block's first image the rows that the upper half does not see, then
 * whole images. full[h]: half h may be read; empty[h]: its products are done. Both halves read the two rows
 * at the middle. */
static __device__ __forceinline__ void copy_images(const bf16 *in, int images, uint32_t image, uint32_t full,
                                                   uint32_t empty) {
  enum { MIDDLE = HALF - 1 };
  const int thread = (int)threadIdx.x % WGMMA_GROUP;
  for (int number = 0; number < images; number++) {
    const bf16 *from = in + (int64_t)(blockIdx.x + (unsigned)number * gridDim.x) * PIXELS;
    if (number > 0) {
      const uint32_t phase = (uint32_t)(number - 1) & 1;
      copy_rows<8>(image, from, 0, MIDDLE - 1, thread, WGMMA_GROUP, [&] { barrier_wait(empty, phase); });
      copy_rows<4>(image, from, MIDDLE, MIDDLE + 1, thread, WGMMA_GROUP,
                   [&] { barrier_wait(empty + 8, phase); });
      fence_shared();
      barrier_arrive(full);
    }
    copy_rows<8>(image, from, MIDDLE + 2, SIZE - 1, thread, WGMMA_GROUP, [] {});
    fence_shared();
    barrier_arrive(full + 8);
  }
}

template <bool DATA, bool ADD, bool STATS>
__global__ void __launch_bounds__(THREADS, 1)
    stage_conv(const bf16 *in, const bf16 *weight, bf16 *out, int n, float2 *part) {
#ifdef CONVOY_WGMMA
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ uint64_t barriers[4];
  const uint32_t image = shared_address(memory), filter = image + PLANES * IMAGE_PLANE;
  const uint32_t full = shared_address(barriers), empty = full + 16;
  const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / WGMMA_GROUP, 0);
  const int images = (n - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
  if (threadIdx.x < 4) barrier_create(full + 8 * threadIdx.x, threadIdx.x < 2 ? WGMMA_GROUP : WARPS);
  for (int i = (int)threadIdx.x; i < PLANES * (2 * PITCH + SIZE + 1); i += THREADS) { /* the frame */
    const int plane = i % PLANES, at = i / PLANES;
    const int pixel = frame_pixel<SIZE, PITCH>(at);
    *reinterpret_cast<uint4 *>(memory + plane * IMAGE_PLANE + pixel * 16) = make_uint4(0, 0, 0, 0);
  }
  copy_filters(filter, weight);
  copy_rows<7>(image, in + (int64_t)blockIdx.x * PIXELS, 0, HALF, (int)threadIdx.x, THREADS, [] {});
  fence_shared();
  __syncthreads();
  if (group == GROUPS) {
    registers_fewer<64>();
    copy_images(in, images, image, full, empty);
  } else {
    registers_more<104>();
    stage_sums sums = {};
#pragma unroll 1
    for (int half = 0; half < 2 * images; half++) {
      const int number = half / 2, y = half % 2 * HALF, x = 8 * group;
      const uint32_t turns = (uint32_t)number, side = (uint32_t)half % 2;
      float d[2 * WGMMA_SUMS];
      uint4 old[AHEAD], more[AHEAD];
      if (half > 0) /* the first one is there */
        barrier_wait(full + 8 * side, (side ? turns : turns - 1) & 1);
      fence_shared();
      multiply_patch<DATA>(d, image + (uint32_t)((y * PITCH + x) * 16), filter);
      uint4 *to =
          place_of(out + (int64_t)(blockIdx.x + turns * gridDim.x) * PIXELS + (y * SIZE + x) * CHANNELS);
      if (ADD) load_old(to, 0, old);
      wgmma_wait<0>();
      wgmma_settle(d);
      if (threadIdx.x % 32 == 0) barrier_arrive(empty + 8 * side);
#pragma unroll
      for (int pair = 0; pair < PAIRS; pair++) {
        if (ADD && pair == AHEAD / 2) load_old(to, AHEAD, more);
        write_pair<ADD, STATS>(d, pair, to, pair < AHEAD ? old[pair % AHEAD] : more[pair % AHEAD],
                               half == 0 && pair == 0, sums);
      }
    }
    if (STATS) finish_sums(sums, part, images * (2 * HALF * 2));
  }
#endif
}

template <bool DATA, bool ADD, bool STATS>
static int launch(cudaStream_t stream, const struct conv_args *args, const void *in, const void *weight,
                  void *out, float *part) {
  return launch_shared(stream, stage_conv<DATA, ADD, STATS>, (unsigned)stage_blocks(args->n), THREADS, SHARED,
                       (const bf16 *)in, (const bf16 *)weight, (bf16 *)out, (int)args->n, (float2 *)part);
}
#endif

static bool first_fits(const struct conv_args *a) {
#ifdef CONVOY_SM90A
  return hopper() && stage_shape(a, SIZE, CHANNELS) && a->n <= INT32_MAX / (SIZE * SIZE);
#else
  (void)a;
  return false;
#endif
}

bool kernel_stage_fits(const struct conv_args *args) {
  return first_fits(args) || stage2_fits(args) || stage4_fits(args);
}

/* Pieces are images. */
struct conv_moments kernel_stage_moments(const struct conv_args *args) {
  struct conv_moments moments = {0, args->n};
  if (args->c == CHANNELS) moments.parts = stage_blocks(args->n);
  if (args->c == STAGE2_CHANNELS) moments.parts = (int)args->n;
  return moments;
}

int kernel_stage_forward(cudaStream_t stream, const struct conv_args *args, const void *in,
                         const void *weight, void *out, float *part) {
  if (args->c == STAGE2_CHANNELS) return stage2_forward(stream, args, in, weight, out, part);
  if (args->c == STAGE4_CHANNELS) return stage4_forward(stream, args, in, weight, out);
#ifdef CONVOY_SM90A
  if (part) return launch<false, false, true>(stream, args, in, weight, out, part);
  return launch<false, false, false>(stream, args, in, weight, out, part);
#else
  (void)stream, (void)args, (void)in, (void)weight, (void)out, (void)part;
  return (int)cudaErrorNotSupported;
#endif
}

int kernel_stage_data(cudaStream_t stream, const struct conv_args *args, const void *d_out,
                      const void *weight, void *d_in, bool add) {
  if (args->c == STAGE2_CHANNELS) return stage2_data(stream, args, d_out, weight, d_in, add);
  if (args->c == STAGE4_CHANNELS) return stage4_data(stream, args, d_out, weight, d_in, add);
#ifdef CONVOY_SM90A
  if (add) return launch<true, true, false>(stream, args, d_out, weight, d_in, nullptr);
  return launch<true, false, false>(stream, args, d_out, weight, d_in, nullptr);
#else
  (void)stream, (void)args, (void)d_out, (void)weight, (void)d_in, (void)add;
  return (int)cudaErrorNotSupported;
#endif
}
