/* The gradients of a first layer's filters, scale and shift through batch normalisation and relu, where the
 * image's own gradient is not wanted (cuda_thin.h).
 *
 * The convolution's gradient is a line in two tensors: dx = scale d + slant (x - mean) + offset, d being
 * d_out where relu passes, x the convolution's result; slant and offset follow from the sums over all places
 * of d and d (x - mean). Products with the taps are linear too: those of d, of x and of ones are summed in
 * one pass, beside the two sums, and put together at the end. So the two tensors are read once and dx, which
 * nobody else reads, is never there. */
#include "model/ops/cuda_norm.h"
#include "model/ops/cuda_thin.h"

enum {
  BAND = 1024,  /* places of a block at once, about */
  BLOCKS = 132, /* that walk over the bands, at most; one fits a multiprocessor */
  MOST_SHARED = 24576,
  LOADS = 8 /* parts in flight a thread, at the end */
};

/* Of each block and filter: products with d, with x, then the two sums. Behind all blocks', products with
 * ones: (blocks, taps). */
static __host__ __device__ __forceinline__ int values_of(const thin_shape &s) {
  return 2 * s.taps + 2;
}
static __host__ __device__ __forceinline__ int64_t ones_at(const thin_shape &s, unsigned blocks) {
  return (int64_t)blocks * s.filters * values_of(s);
}

/* What a thread knows of its 8 filters, and its sums. */
struct thin_norm {
  float mean[8], scale[8], bias[8], sum[8], product[8];
};

/* Keeps of d what relu passes, and sums it. x, d: 8 filters of a place. */
template <bool RELU>
static __device__ __forceinline__ void pass_place(thin_norm &f, const uint32_t (&x)[4], uint32_t (&d)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float low = low_of(x[i]) - f.mean[2 * i], high = high_of(x[i]) - f.mean[2 * i + 1];
    if (RELU) {
      if (!(fmaf(low, f.scale[2 * i], f.bias[2 * i]) > 0.0f)) d[i] &= 0xffff0000u;
      if (!(fmaf(high, f.scale[2 * i + 1], f.bias[2 * i + 1]) > 0.0f)) d[i] &= 0x0000ffffu;
    }
    f.sum[2 * i] += low_of(d[i]), f.sum[2 * i + 1] += high_of(d[i]);
    f.product[2 * i] = fmaf(low_of(d[i]), low, f.product[2 * i]);
    f.product[2 * i + 1] = fmaf(high_of(d[i]), high, f.product[2 * i + 1]);
  }
}

/* The block's sums, added in order: total (filters, {sum, product}). */
static __device__ __forceinline__ void add_sums(thin_norm &f, float (&total)[THIN_WARPS][THIN_FILTERS][2]) {
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
#pragma unroll
  for (int i = 0; i < 8; i++) {
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
      f.sum[i] += __shfl_xor_sync(0xffffffffu, f.sum[i], step);
      f.product[i] += __shfl_xor_sync(0xffffffffu, f.product[i], step);
    }
    if (lane % 4 == 0) {
      total[warp][lane / 4 * 8 + i][0] = f.sum[i];
      total[warp][lane / 4 * 8 + i][1] = f.product[i];
    }
  }
}

/* The products with ones, of all warps in order: every column of `ones` has the same. */
static __device__ __forceinline__ void add_ones(const float (&ones)[2][4], float (&total)[THIN_TAPS]) {
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  for (int w = 0; w < THIN_WARPS; w++) {
    __syncthreads();
    if (warp != w || lane % 4 != 0) continue;
#pragma unroll
    for (int t = 0; t < 2; t++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float *to = &total[16 * t + 8 * half + lane / 4];
        *to = ones[t][2 * half] + (w ? *to : 0.0f);
      }
  }
  __syncthreads();
}

template <bool RELU>
__global__ void __launch_bounds__(THIN_THREADS, 1)
    thin_norm_filter(const __grid_constant__ thin_shape s, const __grid_constant__ struct norm_args norm,
                     const bf16 *in, float *partial) {
  extern __shared__ bf16 window[];
  __shared__ thin_total products;
  __shared__ float sums[THIN_WARPS][THIN_FILTERS][2], all_ones[THIN_TAPS];
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, group = lane / 4, member = lane % 4;
  const int first = (int)blockIdx.y * THIN_FILTERS, mine = first + 8 * group;
  const bf16 *x = (const bf16 *)norm.in + mine, *d = (const bf16 *)norm.d_out + mine;
  float of_d[2][8][4] = {}, of_x[2][8][4] = {}, ones[2][4] = {};
  thin_norm f = {};
  int offset[4];
  filter_offsets(s, offset);
#pragma unroll
  for (int i = 0; i < 8; i++) {
    f.mean[i] = norm.mean[mine + i];
    f.scale[i] = norm.weight[mine + i] * norm.invstd[mine + i];
    f.bias[i] = norm.bias[mine + i];
  }
  for (int64_t at = blockIdx.x; at < s.count; at += gridDim.x) {
    const thin_band band(s, at);
    load_band(s, band, in, window);
    for (int p = warp * THIN_PLACES; p < band.places; p += THIN_WARPS * THIN_PLACES) {
      uint32_t a[2][4], v[4][4], g[4][4], there[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int place = p + 2 * member + i % 2 + i / 2 * 8;
        const int64_t index = band.place(s, place < band.places ? place : 0);
        const uint4 value = __ldcs(reinterpret_cast<const uint4 *>(x + index)),
                    gradient = __ldcs(reinterpret_cast<const uint4 *>(d + index));
        there[i] = place < band.places ? 0xffffffffu : 0;
        v[i][0] = value.x, v[i][1] = value.y, v[i][2] = value.z, v[i][3] = value.w;
        g[i][0] = gradient.x, g[i][1] = gradient.y, g[i][2] = gradient.z, g[i][3] = gradient.w;
      }
      filter_fragments(s, window, band.places, p, offset, a);
#pragma unroll
      for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int k = 0; k < 4; k++) v[i][k] &= there[i], g[i][k] &= there[i];
        pass_place<RELU>(f, v[i], g[i]);
      }
      multiply_filters(of_d, a, g);
      multiply_filters(of_x, a, v);
      const uint32_t one = 0x3f803f80u;
      const uint32_t b0 = __byte_perm(there[0], there[1], 0x7610) & one,
                     b1 = __byte_perm(there[2], there[3], 0x7610) & one;
      multiply(ones[0], a[0], b0, b1);
      multiply(ones[1], a[1], b0, b1);
    }
  }
  float *to = partial + ((int64_t)blockIdx.x * s.filters + first) * values_of(s);
  add_sums(f, sums);
  add_filters(of_d, products);
  for (int i = (int)threadIdx.x; i < THIN_FILTERS * s.taps; i += THIN_THREADS)
    to[i / s.taps * values_of(s) + i % s.taps] = products.of(i / s.taps, i % s.taps);
  add_filters(of_x, products);
  for (int i = (int)threadIdx.x; i < THIN_FILTERS * s.taps; i += THIN_THREADS)
    to[i / s.taps * values_of(s) + s.taps + i % s.taps] = products.of(i / s.taps, i % s.taps);
  if (threadIdx.x < 2 * THIN_FILTERS) {
    float total = 0;
#pragma unroll
    for (int w = 0; w < THIN_WARPS; w++) total += sums[w][threadIdx.x / 2][threadIdx.x % 2];
    to[(int)threadIdx.x / 2 * values_of(s) + 2 * s.taps + (int)threadIdx.x % 2] = total;
  }
  if (blockIdx.y > 0) return;
  add_ones(ones, all_ones);
  if ((int)threadIdx.x < s.taps)
    partial[ones_at(s, gridDim.x) + (int64_t)blockIdx.x * s.taps + threadIdx.x] = all_ones[threadIdx.x];
}

/* A block a filter: sums its values over all blocks' parts, in order, and puts them together. */
enum { VALUES = 128 /* places for 3 taps + 2 */, SLICES = 8 };
__global__ void __launch_bounds__(VALUES *SLICES)
    thin_norm_finish(const __grid_constant__ thin_shape s, const __grid_constant__ struct norm_args norm,
                     const float *partial, int parts, float share, float *d_weight) {
  __shared__ double slice[SLICES][VALUES];
  __shared__ float2 line; /* slant, offset */
  const int value = (int)threadIdx.x % VALUES, mine = (int)threadIdx.x / VALUES, filter = (int)blockIdx.y;
  const int values = values_of(s);
  const bool own = value < values;
  const float *from = own ? partial + (int64_t)filter * values + value
                          : partial + ones_at(s, (unsigned)parts) + (value - values);
  const int64_t step = own ? (int64_t)s.filters * values : s.taps;
  double sum = 0;
  for (int p = mine; value < values + s.taps && p < parts; p += SLICES * LOADS) {
    float part[LOADS];
#pragma unroll
    for (int u = 0; u < LOADS; u++)
      part[u] = p + u * SLICES < parts ? __ldcg(from + (p + u * SLICES) * step) : 0.0f;
#pragma unroll
    for (int u = 0; u < LOADS; u++) sum += (double)part[u];
  }
  slice[mine][value] = sum;
  __syncthreads();
  if (mine == 0)
#pragma unroll
    for (int i = 1; i < SLICES; i++) slice[0][value] += slice[i][value];
  __syncthreads();
  const float invstd = norm.invstd[filter], weight = norm.weight[filter], mean = norm.mean[filter];
  if (threadIdx.x == 0)
    line = norm_finish(norm, make_double2(slice[0][2 * s.taps], slice[0][2 * s.taps + 1]), share, invstd,
                       weight, filter);
  __syncthreads();
  if ((int)threadIdx.x >= s.taps) return;
  const double ones = slice[0][values + threadIdx.x],
               centred = slice[0][s.taps + threadIdx.x] - (double)mean * ones;
  d_weight[(int64_t)filter * s.taps + threadIdx.x] =
      (float)((double)(weight * invstd) * slice[0][threadIdx.x] + (double)line.x * centred +
              (double)line.y * ones);
}

bool kernel_thin_norm_fits(const struct conv_args *args, const struct norm_args *norm) {
  if (!kernel_thin_fits(args) || norm->residual || norm->d_residual || !norm->mean) return false;
  struct thin_shape s = thin_shape_of(args, BAND);
  return s.taps * 3 + 2 <= VALUES && thin_shared(&s) <= MOST_SHARED &&
         (norm->activation == ACTIVATION_NONE || norm->activation == ACTIVATION_RELU);
}

size_t kernel_thin_norm_workspace(const struct conv_args *args) {
  struct thin_shape s = thin_shape_of(args, BAND);
  const unsigned blocks = thin_blocks(&s, BLOCKS);
  return (size_t)ones_at(s, blocks) + (size_t)blocks * (size_t)s.taps;
}

int kernel_thin_norm_filter(cudaStream_t stream, const struct conv_args *args, const struct norm_args *norm,
                            const void *in, float *d_weight) {
  struct thin_shape s = thin_shape_of(args, BAND);
  const unsigned blocks = thin_blocks(&s, BLOCKS);
  (norm->activation == ACTIVATION_RELU
       ? thin_norm_filter<true>
       : thin_norm_filter<false>)<<<dim3(blocks, (unsigned)(s.filters / THIN_FILTERS)), THIN_THREADS,
                                    thin_shared(&s), stream>>>(s, *norm, (const bf16 *)in, norm->workspace);
  const int error = (int)cudaGetLastError();
  if (error) return error;
  thin_norm_finish<<<dim3(1, (unsigned)s.filters), VALUES * SLICES, 0, stream>>>(
      s, *norm, norm->workspace, (int)blocks, 1.0f / (float)norm->rows, d_weight);
  return (int)cudaGetLastError();
}
