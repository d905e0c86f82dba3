/* How loading the CUDA module went, for device.c alone. The rest is in device/cuda.h. */
#ifndef WEFT_DEVICE_CUDA_LOAD_H
#define WEFT_DEVICE_CUDA_LOAD_H

#include <stdbool.h>

/* After weft__cuda_load failed: is that for lack of the module, not of a driver or of GPUs? */
bool weft__cuda_broken_module(void);

#endif
