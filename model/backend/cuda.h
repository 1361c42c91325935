/* What the choice of a backend asks of the CUDA one. */
#ifndef CONVOY_MODEL_BACKEND_CUDA_H
#define CONVOY_MODEL_BACKEND_CUDA_H

#include <stdbool.h>

/* A CUDA device and a driver for it are there. Never an error. */
bool cuda_device_visible(void);

#endif
