/* What the choice of a backend asks of the CUDA one; no vendor header, so that anyone may include it. */
#ifndef CONVOY_MODEL_BACKEND_DEVICES_H
#define CONVOY_MODEL_BACKEND_DEVICES_H

#include <stdbool.h>

/* A CUDA device and a driver for it are there. Never an error. */
bool cuda_device_visible(void);

#endif
