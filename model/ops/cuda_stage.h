/* The convolutions of a CIFAR ResNet's stages that have kernels of their own, for conv_stage.cu to choose
 * from. */
#ifndef CONVOY_MODEL_OPS_CUDA_STAGE_H
#define CONVOY_MODEL_OPS_CUDA_STAGE_H

#include <cuda_runtime.h>

extern "C" {
#include "model/ops/kernels.h"
}

enum { STAGE2_CHANNELS = 128, STAGE4_CHANNELS = 512 };

/* conv_stage2.cu: 128 to 128 channels on 16x16 images; arguments as kernel_stage_*'s. */
bool stage2_fits(const struct thin_args *args);
int stage2_forward(cudaStream_t stream, const struct thin_args *args, const void *in, const void *weight,
                   void *out, float *part);
int stage2_data(cudaStream_t stream, const struct thin_args *args, const void *d_out, const void *weight,
                void *d_in, bool add);

/* conv_stage4.cu: 512 to 512 channels on 4x4 images; likewise, but forward leaves no sums. */
bool stage4_fits(const struct thin_args *args);
int stage4_forward(cudaStream_t stream, const struct thin_args *args, const void *in, const void *weight,
                   void *out);
int stage4_data(cudaStream_t stream, const struct thin_args *args, const void *d_out, const void *weight,
                void *d_in, bool add);

#endif
