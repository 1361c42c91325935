/* What the choice of a backend asks of the CUDA one; no vendor header, so that anyone may include it. */
#ifndef CONVOY_MODEL_BACKEND_DEVICES_H
#define CONVOY_MODEL_BACKEND_DEVICES_H

#include <stdbool.h>
#include <stddef.h>

#include "model/backend/backend.h"

/* A CUDA device and a driver for it are there. Never an error. */
bool cuda_device_visible(void);

/* "driver for CUDA 12.4, CUDA 12.2, cuDNN 9.1.0, NCCL 2.20.5" as loaded; true if they are what the program
 * was compiled with. Works without a device. */
bool cuda_versions(char *text, size_t capacity);

/* gpu_peak of the device that this rank has opened; 0: not known. */
double cuda_peak(enum precision precision);

struct backend_warming;
/* Starts the threads of backend_warm_begin. */
void cuda_warm_begin(struct backend_warming *warming);

#endif
