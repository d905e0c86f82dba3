/* Symmetric heaps on GPUs: what the host launches. Kernels are made of <weft/symm_device.cuh>. */
#ifndef WEFT_SYMM_CUDA_LAUNCH_H
#define WEFT_SYMM_CUDA_LAUNCH_H

#include "device/cuda_module.h"
#include "symm/call.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In the heap of every rank, at weft_params_view.head. The first two words are weft_params_words of
 * symm_device.cuh. */
typedef struct weft_params_head {
    uint64_t current, writing;
    uint64_t lock; /* rank 0's: who swaps, as rank + 1 */
    uint64_t
        plan; /* of this rank's own swap: the version it makes; 0: it could not have the lock */
    uint64_t blocks; /* of this rank's own swap that are done */
    uint64_t unused[11];
    /* Virtual GPUs: readers of rank [r] that hold buffer [b] of this replica (params.c). */
    uint64_t pins[][2];
} weft_params_head_t;

typedef struct weft_cuda_symm_ops {
    uint32_t abi;
    /* Load every kernel on `gpu`, before one waits for another. */
    int (*load)(int gpu);
    int (*call)(int gpu, const weft_symm_view_t *view, const weft_symm_call_t *call, void *stream);
    /* Two kernels: take the lock and announce; copy, publish and unlock. */
    int (*swap)(int gpu, const weft_symm_view_t *view, const weft_params_view_t *params,
                const void *src, void *stream);
    int (*read)(int gpu, const weft_symm_view_t *view, const weft_params_view_t *params, int rank,
                uint64_t offset, uint64_t bytes, void *dst, uint64_t *version_p, void *stream);
} weft_cuda_symm_ops_t;

WEFT_CUDA_EXPORT const weft_cuda_symm_ops_t weft_cuda_symm;

#ifdef __cplusplus
}
#endif
#endif
