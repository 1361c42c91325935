/* Kernels around the ops; see kernels.h. */
#include "model/ops/cuda_vector.h"

extern "C" {
#include "model/backend/kernels.h"
}

enum { THREADS = 256, UPDATE_BLOCKS = 132 * 8, GATHER_PARTS = 64 /* blocks of an image, at most */ };

__global__ void probe(void) {}

int kernel_probe(void) {
  cudaFuncAttributes attributes;
  return (int)cudaFuncGetAttributes(&attributes, probe);
}

__global__ void step_begin(struct step_control *control, const struct step_row *rows, const int32_t *stop,
                           float *metrics) {
  control->row = rows[control->next];
  control->next++;
  for (int i = 0; i < METRIC_COUNT; i++)
    metrics[i] = i == METRIC_STOP ? (float)*(const volatile int32_t *)stop : 0.0f;
}

int kernel_step_begin(cudaStream_t stream, struct step_control *control, const struct step_row *rows,
                      const int32_t *stop, float *metrics) {
  step_begin<<<1, 1, 0, stream>>>(control, rows, stop, metrics);
  return (int)cudaGetLastError();
}

__global__ void publish(const struct step_control *control, const float *metrics, float *ring) {
  if (threadIdx.x < METRIC_COUNT)
    ring[(size_t)METRIC_COUNT * control->row.slot + threadIdx.x] = metrics[threadIdx.x];
}

int kernel_publish(cudaStream_t stream, const struct step_control *control, const float *metrics,
                   float *ring) {
  publish<<<1, 32, 0, stream>>>(control, metrics, ring);
  return (int)cudaGetLastError();
}

/* The input coordinate of an output coordinate that was moved to `at`; -1: there is none. */
static __device__ __forceinline__ int source(int at, int size, bool reflect) {
  if (at >= 0 && at < size) return at;
  if (!reflect) return -1;
  return at < 0 ? -at : 2 * (size - 1) - at;
}

/* An image has gridDim.y blocks; a thread makes V neighbouring values at a time. */
template <typename T, int V>
__global__ void __launch_bounds__(THREADS)
    gather(const __grid_constant__ struct gather_desc desc, const struct step_control *control,
           const struct sample *list, T *batch, int32_t *labels) {
  const struct sample sample = list[(size_t)control->row.first + blockIdx.x];
  const int channels = desc.channels, width = desc.width, size = desc.height * width * channels;
  const uint8_t *image = desc.images + (size_t)sample.index * (size_t)size;
  T *out = batch + (size_t)blockIdx.x * (size_t)size;
  for (int p = (int)(blockIdx.y * THREADS + threadIdx.x); p < size / V; p += (int)gridDim.y * THREADS) {
    float value[V];
    const int first = p * V / channels;
    int c = p * V - first * channels, y = first / width, x = first - y * width;
#pragma unroll
    for (int i = 0; i < V; i++) {
      const int from_y = source(y + sample.shift_y, desc.height, sample.reflect);
      const int from_x = source((sample.flip ? width - 1 - x : x) + sample.shift_x, width, sample.reflect);
      const bool cut = y >= sample.cut_y && y < sample.cut_y + sample.cut && x >= sample.cut_x &&
                       x < sample.cut_x + sample.cut;
      value[i] = 0;
      if (from_y >= 0 && from_x >= 0 && !cut) {
        const float pixel = (float)image[(from_y * width + from_x) * channels + c];
        value[i] = (pixel / 255.0f - desc.mean[c]) / desc.std[c];
      }
      if (++c == channels) c = 0, x++;
      if (x == width) x = 0, y++;
    }
    store<T, V>(out + p * V, value);
  }
  if (blockIdx.y == 0 && threadIdx.x == 0) labels[blockIdx.x] = desc.labels[sample.index];
}

int kernel_gather(cudaStream_t stream, enum dtype dtype, const struct gather_desc *desc,
                  const struct step_control *control, const struct sample *list, void *batch,
                  int32_t *labels) {
  if (desc->count <= 0) return 0;
  return with_type(dtype, [&](auto type) {
    typedef typename decltype(type)::type T;
    constexpr int V = wide<T>::count;
    const int64_t size = (int64_t)desc->height * desc->width * desc->channels;
    const int64_t parts = ceil_div(size, V * THREADS);
    const dim3 grid((unsigned)desc->count, (unsigned)(parts < GATHER_PARTS ? parts : GATHER_PARTS));
    if (size % V == 0 && aligned16(batch))
      gather<T, V><<<grid, THREADS, 0, stream>>>(*desc, control, list, (T *)batch, labels);
    else
      gather<T, 1><<<grid, THREADS, 0, stream>>>(*desc, control, list, (T *)batch, labels);
    return (int)cudaGetLastError();
  });
}

struct update_args {
  struct update_desc desc;
  struct step_control *control;
  float *params;
  bf16 *low;
  const float *gradients;
  float *slot0, *slot1;
  const float *metrics;
};

/* New value of one parameter; m and v are its state. */
template <int K>
__device__ __forceinline__ float updated(const struct update_desc &desc, const struct step_row &row,
                                         bool decayed, float w, float d, float &m, float &v) {
  const float decay = decayed ? desc.weight_decay : 0.0f;
  if (K == OPTIMIZER_SGD) {
    d = fmaf(decay, w, d);
    m = fmaf(desc.momentum, m, d);
    return w - row.learning_rate * (desc.nesterov ? fmaf(desc.momentum, m, d) : m);
  }
  if (K == OPTIMIZER_ADAMW)
    w -= row.learning_rate * decay * w;
  else
    d = fmaf(decay, w, d);
  m = desc.beta1 * m + (1.0f - desc.beta1) * d;
  v = desc.beta2 * v + (1.0f - desc.beta2) * d * d;
  return w - row.learning_rate / row.correction1 * m / (sqrtf(v / row.correction2) + desc.epsilon);
}

/* V elements from `at`, which are all learned or all statistics. */
template <int K, int V>
__device__ __forceinline__ void update_some(const struct update_args &args, const struct step_row &row,
                                            int64_t at) {
  const struct update_desc &desc = args.desc;
  float w[V], d[V], m[V] = {}, v[V] = {};
  load<float, V>(args.params + at, w);
  load<float, V>(args.gradients + at, d);
  if (at >= desc.parameter_count) {
#pragma unroll
    for (int i = 0; i < V; i++)
      w[i] = (1.0f - desc.statistic_momentum) * w[i] + desc.statistic_momentum * d[i];
    store<float, V>(args.params + at, w);
    return;
  }
  if (args.slot0) load<float, V>(args.slot0 + at, m);
  if (K != OPTIMIZER_SGD) load<float, V>(args.slot1 + at, v);
#pragma unroll
  for (int i = 0; i < V; i++) w[i] = updated<K>(desc, row, at + i < desc.decay_count, w[i], d[i], m[i], v[i]);
  store<float, V>(args.params + at, w);
  if (args.slot0) store<float, V>(args.slot0 + at, m);
  if (K != OPTIMIZER_SGD) store<float, V>(args.slot1 + at, v);
  if (args.low) store<bf16, V>(args.low + at, w);
}

template <int K, int V>
__global__ void __launch_bounds__(THREADS) update(const __grid_constant__ struct update_args args) {
  const struct step_row row = args.control->row; /* read at once, not one after the other */
  const uint32_t halted = args.control->halted;
  const float loss = args.metrics[METRIC_LOSS];
  /* Every thread comes to the same decision: whichever of the two it sees says no. */
  if (halted) return;
  if (!isfinite(loss)) {
    if (blockIdx.x == 0 && threadIdx.x == 0) args.control->halted = 1;
    return;
  }
  const int64_t first = (int64_t)blockIdx.x * THREADS + threadIdx.x, stride = (int64_t)gridDim.x * THREADS;
  for (int64_t at = first * V; at + V <= args.desc.total_count; at += stride * V) {
    if (V > 1 && at < args.desc.parameter_count && at + V > args.desc.parameter_count)
      for (int i = 0; i < V; i++) update_some<K, 1>(args, row, at + i);
    else
      update_some<K, V>(args, row, at);
  }
  const int64_t tail = args.desc.total_count / V * V + first;
  if (V > 1 && tail < args.desc.total_count) update_some<K, 1>(args, row, tail);
}

template <int K> static int launch_update(cudaStream_t stream, const struct update_args &args) {
  bool fits = aligned16(args.params) && aligned16(args.gradients) && aligned16(args.slot0) &&
              aligned16(args.slot1) && aligned16(args.low);
  int64_t blocks = ceil_div(ceil_div(args.desc.total_count, fits ? 4 : 1), THREADS);
  if (blocks > UPDATE_BLOCKS) blocks = UPDATE_BLOCKS;
  if (blocks < 1) blocks = 1;
  if (fits)
    update<K, 4><<<(unsigned)blocks, THREADS, 0, stream>>>(args);
  else
    update<K, 1><<<(unsigned)blocks, THREADS, 0, stream>>>(args);
  return (int)cudaGetLastError();
}

int kernel_update(cudaStream_t stream, const struct update_desc *desc, struct step_control *control,
                  float *params, void *low, const float *gradients, float *slot0, float *slot1,
                  const float *metrics) {
  struct update_args args = {*desc, control, params, (bf16 *)low, gradients, slot0, slot1, metrics};
  switch (desc->kind) {
  case OPTIMIZER_SGD:
    return launch_update<OPTIMIZER_SGD>(stream, args);
  case OPTIMIZER_ADAM:
    return launch_update<OPTIMIZER_ADAM>(stream, args);
  case OPTIMIZER_ADAMW:
    return launch_update<OPTIMIZER_ADAMW>(stream, args);
  }
  return (int)cudaErrorInvalidValue;
}
