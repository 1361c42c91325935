/* What the kernels for convolutions of few taps share: at most 32 products an output, as a first layer has.
 * A library pads such channels to eight first; here the taps are the 32 columns of a product on tensor cores,
 * gathered from a band of an image in shared memory, and what counts is the traffic of the large tensor.
 *
 * A warp takes 16 neighbouring outputs ("places") of the band at a time and 64 filters. The order of filters
 * within the 8-column tiles of mma.m16n8k16 is ours to choose: it is such that each thread reads or writes 16
 * bytes of neighbouring filters. */
#ifndef CONVOY_MODEL_OPS_CUDA_THIN_H
#define CONVOY_MODEL_OPS_CUDA_THIN_H

#include "model/ops/cuda_tile.h"

extern "C" {
#include "model/ops/kernels.h"
}

enum {
  THIN_THREADS = 256,
  THIN_WARPS = THIN_THREADS / 32,
  THIN_TAPS = 32,    /* at most */
  THIN_FILTERS = 64, /* of a block */
  THIN_PLACES = 16,  /* of a warp's product */
};

struct thin_shape {
  int h, w, c, out_h, out_w, filters, kernel_w, stride, pad;
  int taps, bands, band_rows; /* bands of an image; output rows of a band */
  int in_rows, pitch;         /* of the band in shared memory: its rows, and elements of one */
  int64_t count;              /* bands of all images */
};

/* Bands of about `places`, at least a row. */
static inline struct thin_shape thin_shape_of(const struct conv_args *a, int places) {
  struct thin_shape s = {};
  s.h = (int)a->h, s.w = (int)a->w, s.c = (int)a->c, s.out_h = (int)a->out_h, s.out_w = (int)a->out_w;
  s.filters = (int)a->filters, s.kernel_w = (int)a->kernel_w, s.stride = (int)a->stride, s.pad = (int)a->pad;
  s.taps = (int)(a->kernel_h * a->kernel_w * a->c);
  s.band_rows = places / s.out_w > 0 ? places / s.out_w : 1;
  if (s.band_rows > s.out_h) s.band_rows = s.out_h;
  s.bands = (s.out_h + s.band_rows - 1) / s.band_rows;
  s.in_rows = (s.band_rows - 1) * s.stride + (int)a->kernel_h;
  s.pitch = ((s.out_w - 1) * s.stride + s.kernel_w) * s.c;
  s.count = (int64_t)a->n * s.bands;
  return s;
}

static inline size_t thin_shared(const struct thin_shape *s) {
  return (size_t)s->in_rows * (size_t)s->pitch * sizeof(bf16);
}

/* Blocks that walk over the bands: at most `most`, for all filters. */
static inline unsigned thin_blocks(const struct thin_shape *s, int most) {
  const int each = most / (s->filters / THIN_FILTERS) > 0 ? most / (s->filters / THIN_FILTERS) : 1;
  return (unsigned)(s->count < each ? s->count : each);
}

/* Where a band lies: its image, first output row, and places. */
struct thin_band {
  int64_t image;
  int row, places;
  __device__ __forceinline__ thin_band(const thin_shape &s, int64_t band) {
    image = band / s.bands;
    row = (int)(band - image * s.bands) * s.band_rows;
    places = (row + s.band_rows <= s.out_h ? s.band_rows : s.out_h - row) * s.out_w;
  }
  /* The first element of a place's filters. */
  __device__ __forceinline__ int64_t place(const thin_shape &s, int p) const {
    return ((image * s.out_h + row) * s.out_w + p) * (int64_t)s.filters;
  }
};

/* Copies what a band's windows cover, zeros outside of the image. */
static __device__ __forceinline__ void load_band(const thin_shape &s, const thin_band &band, const bf16 *in,
                                                 bf16 *window) {
  enum { LOADS = 8 }; /* in flight a thread */
  const int first = band.row * s.stride - s.pad, edge = s.pad * s.c, width = s.w * s.c;
  const int count = s.in_rows * s.pitch;
  const bf16 *image = in + band.image * s.h * width;
  __syncthreads(); /* the band before it is done with */
  for (int i = (int)threadIdx.x; i < count; i += LOADS * THIN_THREADS) {
    bf16 value[LOADS];
#pragma unroll
    for (int u = 0; u < LOADS; u++) {
      const int at = i + u * THIN_THREADS, row = at / s.pitch, y = first + row, x = at - row * s.pitch - edge;
      const bool inside = at < count && y >= 0 && y < s.h && x >= 0 && x < width;
      value[u] = inside ? image[y * width + x] : from_float<bf16>(0);
    }
#pragma unroll
    for (int u = 0; u < LOADS; u++)
      if (i + u * THIN_THREADS < count) window[i + u * THIN_THREADS] = value[u];
  }
  __syncthreads();
}

/* Of a tap, in the band, from its place's first; taps beyond the last stand on the first. */
static __device__ __forceinline__ int tap_offset(const thin_shape &s, int tap) {
  const int line = s.kernel_w * s.c;
  return tap < s.taps ? tap / line * s.pitch + tap % line : 0;
}

static __device__ __forceinline__ int place_offset(const thin_shape &s, int places, int p) {
  p = p < places ? p : places - 1;
  const int y = p / s.out_w;
  return y * s.stride * s.pitch + (p - y * s.out_w) * s.stride * s.c;
}

static __device__ __forceinline__ uint32_t pair(bf16 low, bf16 high) {
  return (uint32_t)__bfloat16_as_ushort(low) | (uint32_t)__bfloat16_as_ushort(high) << 16;
}

/* For filters' gradients taps are the rows of a product and places are summed. */

/* A thread's taps group + {0, 8, 16, 24}. */
static __device__ __forceinline__ void filter_offsets(const thin_shape &s, int (&offset)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++) offset[i] = tap_offset(s, (int)threadIdx.x % 32 / 4 + 8 * i);
}

/* Fragments of the taps at 16 places from p on: the first 16 taps, then the others. */
static __device__ __forceinline__ void filter_fragments(const thin_shape &s, const bf16 *window, int places,
                                                        int p, const int (&offset)[4], uint32_t (&a)[2][4]) {
  const int member = (int)threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const bf16 *even = window + place_offset(s, places, p + 8 * half + 2 * member);
    const bf16 *odd = window + place_offset(s, places, p + 8 * half + 2 * member + 1);
#pragma unroll
    for (int i = 0; i < 4; i++) a[i / 2][2 * half + i % 2] = pair(even[offset[i]], odd[offset[i]]);
  }
}

/* sum += taps by filters over 16 places. v: of the places 2 member + {0, 1, 8, 9} the filters 8 group on;
 * column g of tile j is the filter 8 g + j. */
static __device__ __forceinline__ void multiply_filters(float (&sum)[2][8][4], const uint32_t (&a)[2][4],
                                                        const uint32_t (&v)[4][4]) {
#pragma unroll
  for (int j = 0; j < 8; j++) {
    const uint32_t select = j % 2 ? 0x7632 : 0x5410;
    const uint32_t b0 = __byte_perm(v[0][j / 2], v[1][j / 2], select);
    const uint32_t b1 = __byte_perm(v[2][j / 2], v[3][j / 2], select);
    multiply(sum[0][j], a[0], b0, b1);
    multiply(sum[1][j], a[1], b0, b1);
  }
}

/* A block's sums on their way to memory: of its even and of its odd warps. */
struct thin_total {
  float half[2][THIN_FILTERS][THIN_TAPS + 1];
  __device__ __forceinline__ float of(int filter, int tap) const {
    return half[0][filter][tap] + half[1][filter][tap];
  }
};

/* The sums of all warps, which add in order. */
static __device__ __forceinline__ void add_filters(const float (&sum)[2][8][4], thin_total &total) {
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, group = lane / 4, member = lane % 4;
  for (int turn = 0; turn < THIN_WARPS / 2; turn++) {
    __syncthreads();
    if (warp / 2 != turn) continue;
#pragma unroll
    for (int t = 0; t < 2; t++)
#pragma unroll
      for (int j = 0; j < 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          float *to = &total.half[warp % 2][8 * (2 * member + i % 2) + j][16 * t + group + i / 2 * 8];
          *to = sum[t][j][i] + (turn ? *to : 0.0f);
        }
  }
  __syncthreads();
}

#endif
