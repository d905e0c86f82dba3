/* weft_scale on GPUs: what the CUDA module offers to kernel/cuda/scale.c, by the rules of
 * device/cuda_module.h. */
#ifndef WEFT_KERNEL_CUDA_SCALE_H
#define WEFT_KERNEL_CUDA_SCALE_H

#include "device/cuda_module.h"
#include "kernel/scale.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_cuda_scale_ops {
    uint32_t abi;
    int (*load)(int gpu); /* all kernels */
    int (*scale)(int gpu, const weft_scaling_t *args, void *stream);
} weft_cuda_scale_ops_t;

WEFT_CUDA_EXPORT const weft_cuda_scale_ops_t weft_cuda_scale;

/* Outside the module. */
weft_status_t weft__scale_cuda(weft_scaling_t *args, const void *scalar, weft_stream_h stream);

#ifdef __cplusplus
}
#endif
#endif
