/* 3x3 convolutions of bf16 from 128 to 128 channels on 16x16 images (a CIFAR ResNet's second stage), stride
 * 1, pad 1: forward with the sums for batch normalisation, and the data gradient.
 *
 * A block takes one image, which lies in shared memory whole (77 KB), so that every tap reads what is there.
 * Filters come a tap at a time (32 KB), a few taps ahead. Four warp groups multiply, a patch of 8x8 pixels by
 * all 128 filters each; a fifth copies filters. Larger batches than one image a multiprocessor are left to a
 * library's kernels, which are as fast there. */
#include "model/ops/cuda_stage.h"
#include "model/ops/cuda_wgmma.h"

enum {
  SIZE = 16,
  CHANNELS = STAGE2_CHANNELS,
  PLANES = CHANNELS / 8,
  TAPS = 9,
  PITCH = SIZE + 1, /* a row's last zero is the next one's first */
  IMAGE_PLANE = ((SIZE + 2) * PITCH + 1) * 16,
  HALF = CHANNELS * 128, /* bytes of a tap's filters by 64 channels: 128 rows, swizzled */
  TAP = 2 * HALF,
  SLOTS = 4,  /* taps in shared memory */
  GROUPS = 4, /* that multiply: one a patch */
  WARPS = GROUPS * WGMMA_GROUP / 32,
  MULTIPLY = GROUPS * WGMMA_GROUP, /* threads */
  THREADS = MULTIPLY + WGMMA_GROUP,
  PIXELS = SIZE * SIZE * CHANNELS, /* values of an image */
  BLOCKS = 132,
  ALIGN = 1024, /* of swizzled rows */
  SHARED = PLANES * IMAGE_PLANE + SLOTS * TAP + ALIGN
};

#ifdef CONVOY_SM90A
/* Zeros around the image, and the image, by the threads that multiply: through registers, since copies to
 * planes are slow. In a warp 16 neighbours take 2 planes: whole 32 bytes of memory, and lines of shared
 * memory. */
static __device__ __forceinline__ void copy_image(uint8_t *image, const bf16 *in) {
  enum { AT_ONCE = MULTIPLY / (SIZE * PLANES) /* lines */ };
  const int plane = (int)threadIdx.x % 2 + (int)threadIdx.x / 32 % (PLANES / 2) * 2,
            x = (int)threadIdx.x / 2 % SIZE, y = (int)threadIdx.x / (32 * PLANES / 2);
  const uint32_t to =
      shared_address(image) + (uint32_t)(plane * IMAGE_PLANE + ((y + 1) * PITCH + 1 + x) * 16);
  uint4 v[SIZE / AT_ONCE];
  in += (y * SIZE + x) * CHANNELS + 8 * plane;
#pragma unroll
  for (int i = 0; i < SIZE / AT_ONCE; i++) v[i] = load_global(in + i * AT_ONCE * SIZE * CHANNELS);
  for (int i = (int)threadIdx.x; i < PLANES * (2 * PITCH + SIZE + 1); i += MULTIPLY) {
    const int at = i / PLANES;
    const int pixel = frame_pixel<SIZE, PITCH>(at);
    *reinterpret_cast<uint4 *>(image + i % PLANES * IMAGE_PLANE + pixel * 16) = make_uint4(0, 0, 0, 0);
  }
#pragma unroll
  for (int i = 0; i < SIZE / AT_ONCE; i++) store_shared(to + (uint32_t)(i * AT_ONCE * PITCH * 16), v[i]);
}

/* A tap's filters, by one warp group. */
static __device__ __forceinline__ void copy_tap(uint32_t slot, const bf16 *weight, int tap) {
  const int thread = (int)threadIdx.x % WGMMA_GROUP, filter = thread / 8, chunk = thread % 8;
  slot += (uint32_t)(filter * 128 + (chunk ^ filter % 8) * 16);
  weight += (filter * TAPS + tap) * CHANNELS + 8 * chunk;
#pragma unroll
  for (int f = 0; f < CHANNELS; f += WGMMA_GROUP / 8)
#pragma unroll
    for (int half = 0; half < 2; half++)
      copy16(slot + (uint32_t)(half * HALF + f * 128), weight + f * TAPS * CHANNELS + 64 * half, true);
}

/* d += the products of a tap: of the pixels around the patch, all channels. */
template <bool DATA>
static __device__ __forceinline__ void multiply_tap(float (&d)[2 * WGMMA_SUMS], uint32_t patch, uint32_t slot,
                                                    int tap) {
#ifdef CONVOY_WGMMA
  const int from = DATA ? TAPS - 1 - tap : tap; /* the gradient comes from the other side */
  const uint64_t a =
      operand_rows(patch + (uint32_t)((from / 3 * PITCH + from % 3) * 16), PITCH * 16, IMAGE_PLANE);
  const uint64_t b = operand_swizzled(slot, 1024, DATA ? HALF : 16);
  wgmma_begin();
#pragma unroll
  for (int k = 0; k < CHANNELS / 16;
       k++) /* 16 filters are two groups of rows; 16 channels 32 bytes of a row */
    wgmma_wide<0, DATA ? 1 : 0>(d, a + (uint64_t)(2 * k * IMAGE_PLANE) / 16,
                                b + (uint64_t)(DATA ? 2048 * k : k / 4 * HALF + k % 4 * 32) / 16,
                                tap + k > 0);
  wgmma_commit();
#endif
}

/* Moments of the warp's 16 pixels in one row of words v, of four 8-column tiles from `tile` on: mean, and sum
 * of squared differences from it. */
static __device__ __forceinline__ void warp_moments(const uint32_t (&top)[4], const uint32_t (&bottom)[4],
                                                    int tile, float2 *moments) {
  const int lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < 4; j++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const float x = e ? high_of(top[j]) : low_of(top[j]), y = e ? high_of(bottom[j]) : low_of(bottom[j]);
      const float shift = __shfl_sync(0xffffffffu, x, lane % 4);
      float sum = (x - shift) + (y - shift), square = (x - shift) * (x - shift) + (y - shift) * (y - shift);
#pragma unroll
      for (int offset = 16; offset >= 4; offset /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        square += __shfl_xor_sync(0xffffffffu, square, offset);
      }
      const float mean = sum * (1.0f / 16);
      if (lane < 4)
        moments[8 * (tile + j) + 2 * lane + e] = make_float2(shift + mean, fmaxf(square - sum * mean, 0.0f));
    }
}

/* Writes a patch, whose first pixel's first channel is `out`; adds to it if ADD. STATS: the warp's moments of
 * what is written. */
template <bool ADD, bool STATS>
static __device__ __forceinline__ void write_patch(const float (&d)[2 * WGMMA_SUMS], bf16 *out,
                                                   float2 *moments) {
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % WGMMA_GROUP / 32, member = lane % 4;
  uint4 *to = reinterpret_cast<uint4 *>(out + (2 * warp * SIZE + lane / 4) * CHANNELS + 8 * member);
  enum { ROW = SIZE * CHANNELS / 8, QUARTER = 4 /* of a pixel's 128 channels */ };
#pragma unroll
  for (int quarter = 0; quarter < 4; quarter++) {
    uint4 old[2];
    uint32_t v[2][4];
#pragma unroll
    for (int row = 0; row < 2; row++) {
      if (ADD) old[row] = to[row * ROW + quarter * QUARTER];
#pragma unroll
      for (int j = 0; j < 4; j++)
        v[row][j] = pack2(d[4 * (4 * quarter + j) + 2 * row], d[4 * (4 * quarter + j) + 2 * row + 1]);
    }
    if (STATS) warp_moments(v[0], v[1], 4 * quarter, moments);
#pragma unroll
    for (int row = 0; row < 2; row++) {
      transpose_quad(v[row], member);
      if (ADD) add_pairs(v[row], old[row]);
      to[row * ROW + quarter * QUARTER] = make_uint4(v[row][0], v[row][1], v[row][2], v[row][3]);
    }
  }
}

/* The image's moments, of those of its warps, 16 pixels each. */
static __device__ __forceinline__ void image_moments(const float2 (&moments)[WARPS][CHANNELS], float2 *part) {
  meet_multiply<GROUPS * WGMMA_GROUP>();
  if (threadIdx.x >= CHANNELS) return;
  double mean = 0, square = 0;
#pragma unroll
  for (int w = 0; w < WARPS; w++) mean += (double)moments[w][threadIdx.x].x / WARPS;
#pragma unroll
  for (int w = 0; w < WARPS; w++) {
    const double off = (double)moments[w][threadIdx.x].x - mean;
    square += (double)moments[w][threadIdx.x].y + SIZE * SIZE / WARPS * off * off;
  }
  part[blockIdx.x * CHANNELS + threadIdx.x] = make_float2((float)mean, (float)square);
}

template <bool DATA, bool ADD, bool STATS>
__global__ void __launch_bounds__(THREADS, 1)
    stage2_conv(const bf16 *in, const bf16 *weight, bf16 *out, float2 *part) {
#ifdef CONVOY_WGMMA
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ uint64_t barriers[2 * SLOTS];
  __shared__ float2 moments[WARPS][CHANNELS];
  const uint32_t filter = (shared_address(memory) + ALIGN - 1) / ALIGN * ALIGN, image = filter + SLOTS * TAP;
  const uint32_t full = shared_address(barriers), empty = full + 8 * SLOTS;
  const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / WGMMA_GROUP, 0);
  in += (int64_t)blockIdx.x * PIXELS, out += (int64_t)blockIdx.x * PIXELS;
  if (threadIdx.x < 2 * SLOTS)
    barrier_create(full + 8 * threadIdx.x, threadIdx.x < SLOTS ? WGMMA_GROUP : WARPS);
  fence_shared();
  __syncthreads();
  if (group == GROUPS) {
    registers_fewer<40>();
    for (int tap = 0; tap < TAPS; tap++) {
      const uint32_t slot = (uint32_t)(tap % SLOTS), turn = (uint32_t)(tap / SLOTS);
      if (turn > 0) barrier_wait(empty + 8 * slot, (turn - 1) & 1);
      copy_tap(filter + slot * TAP, weight, tap);
      barrier_arrive_copies(full + 8 * slot);
    }
  } else {
    registers_more<104>();
    copy_image(memory + (image - shared_address(memory)), in);
    fence_shared();
    meet_multiply<GROUPS * WGMMA_GROUP>();
    const int y = group / 2 * 8, x = group % 2 * 8;
    const uint32_t patch = image + (uint32_t)((y * PITCH + x) * 16);
    float d[2 * WGMMA_SUMS];
#pragma unroll 1
    for (int tap = 0; tap < TAPS; tap++) {
      const uint32_t slot = (uint32_t)(tap % SLOTS);
      barrier_wait(full + 8 * slot, (uint32_t)(tap / SLOTS) & 1);
      fence_shared();
      multiply_tap<DATA>(d, patch, filter + slot * TAP, tap);
      wgmma_wait<1>(); /* the tap before is done with */
      if (tap > 0 && threadIdx.x % 32 == 0) barrier_arrive(empty + 8 * (uint32_t)((tap - 1) % SLOTS));
    }
    wgmma_wait<0>();
    wgmma_settle(d);
    write_patch<ADD, STATS>(d, out + (y * SIZE + x) * CHANNELS, moments[threadIdx.x / 32]);
    if (STATS) image_moments(moments, part);
  }
#endif
}

template <bool DATA, bool ADD, bool STATS>
static int launch(cudaStream_t stream, const struct conv_args *args, const void *in, const void *weight,
                  void *out, float *part) {
  return launch_shared(stream, stage2_conv<DATA, ADD, STATS>, (unsigned)args->n, THREADS, SHARED,
                       (const bf16 *)in, (const bf16 *)weight, (bf16 *)out, (float2 *)part);
}
#endif

bool stage2_fits(const struct conv_args *a) {
#ifdef CONVOY_SM90A
  return hopper() && stage_shape(a, SIZE, CHANNELS) && a->n <= BLOCKS;
#else
  (void)a;
  return false;
#endif
}

int stage2_forward(cudaStream_t stream, const struct conv_args *args, const void *in, const void *weight,
                   void *out, float *part) {
#ifdef CONVOY_SM90A
  if (part) return launch<false, false, true>(stream, args, in, weight, out, part);
  return launch<false, false, false>(stream, args, in, weight, out, part);
#else
  (void)stream, (void)args, (void)in, (void)weight, (void)out, (void)part;
  return (int)cudaErrorNotSupported;
#endif
}

int stage2_data(cudaStream_t stream, const struct conv_args *args, const void *d_out, const void *weight,
                void *d_in, bool add) {
#ifdef CONVOY_SM90A
  if (add) return launch<true, true, false>(stream, args, d_out, weight, d_in, nullptr);
  return launch<true, false, false>(stream, args, d_out, weight, d_in, nullptr);
#else
  (void)stream, (void)args, (void)d_out, (void)weight, (void)d_in, (void)add;
  return (int)cudaErrorNotSupported;
#endif
}
