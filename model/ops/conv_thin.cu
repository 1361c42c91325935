/* Convolutions of bf16 with few taps (at most 32 products an output, as a first layer has) on tensor cores:
 * forward and the filters' gradient. A library pads such channels to eight first; here the taps are the 32
 * columns of a product, gathered from a band of an image in shared memory, and what counts is the traffic of
 * the large tensor.
 *
 * A warp takes 16 neighbouring outputs ("places") of the band at a time and 64 filters. The order of filters
 * within the 8-column tiles of mma.m16n8k16 is ours to choose: it is such that each thread reads or writes 16
 * bytes of neighbouring filters. */
#include "model/ops/cuda_tile.h"

extern "C" {
#include "model/ops/kernels.h"
}

enum {
  THREADS = 256,
  WARPS = THREADS / 32,
  TAPS = 32,    /* at most */
  FILTERS = 64, /* of a block */
  PLACES = 16,  /* of a warp's product */
  BAND = 512,   /* places of a block at once, about */
  BLOCKS = 264, /* walk over the bands */
  MOST_SHARED = 40960
};

struct thin_shape {
  int h, w, c, out_h, out_w, filters, kernel_w, stride, pad;
  int taps, bands, band_rows; /* bands of an image; output rows of a band */
  int in_rows, pitch;         /* of the band in shared memory: its rows, and elements of one */
  int64_t count;              /* bands of all images */
};

static struct thin_shape shape_of(const struct thin_args *a) {
  struct thin_shape s = {};
  s.h = (int)a->h, s.w = (int)a->w, s.c = (int)a->c, s.out_h = (int)a->out_h, s.out_w = (int)a->out_w;
  s.filters = (int)a->filters, s.kernel_w = (int)a->kernel_w, s.stride = (int)a->stride, s.pad = (int)a->pad;
  s.taps = (int)(a->kernel_h * a->kernel_w * a->c);
  s.band_rows = BAND / s.out_w > 0 ? BAND / s.out_w : 1;
  if (s.band_rows > s.out_h) s.band_rows = s.out_h;
  s.bands = (s.out_h + s.band_rows - 1) / s.band_rows;
  s.in_rows = (s.band_rows - 1) * s.stride + (int)a->kernel_h;
  s.pitch = ((s.out_w - 1) * s.stride + s.kernel_w) * s.c;
  s.count = (int64_t)a->n * s.bands;
  return s;
}

static size_t thin_shared(const struct thin_shape *s) {
  return (size_t)s->in_rows * (size_t)s->pitch * sizeof(bf16);
}

bool kernel_thin_fits(const struct thin_args *a) {
  if (a->kernel_h * a->kernel_w * a->c > TAPS || a->filters % FILTERS != 0 || a->out_w > BAND ||
      a->h * a->w * a->c > INT32_MAX / 4)
    return false;
  struct thin_shape s = shape_of(a);
  return thin_shared(&s) <= MOST_SHARED;
}

static unsigned thin_blocks(const struct thin_shape *s) {
  int64_t most = BLOCKS / (s->filters / FILTERS) > 0 ? BLOCKS / (s->filters / FILTERS) : 1;
  return (unsigned)(s->count < most ? s->count : most);
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
  const int first = band.row * s.stride - s.pad, edge = s.pad * s.c, width = s.w * s.c;
  const bf16 *image = in + band.image * s.h * width;
  __syncthreads(); /* the band before it is done with */
  for (int i = (int)threadIdx.x; i < s.in_rows * s.pitch; i += THREADS) {
    const int row = i / s.pitch, y = first + row, x = i - row * s.pitch - edge;
    const bool inside = y >= 0 && y < s.h && x >= 0 && x < width;
    window[i] = inside ? image[y * width + x] : from_float<bf16>(0);
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

/* Places are the rows of the product, taps are summed. In a fragment the thread (group, member) holds rows
 * group and group + 8, and taps 2 member + {0, 1, 8, 9} of each 16. Column 2 m + e of tile j is the filter
 * 16 m + 2 j + e, so that a thread's columns of all tiles are 16 neighbours. */
__global__ void __launch_bounds__(THREADS, 2)
    thin_forward(const __grid_constant__ thin_shape s, const bf16 *in, const bf16 *weight, bf16 *out) {
  extern __shared__ bf16 window[];
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, group = lane / 4, member = lane % 4;
  const int first = (int)blockIdx.y * FILTERS;
  uint32_t b[2][8][2];
  int offset[2][4];
#pragma unroll
  for (int k = 0; k < 2; k++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int tap = 16 * k + 8 * half + 2 * member;
      offset[k][2 * half] = tap_offset(s, tap);
      offset[k][2 * half + 1] = tap_offset(s, tap + 1);
#pragma unroll
      for (int j = 0; j < 8; j++) {
        const bf16 *w = weight + (int64_t)(first + group / 2 * 16 + 2 * j + group % 2) * s.taps;
        b[k][j][half] = pair(tap < s.taps ? w[tap] : from_float<bf16>(0),
                             tap + 1 < s.taps ? w[tap + 1] : from_float<bf16>(0));
      }
    }
  for (int64_t at = blockIdx.x; at < s.count; at += gridDim.x) {
    const thin_band band(s, at);
    load_band(s, band, in, window);
    for (int p = warp * PLACES; p < band.places; p += WARPS * PLACES) {
      const bf16 *low = window + place_offset(s, band.places, p + group);
      const bf16 *high = window + place_offset(s, band.places, p + group + 8);
      float sum[8][4] = {};
#pragma unroll
      for (int k = 0; k < 2; k++) {
        const int(&o)[4] = offset[k];
        const uint32_t a[4] = {pair(low[o[0]], low[o[1]]), pair(high[o[0]], high[o[1]]),
                               pair(low[o[2]], low[o[3]]), pair(high[o[2]], high[o[3]])};
#pragma unroll
        for (int j = 0; j < 8; j++) multiply(sum[j], a, b[k][j][0], b[k][j][1]);
      }
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int place = p + group + 8 * half;
        if (place >= band.places) continue;
        bf16 *to = out + band.place(s, place) + first + 16 * member;
#pragma unroll
        for (int part = 0; part < 2; part++) {
          float value[8];
#pragma unroll
          for (int i = 0; i < 8; i++) value[i] = sum[4 * part + i / 2][2 * half + i % 2];
          store<bf16, 8>(to + 8 * part, value);
        }
      }
    }
  }
}

/* Taps are the rows of the product, places are summed. Column g of tile j is the filter 8 g + j: a thread
 * reads 16 bytes of each of its four places. partial (blocks, filters, taps). */
__global__ void __launch_bounds__(THREADS, 2)
    thin_filter(const __grid_constant__ thin_shape s, const bf16 *in, const bf16 *d_out, float *partial) {
  extern __shared__ bf16 window[];
  __shared__ float total[FILTERS][TAPS + 1];
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, group = lane / 4, member = lane % 4;
  const int first = (int)blockIdx.y * FILTERS;
  float sum[2][8][4] = {};
  int offset[4];
#pragma unroll
  for (int i = 0; i < 4; i++) offset[i] = tap_offset(s, group + 8 * i);
  for (int64_t at = blockIdx.x; at < s.count; at += gridDim.x) {
    const thin_band band(s, at);
    load_band(s, band, in, window);
    for (int p = warp * PLACES; p < band.places; p += WARPS * PLACES) {
      uint4 d[4];
      uint32_t a[2][4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int place = p + 2 * member + i % 2 + i / 2 * 8;
        d[i] = make_uint4(0, 0, 0, 0);
        if (place < band.places)
          d[i] = *reinterpret_cast<const uint4 *>(d_out + band.place(s, place) + first + 8 * group);
      }
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const bf16 *even = window + place_offset(s, band.places, p + 8 * half + 2 * member);
        const bf16 *odd = window + place_offset(s, band.places, p + 8 * half + 2 * member + 1);
#pragma unroll
        for (int i = 0; i < 4; i++) a[i / 2][2 * half + i % 2] = pair(even[offset[i]], odd[offset[i]]);
      }
#pragma unroll
      for (int j = 0; j < 8; j++) {
        const uint32_t select = j % 2 ? 0x7632 : 0x5410;
        const uint32_t *v[4] = {&d[0].x, &d[1].x, &d[2].x, &d[3].x};
        const uint32_t b0 = __byte_perm(v[0][j / 2], v[1][j / 2], select);
        const uint32_t b1 = __byte_perm(v[2][j / 2], v[3][j / 2], select);
        multiply(sum[0][j], a[0], b0, b1);
        multiply(sum[1][j], a[1], b0, b1);
      }
    }
  }
  for (int turn = 0; turn < WARPS; turn++) { /* warps add in order */
    __syncthreads();
    if (warp != turn) continue;
#pragma unroll
    for (int t = 0; t < 2; t++)
#pragma unroll
      for (int j = 0; j < 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          float *to = &total[8 * (2 * member + i % 2) + j][16 * t + group + i / 2 * 8];
          *to = sum[t][j][i] + (turn ? *to : 0.0f);
        }
  }
  __syncthreads();
  float *mine = partial + ((int64_t)blockIdx.x * s.filters + first) * s.taps;
  for (int i = (int)threadIdx.x; i < FILTERS * s.taps; i += THREADS) mine[i] = total[i / s.taps][i % s.taps];
}

int kernel_thin_forward(cudaStream_t stream, const struct thin_args *args, const void *in, const void *weight,
                        void *out) {
  struct thin_shape s = shape_of(args);
  thin_forward<<<dim3(thin_blocks(&s), (unsigned)(s.filters / FILTERS)), THREADS, thin_shared(&s), stream>>>(
      s, (const bf16 *)in, (const bf16 *)weight, (bf16 *)out);
  return (int)cudaGetLastError();
}

/* Partial sums first, then what adding them needs. */
static size_t thin_partials(const struct thin_shape *s) {
  return ((size_t)thin_blocks(s) * (size_t)s->filters * (size_t)s->taps + 3) / 4 * 4;
}

size_t kernel_thin_workspace(const struct thin_args *args) {
  struct thin_shape s = shape_of(args);
  return thin_partials(&s) + kernel_channel_workspace(DTYPE_F32, thin_blocks(&s), s.filters * s.taps);
}

int kernel_thin_filter(cudaStream_t stream, const struct thin_args *args, const void *in, const void *d_out,
                       float *d_weight, float *workspace, uint32_t *tickets) {
  struct thin_shape s = shape_of(args);
  unsigned blocks = thin_blocks(&s);
  thin_filter<<<dim3(blocks, (unsigned)(s.filters / FILTERS)), THREADS, thin_shared(&s), stream>>>(
      s, (const bf16 *)in, (const bf16 *)d_out, workspace);
  int error = (int)cudaGetLastError();
  if (error) return error;
  return kernel_column_sum(stream, DTYPE_F32, workspace, d_weight, blocks, (int64_t)s.filters * s.taps,
                           workspace + thin_partials(&s), tickets);
}
