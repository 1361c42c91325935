/* The convolutions of a CIFAR ResNet's stages that have kernels of their own, for conv_stage.cu to choose
 * from. */
#ifndef CONVOY_MODEL_OPS_CUDA_STAGE_H
#define CONVOY_MODEL_OPS_CUDA_STAGE_H

#include <cuda_runtime.h>

extern "C" {
#include "model/ops/kernels.h"
}

enum { STAGE2_CHANNELS = 128, STAGE4_CHANNELS = 512 };

/* Is it a 3x3 convolution of size x size images, stride 1, pad 1, that keeps the number of channels? */
static inline bool stage_shape(const struct conv_args *a, int size, int channels) {
  return a->n > 0 && a->h == size && a->w == size && a->c == channels && a->filters == channels &&
         a->kernel_h == 3 && a->kernel_w == 3 && a->stride == 1 && a->pad == 1;
}

/* Pixel number `at` of the 2 * PITCH + SIZE + 1 zeros around an image of SIZE rows in lines of PITCH pixels:
 * those above it, those below, and one in front of each row. */
template <int SIZE, int PITCH> __device__ __forceinline__ int frame_pixel(int at) {
  return at <= PITCH ? at : at <= 2 * PITCH ? (SIZE + 1) * PITCH + at - PITCH : (at - 2 * PITCH + 1) * PITCH;
}

/* conv_stage2.cu: 128 to 128 channels on 16x16 images; arguments as kernel_stage_*'s. */
bool stage2_fits(const struct conv_args *args);
int stage2_forward(cudaStream_t stream, const struct conv_args *args, const void *in, const void *weight,
                   void *out, float *part);
int stage2_data(cudaStream_t stream, const struct conv_args *args, const void *d_out, const void *weight,
                void *d_in, bool add);

/* conv_stage4.cu: 512 to 512 channels on 4x4 images; likewise, but forward leaves no sums. */
bool stage4_fits(const struct conv_args *args);
int stage4_forward(cudaStream_t stream, const struct conv_args *args, const void *in, const void *weight,
                   void *out);
int stage4_data(cudaStream_t stream, const struct conv_args *args, const void *d_out, const void *weight,
                void *d_in, bool add);

#endif
