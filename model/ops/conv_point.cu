/* 1x1 convolutions of bf16 with a stride (the shortcuts between a ResNet's stages) on tensor cores, with fp32
 * sums and fp32 filter gradients. What counts is traffic: only the pixels that the filters see are read, and
 * the data gradient, which is zero elsewhere, touches only these; a library's kernels go over all of them.
 *
 * A block makes 64x64 results. Of its two operands 64 rows of 64 values at a time, which are what is summed
 * over or what the results are counted by, come to shared memory, a few of these chunks ahead. */
#include "model/ops/cuda_tile.h"

extern "C" {
#include "model/ops/kernels.h"
}

enum {
  TILE = 64,
  PITCH = (TILE + 8) * 2, /* bytes of a row: 8 rows lie in different banks */
  OPERAND = TILE * PITCH,
  CHUNK = 2 * OPERAND,
  STAGES = 4,
  THREADS = 256,
  ROWS = THREADS / 8, /* that are copied at once */
  BLOCKS = 128        /* of a filter gradient, about */
};

enum product { FORWARD, DATA, FILTER };

struct point_shape {
  int h, w, c, out_h, out_w, filters, stride;
  int rows;           /* outputs: pixels that the filters see */
  int splits, chunks; /* filter gradient: blocks that share the rows, and how many chunks each has at most */
};

static struct point_shape shape_of(const struct conv_args *a) {
  struct point_shape s = {};
  s.h = (int)a->h, s.w = (int)a->w, s.c = (int)a->c, s.filters = (int)a->filters, s.stride = (int)a->stride;
  s.out_h = (int)a->out_h, s.out_w = (int)a->out_w;
  s.rows = (int)(a->n * a->out_h * a->out_w);
  const int64_t all = ceil_div(s.rows, TILE), tiles = a->c / TILE * (a->filters / TILE);
  const int64_t most = BLOCKS / tiles > 0 ? BLOCKS / tiles : 1;
  s.chunks = (int)ceil_div(all, most);
  s.splits = (int)ceil_div(all, s.chunks);
  return s;
}

bool kernel_point_fits(const struct conv_args *a) {
  return a->kernel_h == 1 && a->kernel_w == 1 && a->pad == 0 && a->stride > 1 && a->c % TILE == 0 &&
         a->filters % TILE == 0 && a->n > 0 && a->n * a->out_h * a->out_w <= INT32_MAX - TILE;
}

size_t kernel_point_workspace(const struct conv_args *args) {
  const struct point_shape s = shape_of(args);
  return s.splits > 1 ? (size_t)s.splits * (size_t)s.filters * (size_t)s.c : 0;
}

/* The first channel of the input's pixel that the filters see at an output. */
static __device__ __forceinline__ int64_t pixel(const point_shape &s, int row) {
  const int line = row / s.out_w, x = row - line * s.out_w, image = line / s.out_h,
            y = line - image * s.out_h;
  return (((int64_t)image * s.h + y * s.stride) * s.w + x * s.stride) * s.c;
}

/* Where this thread copies from: rows `mine` and `mine` + ROWS of both operands' next chunk. */
template <int P> struct point_source {
  const bf16 *left[2], *right[2]; /* row, column of this thread; FILTER: column only */
  int row[2];                     /* output; of both operands in FILTER, else of the left one */

  __device__ __forceinline__ point_source(const point_shape &s, const bf16 *in, const bf16 *weight,
                                          const bf16 *d_out, int m, int n, int first) {
    const int mine = (int)threadIdx.x / 8, column = (int)threadIdx.x % 8 * 8;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int r = mine + i * ROWS;
      row[i] = (P == FILTER ? first : m) + r;
      const int there = row[i] < s.rows ? row[i] : s.rows - 1;
      if (P == FORWARD) {
        left[i] = in + pixel(s, there) + column;
        right[i] = weight + (int64_t)(n + r) * s.c + column;
      } else if (P == DATA) {
        left[i] = d_out + (int64_t)there * s.filters + column;
        right[i] = weight + (int64_t)r * s.c + n + column;
      } else {
        left[i] = d_out + m + column;
        right[i] = in + n + column;
      }
    }
  }

  __device__ __forceinline__ void copy(const point_shape &s, uint32_t to) {
    to += (uint32_t)((int)threadIdx.x / 8 * PITCH + (int)threadIdx.x % 8 * 16);
#pragma unroll
    for (int i = 0; i < 2; i++, to += ROWS * PITCH) {
      const bool inside = row[i] < s.rows;
      if (P == FILTER) {
        const int there = inside ? row[i] : s.rows - 1;
        copy16(to, left[i] + (int64_t)there * s.filters, inside);
        copy16(to + OPERAND, right[i] + pixel(s, there), inside);
        row[i] += TILE;
      } else {
        copy16(to, left[i], inside);
        copy16(to + OPERAND, right[i], true);
        left[i] += TILE;
        right[i] += P == FORWARD ? TILE : TILE * s.c;
      }
    }
  }
};

/* sum += the products of a chunk, for the warp's 16 rows and 32 columns of the tile. */
template <int P>
static __device__ __forceinline__ void multiply_chunk(float (&sum)[4][4], uint32_t chunk, int row,
                                                      int column) {
  const int lane = (int)threadIdx.x % 32, r = lane % 8, low = lane / 8 % 2 * 8, high = lane / 16 * 8;
  const uint32_t right = chunk + OPERAND;
#pragma unroll
  for (int k = 0; k < TILE; k += 16) {
    uint32_t a[4];
    if (P == FILTER) /* its rows are what is summed over, as in `right` but for FORWARD */
      load_matrices<true>(a, chunk + (uint32_t)((k + high + r) * PITCH + (row + low) * 2));
    else
      load_matrices<false>(a, chunk + (uint32_t)((row + low + r) * PITCH + (k + high) * 2));
#pragma unroll
    for (int j = 0; j < 2; j++) {
      uint32_t b[4];
      if (P == FORWARD)
        load_matrices<false>(b, right + (uint32_t)((column + 16 * j + high + r) * PITCH + (k + low) * 2));
      else
        load_matrices<true>(b, right + (uint32_t)((k + low + r) * PITCH + (column + 16 * j + high) * 2));
      multiply(sum[2 * j], a, b[0], b[1]);
      multiply(sum[2 * j + 1], a, b[2], b[3]);
    }
  }
}

/* A thread's 8 neighbours of row group + 8 * half, of the 8-column tile that has its member's number. */
static __device__ __forceinline__ void gather_row(const float (&sum)[4][4], int half, float (&value)[8]) {
  const int member = (int)threadIdx.x % 4;
#pragma unroll
  for (int e = 0; e < 2; e++) {
    uint32_t v[4];
#pragma unroll
    for (int j = 0; j < 4; j++) v[j] = __float_as_uint(sum[j][2 * half + e]);
    transpose_quad(v, member);
#pragma unroll
    for (int j = 0; j < 4; j++) value[2 * j + e] = __uint_as_float(v[j]);
  }
}

/* FORWARD: out (rows, filters); DATA: out as in, added to if `add`; FILTER: parts (splits, filters, c). */
template <int P>
__global__ void __launch_bounds__(THREADS, P == DATA ? 3 : 4)
    point_product(const __grid_constant__ point_shape s, const bf16 *in, const bf16 *weight,
                  const bf16 *d_out, bf16 *out, float *parts, bool add) {
  extern __shared__ __align__(128) uint8_t memory[];
  const int across = (P == FORWARD ? s.filters : s.c) / TILE; /* tiles side by side */
  const int m = (int)blockIdx.x / across * TILE, n = (int)blockIdx.x % across * TILE;
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  const int row = warp % 4 * 16, column = warp / 4 * 32; /* of the warp, in the tile */
  const int first = P == FILTER ? (int)blockIdx.y * s.chunks * TILE : 0;
  int chunks = (P == FORWARD ? s.c : s.filters) / TILE;
  if (P == FILTER) {
    chunks = (s.rows - first + TILE - 1) / TILE;
    chunks = chunks < s.chunks ? chunks : s.chunks;
  }
  const uint32_t base = shared_address(memory);
  point_source<P> source(s, in, weight, d_out, m, n, first);
#pragma unroll
  for (int i = 0; i < STAGES - 1; i++) {
    if (i < chunks) source.copy(s, base + (uint32_t)i * CHUNK);
    copies_commit();
  }
  bf16 *to[2] = {};
  pack<bf16, 8> old[2];
  if (P != FILTER) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int at = m + row + lane / 4 + 8 * half;
      if (at >= s.rows) continue;
      to[half] = out + (P == FORWARD ? (int64_t)at * s.filters : pixel(s, at)) + n + column + 8 * (lane % 4);
      if (P == DATA && add) old[half] = load_pack<bf16, 8>(to[half]);
    }
  }
  float sum[4][4] = {};
  for (int i = 0; i < chunks; i++) {
    copies_wait<STAGES - 2>();
    __syncthreads(); /* chunk i is there, and that before it done with */
    if (i + STAGES - 1 < chunks) source.copy(s, base + (uint32_t)((i + STAGES - 1) % STAGES) * CHUNK);
    copies_commit();
    multiply_chunk<P>(sum, base + (uint32_t)(i % STAGES) * CHUNK, row, column);
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (P == FILTER) {
      const int64_t filter = (int64_t)blockIdx.y * s.filters + m + row + lane / 4 + 8 * half;
      float *place = parts + filter * s.c + n + column + 2 * (lane % 4);
#pragma unroll
      for (int j = 0; j < 4; j++)
        *reinterpret_cast<float2 *>(place + 8 * j) = make_float2(sum[j][2 * half], sum[j][2 * half + 1]);
    } else {
      float value[8];
      gather_row(sum, half, value);
      if (!to[half]) continue;
      if (P == DATA && add) {
        float before[8];
        unpack<bf16, 8>(old[half], before);
#pragma unroll
        for (int i = 0; i < 8; i++) value[i] += before[i];
      }
      store<bf16, 8>(to[half], value);
    }
  }
}

template <int P>
static int launch(cudaStream_t stream, const point_shape &s, const void *in, const void *weight,
                  const void *d_out, void *out, float *parts, bool add) {
  const int summed = P == FORWARD ? s.c / TILE : P == DATA ? s.filters / TILE : s.chunks;
  const int bytes = (summed < STAGES ? summed : STAGES) * CHUNK;
  const int64_t down = P == FILTER ? s.filters / TILE : ceil_div(s.rows, TILE);
  const dim3 grid((unsigned)(down * ((P == FORWARD ? s.filters : s.c) / TILE)),
                  P == FILTER ? (unsigned)s.splits : 1);
  return launch_shared(stream, point_product<P>, grid, THREADS, bytes, s, (const bf16 *)in,
                       (const bf16 *)weight, (const bf16 *)d_out, (bf16 *)out, parts, add);
}

int kernel_point_forward(cudaStream_t stream, const struct conv_args *args, const void *in,
                         const void *weight, void *out) {
  return launch<FORWARD>(stream, shape_of(args), in, weight, nullptr, out, nullptr, false);
}

int kernel_point_data(cudaStream_t stream, const struct conv_args *args, const void *d_out,
                      const void *weight, void *d_in, bool add) {
  if (!add) {
    int error =
        (int)cudaMemsetAsync(d_in, 0, (size_t)(args->n * args->h * args->w * args->c) * sizeof(bf16), stream);
    if (error) return error;
  }
  return launch<DATA>(stream, shape_of(args), nullptr, weight, d_out, d_in, nullptr, add);
}

int kernel_point_filter(cudaStream_t stream, const struct conv_args *args, const void *in, const void *d_out,
                        float *d_weight, float *workspace) {
  const struct point_shape s = shape_of(args);
  int error =
      launch<FILTER>(stream, s, in, nullptr, d_out, nullptr, s.splits > 1 ? workspace : d_weight, false);
  if (error || s.splits == 1) return error;
  return kernel_sum_parts(stream, workspace, d_weight, (int64_t)s.filters * s.c, s.splits);
}
