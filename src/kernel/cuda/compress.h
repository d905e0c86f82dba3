/* Compression of gradients on GPUs: what the CUDA module offers to kernel/cuda/compress.c, by the
 * rules of device/cuda_module.h. */
#ifndef WEFT_KERNEL_CUDA_COMPRESS_H
#define WEFT_KERNEL_CUDA_COMPRESS_H

#include "device/cuda_module.h"
#include "kernel/compress.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_cuda_compress_ops {
    uint32_t abi;
#define WEFT_CUDA_COMPRESS_SLOT(name, args_t)                                                      \
    int (*name)(int gpu, const args_t *args, void *stream);
    WEFT_COMPRESS_TABLE(WEFT_CUDA_COMPRESS_SLOT)
#undef WEFT_CUDA_COMPRESS_SLOT
} weft_cuda_compress_ops_t;

WEFT_CUDA_EXPORT const weft_cuda_compress_ops_t weft_cuda_compress;

/* The table of kernel/compress.h for GPUs; outside the module. */
extern const weft_compress_ops_t weft__compress_cuda;

#ifdef __cplusplus
}
#endif
#endif
