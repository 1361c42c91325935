/* The code of kept plans' kernels, loaded by a thread while the rest of a start goes on.
 *
 * cuDNN loads a kernel's code when a plan first runs, which would be while the first step is recorded. A plan
 * of an earlier start was never run, so the thread records each once, into a graph that is thrown away.
 * Nothing runs, and no error is one: what could not be loaded here is loaded where it is needed. */
#ifndef CONVOY_MODEL_OPS_CUDNN_PRELOAD_CUDA_H
#define CONVOY_MODEL_OPS_CUDNN_PRELOAD_CUDA_H

#include <cudnn.h>
#include <stddef.h>

struct cudnn_preload;

/* One plan and the bytes of its x, w, y and workspace; `plan` must stay until cudnn_preload_end. The first
 * call
 * (*preload NULL) makes the thread, for this device. */
void cudnn_preload_add(struct cudnn_preload **preload, int device, cudnnBackendDescriptor_t plan,
                       const size_t bytes[4]);

/* Waits for the thread, and ends it. NULL: nothing. */
void cudnn_preload_end(struct cudnn_preload **preload);

#endif
