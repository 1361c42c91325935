/* Data gradients of 3x3 convolutions of bf16 with stride 2, pad 1, between a CIFAR ResNet's stages: d_out
 * (n, size, size, 2 c) to d_in (n, 2 size, 2 size, c), with c = 64, 128, 256 and size = 16, 8, 4.
 *
 * Whether an input's row and column are even or odd says which taps see it. So each output pixel has four
 * input pixels of its own, its corners, with one, two, two and four taps, which multiply this output, the one
 * to the right, the one below and the one between these: nine products for four pixels, none with zeros but
 * at the edge.
 *
 * A block takes whole images and 64 channels. d_out of these images lies in shared memory, from where its
 * fragments come into registers once for all taps of a neighbour; two warp groups multiply 64 pixels each. A
 * third copies filters, a tap of 64 filters after another. Of the smallest images, which are few, a block
 * makes either the last corner or the other three, so that each filter is read by few blocks and all
 * multiprocessors have one. */
#include "model/ops/cuda_wgmma.h"

extern "C" {
#include "model/ops/kernels.h"
}

enum {
  TAPS = 9,
  GROUPS = 2,                      /* that multiply */
  MULTIPLY = GROUPS * WGMMA_GROUP, /* threads */
  THREADS = MULTIPLY + WGMMA_GROUP,
  PASS = GROUPS * WGMMA_TILE, /* pixels */
  STEPS = 4,                  /* of a chunk, at most: neighbours */
  AHEAD = 2,                  /* chunks whose filters are in shared memory */
  SLOT = 64 * 128,            /* a tap of 64 filters: swizzled rows of 64 channels */
  WORTH = 132,                /* images, at most, of more than 64 channels: beyond, a library is faster */
  ALIGN = 1024                /* of swizzled rows */
};

enum part { ALL, LAST, OTHERS }; /* corners that a block makes */

/* Of a chunk, 64 filters: the taps, in hexadecimal digits from the lowest one; where those of each step
 * begin; and each step's neighbour: 0 the output itself, 1 right of it, 2 below it, 3 both. */
template <part P> struct order {
  enum : uint64_t { TAP = 0x875421630, FIRST = 0x95310, NEIGHBOUR = 0x0213 };
  enum { CORNERS = 4, TAPS = 9, STEPS = 4 };
};
template <> struct order<LAST> {
  enum : uint64_t { TAP = 0x8260, FIRST = 0x43210, NEIGHBOUR = 0x0213 };
  enum { CORNERS = 1, TAPS = 4, STEPS = 4 };
};
template <> struct order<OTHERS> {
  enum : uint64_t { TAP = 0x75413, FIRST = 0x5210, NEIGHBOUR = 0x021 };
  enum { CORNERS = 3, TAPS = 5, STEPS = 3 };
};

template <int C> struct strided_shape {
  enum {
    CHANNELS = C,
    FILTERS = 2 * C,
    SIZE = 1024 / C, /* of d_out's images */
    IMAGE = SIZE * SIZE,
    TILE = IMAGE > PASS ? IMAGE : PASS, /* pixels of a block */
    IMAGES = TILE / IMAGE,
    PARTS = C == 256 ? 2 : 1,
    BLOCKS = C / 64 * PARTS, /* of a tile */
    CHUNKS = FILTERS / 64,
    CHUNK = (TILE + 1) * 128, /* bytes of d_out: pixels, and a row of zeros */
    SLOTS = AHEAD * (PARTS == 2 ? 5 : TAPS),
    SHARED = SLOTS * SLOT + CHUNKS * CHUNK + ALIGN
  };
  static_assert((int)TILE == PASS || (int)CHUNKS <= AHEAD, "filters stay for all passes");
};

#ifdef CONVOY_SM90A
/* Addresses in shared memory; barriers: a step's filters are there; they are done with; a chunk of d_out is
 * there. */
struct strided_memory {
  uint32_t filter, image, full, empty, there;
};

template <typename T> static __device__ __forceinline__ constexpr int digit(T digits, int i) {
  return (int)((uint64_t)digits >> 4 * i & 15);
}

/* `count` pixels from d_out on, by the threads that multiply, and zeros in place of those beyond. */
template <typename K>
static __device__ __forceinline__ void copy_pixels(const strided_memory &m, const bf16 *d_out, int count) {
  enum { ROWS = MULTIPLY / 8 /* at once */ };
  const int row = (int)threadIdx.x / 8, piece = (int)threadIdx.x % 8;
  const uint32_t to = m.image + (uint32_t)(row * 128 + (piece ^ row % 8) * 16);
  d_out += 8 * piece;
#pragma unroll 1
  for (int chunk = 0; chunk < K::CHUNKS; chunk++) {
#pragma unroll
    for (int r = 0; r < K::TILE; r += ROWS) {
      const bool inside = row + r < count;
      copy16(to + (uint32_t)(chunk * K::CHUNK + r * 128),
             d_out + (inside ? row + r : 0) * K::FILTERS + 64 * chunk, inside);
    }
    barrier_arrive_copies(m.there + 8 * (uint32_t)chunk);
  }
}

/* Filters for 64 channels from `weight` on, by one warp group. */
template <typename K, part P>
static __device__ __forceinline__ void copy_filters(const strided_memory &m, const bf16 *weight) {
  enum { ROWS = WGMMA_GROUP / 8 /* at once */, FILTER = TAPS * K::CHANNELS };
  typedef order<P> O;
  const int thread = (int)threadIdx.x % WGMMA_GROUP, row = thread / 8, piece = thread % 8;
  const uint32_t to = m.filter + (uint32_t)(row * 128 + (piece ^ row % 8) * 16);
  weight += row * FILTER + 8 * piece;
#pragma unroll 1
  for (uint32_t chunk = 0; chunk < K::CHUNKS; chunk++, weight += 64 * FILTER) {
    const uint32_t ahead = chunk % AHEAD, turn = chunk / AHEAD;
#pragma unroll
    for (int step = 0; step < O::STEPS; step++) {
      const uint32_t barrier = 8 * (ahead * STEPS + (uint32_t)step);
      if (turn > 0) barrier_wait(m.empty + barrier, (turn - 1) & 1);
#pragma unroll
      for (int t = 0; t < O::TAPS; t++)
        if (t >= digit(O::FIRST, step) && t < digit(O::FIRST, step + 1))
#pragma unroll
          for (int r = 0; r < 64; r += ROWS)
            copy16(to + (ahead * O::TAPS + (uint32_t)t) * SLOT + (uint32_t)(r * 128),
                   weight + r * FILTER + digit(O::TAP, t) * K::CHANNELS, true);
      barrier_arrive_copies(m.full + barrier);
    }
  }
}

/* Where a lane reads the neighbours of its warp's 16 pixels, the first of the group's being `first`: a row of
 * one of the four matrices of 16 filters. */
template <typename K>
static __device__ __forceinline__ void fragment_places(uint32_t (&place)[4], uint32_t image, int first) {
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % WGMMA_GROUP / 32, matrix = lane / 8;
  const int pixel = first + 16 * warp + matrix % 2 * 8 + lane % 8;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int seen = pixel + i / 2 * K::SIZE + i % 2;
    const bool inside = pixel / K::SIZE % K::SIZE + i / 2 < K::SIZE && pixel % K::SIZE + i % 2 < K::SIZE;
    place[i] = image + (uint32_t)((inside ? seen : (int)K::TILE) * 128 + (matrix / 2 ^ seen % 8) * 16);
  }
}

#ifdef CONVOY_WGMMA
/* d += the products of a step: of a neighbour's fragments, 64 filters, with each of its taps. */
template <part P>
static __device__ __forceinline__ void multiply_step(float (&d)[order<P>::CORNERS][WGMMA_SUMS],
                                                     const uint32_t (&a)[4][4], uint32_t filter, int step) {
  typedef order<P> O;
  wgmma_begin();
#pragma unroll
  for (int k = 0; k < 4; k++)
#pragma unroll
    for (int t = 0; t < O::TAPS; t++)
      if (t >= digit(O::FIRST, step) && t < digit(O::FIRST, step + 1)) {
        const int tap = digit(O::TAP, t), corner = (tap / 3 != 1) * 2 + (tap % 3 != 1);
        wgmma_fragment<1>(d[P == LAST ? 0 : corner], a[k],
                          operand_swizzled(filter + (uint32_t)(t * SLOT + k * 16 * 128), 1024, SLOT));
      }
  wgmma_commit();
}

/* All products of a group's 64 pixels. The last ones, whose fragments are in `a`, are under way at the end.
 */
template <typename K, part P>
static __device__ __forceinline__ void multiply_all(float (&d)[order<P>::CORNERS][WGMMA_SUMS],
                                                    uint32_t (&a)[2][4][4], const strided_memory &m,
                                                    int first) {
  typedef order<P> O;
  uint32_t place[4];
  fragment_places<K>(place, m.image, first);
#pragma unroll
  for (int i = 0; i < O::CORNERS * WGMMA_SUMS; i++) d[i / WGMMA_SUMS][i % WGMMA_SUMS] = 0.0f;
#pragma unroll 1
  for (uint32_t chunk = 0; chunk < K::CHUNKS; chunk++) {
    const uint32_t ahead = chunk % AHEAD, phase = chunk / AHEAD & 1;
    barrier_wait(m.there + 8 * chunk, 0);
#pragma unroll
    for (int step = 0; step < O::STEPS; step++) {
      const uint32_t barrier = 8 * (ahead * STEPS + (uint32_t)step);
#pragma unroll
      for (uint32_t k = 0; k < 4; k++) /* 16 filters are two pieces */
        load_matrices<false>(a[step % 2][k],
                             (place[digit(O::NEIGHBOUR, step)] + chunk * K::CHUNK) ^ (k * 32));
      barrier_wait(m.full + barrier, phase);
      fence_shared();
      multiply_step<P>(d, a[step % 2], m.filter + ahead * O::TAPS * SLOT, step);
      if (step == O::STEPS - 1 && O::STEPS % 2) /* the next one takes the same registers */
        wgmma_wait<0>();
      else
        wgmma_wait<1>();
      if (K::CHUNKS > AHEAD && step + chunk > 0 && threadIdx.x % 32 == 0) /* the step before is done with */
        barrier_arrive(m.empty + (step ? barrier - 8 : 8 * ((ahead ^ 1) * STEPS + O::STEPS - 1)));
    }
  }
}

/* A thread's places in d_in: 16 bytes of the first corner of two of the group's 64 pixels, and 32 channels
 * further the same again. */
struct strided_places {
  bf16 *to[2];
  bool inside[2];
};

template <typename K>
static __device__ __forceinline__ strided_places places_of(bf16 *d_in, int first, int count) {
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % WGMMA_GROUP / 32;
  strided_places p;
#pragma unroll
  for (int row = 0; row < 2; row++) {
    const int pixel = first + 16 * warp + lane / 4 + 8 * row, x = pixel % K::SIZE, line = pixel / K::SIZE;
    p.to[row] = d_in + (4 * line * K::SIZE + 2 * x) * K::CHANNELS + 8 * (lane % 4);
    p.inside[row] = pixel < count;
  }
  return p;
}

template <typename K>
static __device__ __forceinline__ uint4 *corner_place(const strided_places &p, int corner, int i) {
  return reinterpret_cast<uint4 *>(p.to[i / 2] + (corner / 2 * 2 * K::SIZE + corner % 2) * K::CHANNELS +
                                   i % 2 * 32);
}

/* What a corner is added to. */
template <typename K>
static __device__ __forceinline__ void load_corner(const strided_places &p, int corner, uint4 (&old)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (p.inside[i / 2]) old[i] = *corner_place<K>(p, corner, i);
}

template <typename K, bool ADD>
static __device__ __forceinline__ void write_corner(const float (&d)[WGMMA_SUMS], const strided_places &p,
                                                    int corner, const uint4 (&old)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    uint32_t v[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int at = 4 * (i % 2 * 4 + j) + i / 2 * 2;
      v[j] = pack2(d[at], d[at + 1]);
    }
    transpose_quad(v, (int)threadIdx.x % 4);
    if (ADD) add_pairs(v, old[i]);
    if (p.inside[i / 2]) *corner_place<K>(p, corner, i) = make_uint4(v[0], v[1], v[2], v[3]);
  }
}

/* What a block does: `count` pixels from d_out and, with their corners, d_in on. */
template <typename K, part P, bool ADD>
static __device__ __forceinline__ void make_part(const strided_memory &m, const bf16 *d_out,
                                                 const bf16 *weight, bf16 *d_in, int count) {
  enum { CORNERS = order<P>::CORNERS, CORNER = P == LAST ? 3 : 0 };
  const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / WGMMA_GROUP, 0);
  if (group == GROUPS) {
    registers_fewer<40>();
    copy_filters<K, P>(m, weight);
    return;
  }
  registers_more<232>();
  copy_pixels<K>(m, d_out, count);
#pragma unroll 1
  for (int first = group * WGMMA_TILE; first < K::TILE; first += PASS) {
    float d[CORNERS][WGMMA_SUMS];
    uint32_t a[2][4][4];
    uint4 old[2][4];
    multiply_all<K, P>(d, a, m, first);
    const strided_places p = places_of<K>(d_in, first, count);
    if (ADD) load_corner<K>(p, CORNER, old[0]);
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < CORNERS; i++) {
      wgmma_settle(d[i]);
      if (ADD && i + 1 < CORNERS) load_corner<K>(p, CORNER + i + 1, old[(i + 1) % 2]);
      write_corner<K, ADD>(d[i], p, CORNER + i, old[i % 2]);
    }
  }
}
#endif

template <typename K, bool ADD>
__global__ void __launch_bounds__(THREADS, 1)
    strided_data(const bf16 *d_out, const bf16 *weight, bf16 *d_in, int n) {
#ifdef CONVOY_WGMMA
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ uint64_t barriers[2 * AHEAD * STEPS + K::CHUNKS];
  strided_memory m;
  m.filter = (shared_address(memory) + ALIGN - 1) / ALIGN * ALIGN, m.image = m.filter + K::SLOTS * SLOT;
  m.full = shared_address(barriers), m.empty = m.full + 8 * AHEAD * STEPS;
  m.there = m.empty + 8 * AHEAD * STEPS;
  const int tile = (int)blockIdx.x / K::BLOCKS, place = (int)blockIdx.x % K::BLOCKS;
  const int channel = place / K::PARTS * 64, images = n - tile * K::IMAGES;
  const int count = (images < K::IMAGES ? images : (int)K::IMAGES) * K::IMAGE;
  d_out += (int64_t)tile * K::TILE * K::FILTERS;
  weight += channel;
  d_in += (int64_t)tile * 4 * K::TILE * K::CHANNELS + channel;
  if (threadIdx.x < 2 * AHEAD * STEPS + K::CHUNKS)
    barrier_create(m.full + 8 * threadIdx.x, threadIdx.x < AHEAD * STEPS       ? (int)WGMMA_GROUP
                                             : threadIdx.x < 2 * AHEAD * STEPS ? MULTIPLY / 32
                                                                               : (int)MULTIPLY);
  if (threadIdx.x < K::CHUNKS * 8) /* the rows of zeros */
    store_shared(m.image + threadIdx.x / 8 * K::CHUNK + K::TILE * 128 + threadIdx.x % 8 * 16,
                 make_uint4(0, 0, 0, 0));
  fence_shared();
  __syncthreads();
  if (K::PARTS == 1)
    make_part<K, ALL, ADD>(m, d_out, weight, d_in, count);
  else if (place % K::PARTS == 0)
    make_part<K, OTHERS, ADD>(m, d_out, weight, d_in, count);
  else
    make_part<K, LAST, ADD>(m, d_out, weight, d_in, count);
#endif
}

template <typename K, bool ADD>
static int launch(cudaStream_t stream, const struct conv_args *args, const bf16 *d_out, const bf16 *weight,
                  bf16 *d_in) {
  const int64_t blocks = ceil_div(args->n, K::IMAGES) * K::BLOCKS;
  return launch_shared(stream, strided_data<K, ADD>, (unsigned)blocks, THREADS, K::SHARED, d_out, weight,
                       d_in, (int)args->n);
}

template <int C>
static int launch_shape(cudaStream_t stream, const struct conv_args *args, const void *d_out,
                        const void *weight, void *d_in, bool add) {
  return (add ? launch<strided_shape<C>, true>
              : launch<strided_shape<C>, false>)(stream, args, (const bf16 *)d_out, (const bf16 *)weight,
                                                 (bf16 *)d_in);
}
#endif

bool kernel_strided_fits(const struct conv_args *a) {
#ifdef CONVOY_SM90A
  return hopper() && (a->c == 64 || a->c == 128 || a->c == 256) && a->filters == 2 * a->c &&
         a->out_h == 1024 / a->c && a->out_w == a->out_h && a->h == 2 * a->out_h && a->w == a->h &&
         a->kernel_h == 3 && a->kernel_w == 3 && a->stride == 2 && a->pad == 1 && a->n > 0 &&
         a->n <= (a->c == 64 ? INT32_MAX / 1024 : WORTH);
#else
  (void)a;
  return false;
#endif
}

int kernel_strided_data(cudaStream_t stream, const struct conv_args *args, const void *d_out,
                        const void *weight, void *d_in, bool add) {
#ifdef CONVOY_SM90A
  if (args->c == 64) return launch_shape<64>(stream, args, d_out, weight, d_in, add);
  if (args->c == 128) return launch_shape<128>(stream, args, d_out, weight, d_in, add);
  return launch_shape<256>(stream, args, d_out, weight, d_in, add);
#else
  (void)stream, (void)args, (void)d_out, (void)weight, (void)d_in, (void)add;
  return (int)cudaErrorNotSupported;
#endif
}
