/* 3x3 convolutions of bf16 from 512 to 512 channels on 4x4 images (a CIFAR ResNet's last stage), stride 1,
 * pad 1: forward and the data gradient.
 *
 * A block takes 64 filters, 16 images and half of the channels that are summed; the two blocks of a cluster
 * add their sums. So filters (4.7 MB) are read eight times and images (2 MB) eight times, of which a block
 * keeps its part (168 KB) in shared memory. The images lie beside each other, pixel by pixel: a product's 64
 * columns are a row of pixels of all images, a tap is an offset, and rows that a tap sees outside of the
 * images, a sixth of all, are left out. Its 64 rows are the filters, which pass shared memory on their way
 * into registers and serve for four products there.
 *
 * Two warp groups multiply, each half of every 64 channels, a third copies filters, a fourth images. Larger
 * batches than the device can take at once are left to a library's kernels. */
#include "model/ops/cuda_stage.h"
#include "model/ops/cuda_wgmma.h"

enum {
  SIZE = 4,
  PIXELS = SIZE * SIZE,
  CHANNELS = STAGE4_CHANNELS,
  TAPS = 9,
  PARTS = 2,                      /* of the channels: blocks of a cluster */
  CHUNKS = CHANNELS / PARTS / 64, /* of a block: 64 channels, a row of 128 bytes */
  IMAGES = 16,
  SHARE = IMAGES / PARTS, /* images that a block writes */
  PITCH = SIZE + 1,       /* a row's last zero is the next one's first */
  PLACE = IMAGES * 128,   /* bytes: a pixel of all images, swizzled rows */
  CHUNK = (SIZE * PITCH + 1) * PLACE,
  SLOT = WGMMA_TILE * 128, /* a tap's filters by 64 channels */
  SLOTS = 7,
  STEPS = 2, /* of 16 channels: what a group takes of a slot */
  GROUPS = 64 / 16 / STEPS,
  MULTIPLY = GROUPS * WGMMA_GROUP, /* threads */
  THREADS = MULTIPLY + 2 * WGMMA_GROUP,
  SUMS_PITCH = WGMMA_TILE + 4, /* floats: neighbours of a fragment lie in different banks */
  SUMS = PIXELS * IMAGES * SUMS_PITCH,
  MOST = 132 / (PARTS * CHANNELS / WGMMA_TILE) * IMAGES, /* in one go */
  ALIGN = 1024,                                          /* of swizzled rows */
  SHARED = CHUNKS * CHUNK + SLOTS * SLOT + ALIGN
};
static_assert(GROUPS * SUMS * 4 <= CHUNKS * CHUNK, "sums take the images' place");

#ifdef CONVOY_SM90A
/* All threads of the cluster; what they wrote before it is there for all. */
static __device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
static __device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/* Where a block of the cluster has what this one has at `address` of its shared memory. */
static __device__ __forceinline__ uint32_t address_in(uint32_t address, uint32_t block) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}
static __device__ __forceinline__ float4 load_cluster(uint32_t address) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
/* Zeros left and right of the images' rows, by all threads. */
static __device__ __forceinline__ void clear_sides(uint32_t image) {
  enum { SIDE = PLACE / 16, SIDES = SIZE + 1 };
  for (int i = (int)threadIdx.x; i < CHUNKS * SIDES * SIDE; i += THREADS) {
    const int side = i / SIDE % SIDES, chunk = i / SIDE / SIDES;
    store_shared(image + (uint32_t)(chunk * CHUNK + side * PITCH * PLACE + i % SIDE * 16),
                 make_uint4(0, 0, 0, 0));
  }
}

/* Images `in`, of which `count` exist, by one warp group: each chunk once the one before is there, so that
 * filters come meanwhile. */
static __device__ __forceinline__ void copy_images(uint32_t image, const bf16 *in, int count,
                                                   uint32_t there) {
  const int thread = (int)threadIdx.x % WGMMA_GROUP, row = thread / 8, piece = thread % 8;
  const bool inside = row < count;
  in += (inside ? row : 0) * PIXELS * CHANNELS + 8 * piece;
  image += (uint32_t)(row * 128 + (piece ^ row % 8) * 16);
  for (int chunk = 0; chunk < CHUNKS; chunk++, in += 64, image += CHUNK) {
#pragma unroll
    for (int i = 0; i < PIXELS; i++)
      copy16(image + (uint32_t)((i / SIZE * PITCH + 1 + i % SIZE) * PLACE), in + i * CHANNELS, inside);
    barrier_arrive_copies(there + 8 * (uint32_t)chunk);
    barrier_wait(there + 8 * (uint32_t)chunk, 0);
  }
}

/* Filters, slot by slot, by one warp group. */
template <bool DATA>
static __device__ __forceinline__ void copy_filters(uint32_t filter, const bf16 *weight, uint32_t full,
                                                    uint32_t empty) {
  enum { ROWS = WGMMA_GROUP / 8 /* at once */ };
  const int thread = (int)threadIdx.x % WGMMA_GROUP, row = thread / 8, piece = thread % 8;
  weight += row * TAPS * CHANNELS + 8 * piece;
  filter += (uint32_t)(row * 128 + (piece ^ row % 8) * 16);
  for (uint32_t i = 0; i < CHUNKS * TAPS; i++) {
    const uint32_t slot = i % SLOTS, turn = i / SLOTS;
    const bf16 *from = weight + i / TAPS * 64 * (DATA ? TAPS * CHANNELS : 1) + i % TAPS * CHANNELS;
    if (turn > 0) barrier_wait(empty + 8 * slot, (turn - 1) & 1);
#pragma unroll
    for (int r = 0; r < WGMMA_TILE; r += ROWS)
      copy16(filter + slot * SLOT + (uint32_t)(r * 128), from + r * TAPS * CHANNELS, true);
    barrier_arrive_copies(full + 8 * slot);
  }
}

/* Where a lane reads of a slot: a row of one of the four matrices of its warp's 16 filters by the group's
 * first 16 channels. The gradient's are channels of a slot's row, and what is summed are its rows. */
template <bool DATA> static __device__ __forceinline__ uint32_t fragment_place(int group) {
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % WGMMA_GROUP / 32, matrix = lane / 8;
  const int step = group * STEPS;
  const int row = DATA ? 16 * step + matrix / 2 * 8 + lane % 8 : 16 * warp + matrix % 2 * 8 + lane % 8;
  const int piece = DATA ? 2 * warp + matrix % 2 : 2 * step + matrix / 2;
  return (uint32_t)(row * 128 + (piece ^ row % 8) * 16);
}

/* d[y] += the products of a tap for row y of the pixels. */
template <bool DATA>
static __device__ __forceinline__ void multiply_tap(float (&d)[SIZE][WGMMA_SUMS],
                                                    const uint32_t (&a)[STEPS][4], uint64_t chunk, int tap) {
#ifdef CONVOY_WGMMA
  const int from = DATA ? TAPS - 1 - tap : tap; /* the gradient comes from the other side */
  wgmma_begin();
#pragma unroll
  for (int k = 0; k < STEPS; k++)
#pragma unroll
    for (int y = 0; y < SIZE; y++) {
      const int seen = y + from / 3 - 1;
      if (seen >= 0 && seen < SIZE)
        wgmma_fragment<0>(d[y], a[k], chunk + (uint64_t)((seen * PITCH + from % 3) * PLACE + 32 * k) / 16);
    }
  wgmma_commit();
#endif
}

/* All products of a group. A slot is free once its filters are in registers, which the products wait for. */
template <bool DATA>
static __device__ __forceinline__ void multiply_all(float (&d)[SIZE][WGMMA_SUMS], uint32_t image,
                                                    uint32_t filter, uint32_t there, uint32_t full,
                                                    uint32_t empty, int group) {
#ifdef CONVOY_WGMMA
  const uint32_t place = filter + fragment_place<DATA>(group);
  uint32_t slot = 0, phase = 0;
#pragma unroll
  for (int i = 0; i < SIZE * WGMMA_SUMS; i++) d[i / WGMMA_SUMS][i % WGMMA_SUMS] = 0.0f;
#pragma unroll 1
  for (uint32_t chunk = 0; chunk < CHUNKS; chunk++) {
    const uint64_t b = operand_swizzled(image + chunk * CHUNK + (uint32_t)(group * STEPS * 32), 1024, 16);
    barrier_wait(there + 8 * chunk, 0);
    fence_shared();
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++) {
      uint32_t a[STEPS][4];
      barrier_wait(full + 8 * slot, phase);
#pragma unroll
      for (uint32_t k = 0; k < STEPS; k++) /* 16 channels are 16 rows, or 32 bytes: two pieces */
        load_matrices<DATA>(a[k], DATA ? place + slot * SLOT + k * 16 * 128 : (place + slot * SLOT) ^ k * 32);
      multiply_tap<DATA>(d, a, b, tap);
      barrier_arrive(empty + 8 * slot); /* each lane for what it read itself */
      if (++slot == SLOTS) slot = 0, phase ^= 1;
      wgmma_wait<1>();
    }
    wgmma_wait<0>();
  }
#pragma unroll
  for (int y = 0; y < SIZE; y++) wgmma_settle(d[y]);
#endif
}

/* The group's sums as (pixel, image, filter). */
static __device__ __forceinline__ void leave_sums(const float (&d)[SIZE][WGMMA_SUMS], float *sums) {
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % WGMMA_GROUP / 32;
  sums += lane % 4 * 2 * SUMS_PITCH + 16 * warp + lane / 4;
#pragma unroll
  for (int y = 0; y < SIZE; y++)
#pragma unroll
    for (int i = 0; i < WGMMA_SUMS; i++)
      sums[(y * WGMMA_TILE + i / 4 * 8 + i % 2) * SUMS_PITCH + i / 2 % 2 * 8] = d[y][i];
}

/* Adds what both blocks left and writes this one's share, `count` images from `out` on; adds to it if ADD.
 * 16 threads write a pixel. */
template <bool ADD>
static __device__ __forceinline__ void write_share(const float *sums, bf16 *out, int count, uint32_t part) {
  enum { IMAGE = PIXELS * CHANNELS / 4 };
  const int pixel = (int)threadIdx.x / 16, four = (int)threadIdx.x % 16 * 4;
  const int mine = (pixel * IMAGES + (int)part * SHARE) * SUMS_PITCH + four;
  const uint32_t other = address_in(shared_address(sums + mine), part ^ 1);
  uint2 *to = reinterpret_cast<uint2 *>(out + pixel * CHANNELS + four), old[SHARE], v[SHARE];
  if (ADD)
#pragma unroll
    for (int i = 0; i < SHARE; i++)
      if (i < count) old[i] = to[i * IMAGE];
  cluster_wait();
#pragma unroll
  for (int i = 0; i < SHARE; i++) {
    float s[4] = {};
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
      const int at = group * SUMS + i * SUMS_PITCH;
      const float4 here = *reinterpret_cast<const float4 *>(sums + mine + at),
                   there = load_cluster(other + (uint32_t)at * 4);
      s[0] += here.x + there.x, s[1] += here.y + there.y, s[2] += here.z + there.z, s[3] += here.w + there.w;
    }
    if (ADD) {
      s[0] += low_of(old[i].x), s[1] += high_of(old[i].x);
      s[2] += low_of(old[i].y), s[3] += high_of(old[i].y);
    }
    v[i] = make_uint2(pack2(s[0], s[1]), pack2(s[2], s[3]));
  }
  cluster_arrive(); /* the other block may end */
#pragma unroll
  for (int i = 0; i < SHARE; i++)
    if (i < count) to[i * IMAGE] = v[i];
  cluster_wait();
}

template <bool DATA, bool ADD>
__global__ void __cluster_dims__(PARTS, 1, 1) __launch_bounds__(THREADS, 1)
    stage4_conv(const bf16 *in, const bf16 *weight, bf16 *out, int n) {
#ifdef CONVOY_WGMMA
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ uint64_t barriers[2 * SLOTS + CHUNKS];
  const uint32_t image = (shared_address(memory) + ALIGN - 1) / ALIGN * ALIGN,
                 filter = image + CHUNKS * CHUNK;
  const uint32_t full = shared_address(barriers), empty = full + 8 * SLOTS, there = empty + 8 * SLOTS;
  const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / WGMMA_GROUP, 0);
  const int part = (int)blockIdx.x, tile = (int)blockIdx.y * WGMMA_TILE, first = (int)blockIdx.z * IMAGES;
  if (threadIdx.x < 2 * SLOTS + CHUNKS)
    barrier_create(full + 8 * threadIdx.x, threadIdx.x / SLOTS == 1 ? MULTIPLY : WGMMA_GROUP);
  clear_sides(image);
  fence_shared();
  __syncthreads();
  if (group >= GROUPS) {
    registers_fewer<40>();
    const int channel = part * CHUNKS * 64;
    if (group == GROUPS)
      copy_filters<DATA>(
          filter, weight + (DATA ? channel * TAPS * CHANNELS + tile : tile * TAPS * CHANNELS + channel), full,
          empty);
    else
      copy_images(image, in + (int64_t)first * PIXELS * CHANNELS + channel, n - first, there);
    cluster_arrive();
    cluster_wait();
    cluster_arrive();
    cluster_wait();
  } else {
    registers_more<208>();
    float d[SIZE][WGMMA_SUMS];
    multiply_all<DATA>(d, image, filter, there, full, empty, group);
    float *sums = reinterpret_cast<float *>(memory + (image - shared_address(memory)));
    const int mine = first + part * SHARE;
    meet_multiply<GROUPS * WGMMA_GROUP>(); /* images are done with */
    leave_sums(d, sums + group * SUMS);
    cluster_arrive();
    write_share<ADD>(sums, out + (int64_t)mine * PIXELS * CHANNELS + tile, n - mine, (uint32_t)part);
  }
#endif
}

template <bool DATA, bool ADD>
static int launch(cudaStream_t stream, const struct conv_args *args, const void *in, const void *weight,
                  void *out) {
  const dim3 grid(PARTS, CHANNELS / WGMMA_TILE, (unsigned)ceil_div(args->n, IMAGES));
  return launch_shared(stream, stage4_conv<DATA, ADD>, grid, THREADS, SHARED, (const bf16 *)in,
                       (const bf16 *)weight, (bf16 *)out, (int)args->n);
}
#endif

bool stage4_fits(const struct conv_args *a) {
#ifdef CONVOY_SM90A
  return hopper() && stage_shape(a, SIZE, CHANNELS) && a->n <= MOST;
#else
  (void)a;
  return false;
#endif
}

int stage4_forward(cudaStream_t stream, const struct conv_args *args, const void *in, const void *weight,
                   void *out) {
#ifdef CONVOY_SM90A
  return launch<false, false>(stream, args, in, weight, out);
#else
  (void)stream, (void)args, (void)in, (void)weight, (void)out;
  return (int)cudaErrorNotSupported;
#endif
}

int stage4_data(cudaStream_t stream, const struct conv_args *args, const void *d_out, const void *weight,
                void *d_in, bool add) {
#ifdef CONVOY_SM90A
  if (add) return launch<true, true>(stream, args, d_out, weight, d_in);
  return launch<true, false>(stream, args, d_out, weight, d_in);
#else
  (void)stream, (void)args, (void)d_out, (void)weight, (void)d_in, (void)add;
  return (int)cudaErrorNotSupported;
#endif
}
