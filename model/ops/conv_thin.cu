/* Convolutions of bf16 with few taps (cuda_thin.h): forward, with the sums for batch normalisation, and the
 * filters' gradient. */
#include "model/ops/cuda_thin.h"

enum {
  BAND = 512,   /* places of a block at once, about */
  BLOCKS = 264, /* that walk over the bands, at most */
  MOST_SHARED = 28672
};

bool kernel_thin_fits(const struct conv_args *a) {
  if (a->kernel_h * a->kernel_w * a->c > THIN_TAPS || a->filters % THIN_FILTERS != 0 || a->out_w > BAND ||
      a->h * a->w * a->c > INT32_MAX / 4)
    return false;
  struct thin_shape s = thin_shape_of(a, BAND);
  return thin_shared(&s) <= MOST_SHARED;
}

/* A thread's sums of what it writes, of its 16 filters. Their shift is zero: where that would cost digits of
 * the variance, the rounding to bf16 has cost more. */
struct thin_sums {
  float sum[16], square[16];
};

/* The block's mean and sum of squared differences from it, for each filter, of `count` places; `first`: of
 * the block's filters. */
static __device__ __forceinline__ void finish_sums(thin_sums &sums, float2 *part, int64_t count) {
  __shared__ float2 total[THIN_WARPS][THIN_FILTERS];
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
#pragma unroll
  for (int i = 0; i < 16; i++) {
#pragma unroll
    for (int step = 4; step < 32; step *= 2) {
      sums.sum[i] += __shfl_xor_sync(0xffffffffu, sums.sum[i], step);
      sums.square[i] += __shfl_xor_sync(0xffffffffu, sums.square[i], step);
    }
    if (lane < 4) total[warp][16 * lane + i] = make_float2(sums.sum[i], sums.square[i]);
  }
  __syncthreads();
  if (threadIdx.x >= THIN_FILTERS) return;
  double sum = 0, square = 0;
#pragma unroll
  for (int w = 0; w < THIN_WARPS; w++) {
    sum += (double)total[w][threadIdx.x].x;
    square += (double)total[w][threadIdx.x].y;
  }
  const double mean = sum / (double)count;
  part[threadIdx.x] = make_float2((float)mean, (float)fmax(square - sum * mean, 0.0));
}

/* Places are the rows of the product, taps are summed. In a fragment the thread (group, member) holds rows
 * group and group + 8, and taps 2 member + {0, 1, 8, 9} of each 16. Column 2 m + e of tile j is the filter
 * 16 m + 2 j + e, so that a thread's columns of all tiles are 16 neighbours. STATS: part (blocks, filters).
 */
template <bool STATS>
__global__ void __launch_bounds__(THIN_THREADS, 2)
    thin_forward(const __grid_constant__ thin_shape s, const bf16 *in, const bf16 *weight, bf16 *out,
                 float2 *part) {
  extern __shared__ bf16 window[];
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, group = lane / 4, member = lane % 4;
  const int first = (int)blockIdx.y * THIN_FILTERS;
  thin_sums sums = {};
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
    for (int p = warp * THIN_PLACES; p < band.places; p += THIN_WARPS * THIN_PLACES) {
      const bf16 *low = window + place_offset(s, band.places, p + group);
      const bf16 *high = window + place_offset(s, band.places, p + group + 8);
      uint32_t a[2][4];
#pragma unroll
      for (int k = 0; k < 2; k++) {
        const int(&o)[4] = offset[k];
        a[k][0] = pair(low[o[0]], low[o[1]]), a[k][1] = pair(high[o[0]], high[o[1]]);
        a[k][2] = pair(low[o[2]], low[o[3]]), a[k][3] = pair(high[o[2]], high[o[3]]);
      }
#pragma unroll
      for (int piece = 0; piece < 2; piece++) { /* of 8 filters */
        float sum[4][4] = {};
#pragma unroll
        for (int k = 0; k < 2; k++)
#pragma unroll
          for (int j = 0; j < 4; j++) multiply(sum[j], a[k], b[k][4 * piece + j][0], b[k][4 * piece + j][1]);
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const int place = p + group + 8 * half;
          if (place >= band.places) continue;
          uint32_t v[4];
#pragma unroll
          for (int j = 0; j < 4; j++) {
            v[j] = pack2(sum[j][2 * half], sum[j][2 * half + 1]);
            if (STATS) {
              const float x = low_of(v[j]), y = high_of(v[j]);
              const int f = 8 * piece + 2 * j;
              sums.sum[f] += x, sums.square[f] = fmaf(x, x, sums.square[f]);
              sums.sum[f + 1] += y, sums.square[f + 1] = fmaf(y, y, sums.square[f + 1]);
            }
          }
          store16(out + band.place(s, place) + first + 16 * member + 8 * piece,
                  make_uint4(v[0], v[1], v[2], v[3]));
        }
      }
    }
  }
  if (STATS) {
    const int64_t bands = (s.count - blockIdx.x + gridDim.x - 1) / gridDim.x;
    finish_sums(sums, part + (int64_t)blockIdx.x * s.filters + first, bands * s.band_rows * s.out_w);
  }
}

/* partial (blocks, filters, taps). */
__global__ void __launch_bounds__(THIN_THREADS, 2)
    thin_filter(const __grid_constant__ thin_shape s, const bf16 *in, const bf16 *d_out, float *partial) {
  extern __shared__ bf16 window[];
  __shared__ thin_total total;
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, group = lane / 4, member = lane % 4;
  const int first = (int)blockIdx.y * THIN_FILTERS;
  float sum[2][8][4] = {};
  int offset[4];
  filter_offsets(s, offset);
  for (int64_t at = blockIdx.x; at < s.count; at += gridDim.x) {
    const thin_band band(s, at);
    load_band(s, band, in, window);
    for (int p = warp * THIN_PLACES; p < band.places; p += THIN_WARPS * THIN_PLACES) {
      uint32_t a[2][4], d[4][4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int place = p + 2 * member + i % 2 + i / 2 * 8;
        uint4 all = make_uint4(0, 0, 0, 0);
        if (place < band.places)
          all = *reinterpret_cast<const uint4 *>(d_out + band.place(s, place) + first + 8 * group);
        d[i][0] = all.x, d[i][1] = all.y, d[i][2] = all.z, d[i][3] = all.w;
      }
      filter_fragments(s, window, band.places, p, offset, a);
      multiply_filters(sum, a, d);
    }
  }
  add_filters(sum, total);
  float *mine = partial + ((int64_t)blockIdx.x * s.filters + first) * s.taps;
  for (int i = (int)threadIdx.x; i < THIN_FILTERS * s.taps; i += THIN_THREADS)
    mine[i] = total.of(i / s.taps, i % s.taps);
}

/* Pieces are bands, if they are of the same size. */
struct conv_moments kernel_thin_moments(const struct conv_args *args) {
  struct thin_shape s = thin_shape_of(args, BAND);
  struct conv_moments moments = {s.out_h % s.band_rows == 0 ? (int)thin_blocks(&s, BLOCKS) : 0, s.count};
  return moments;
}

int kernel_thin_forward(cudaStream_t stream, const struct conv_args *args, const void *in, const void *weight,
                        void *out, float *part) {
  struct thin_shape s = thin_shape_of(args, BAND);
  const dim3 grid(thin_blocks(&s, BLOCKS), (unsigned)(s.filters / THIN_FILTERS));
  if (part)
    thin_forward<true><<<grid, THIN_THREADS, thin_shared(&s), stream>>>(
        s, (const bf16 *)in, (const bf16 *)weight, (bf16 *)out, (float2 *)part);
  else
    thin_forward<false><<<grid, THIN_THREADS, thin_shared(&s), stream>>>(
        s, (const bf16 *)in, (const bf16 *)weight, (bf16 *)out, nullptr);
  return (int)cudaGetLastError();
}

/* Partial sums first, then what adding them needs. */
static size_t thin_partials(const struct thin_shape *s) {
  return ((size_t)thin_blocks(s, BLOCKS) * (size_t)s->filters * (size_t)s->taps + 3) / 4 * 4;
}

size_t kernel_thin_workspace(const struct conv_args *args) {
  struct thin_shape s = thin_shape_of(args, BAND);
  return thin_partials(&s) + kernel_channel_workspace(DTYPE_F32, thin_blocks(&s, BLOCKS), s.filters * s.taps);
}

int kernel_thin_filter(cudaStream_t stream, const struct conv_args *args, const void *in, const void *d_out,
                       float *d_weight, float *workspace, uint32_t *tickets) {
  struct thin_shape s = thin_shape_of(args, BAND);
  const unsigned blocks = thin_blocks(&s, BLOCKS);
  thin_filter<<<dim3(blocks, (unsigned)(s.filters / THIN_FILTERS)), THIN_THREADS, thin_shared(&s), stream>>>(
      s, (const bf16 *)in, (const bf16 *)d_out, workspace);
  int error = (int)cudaGetLastError();
  if (error) return error;
  return kernel_column_sum(stream, DTYPE_F32, workspace, d_weight, blocks, (int64_t)s.filters * s.taps,
                           workspace + thin_partials(&s), tickets);
}
