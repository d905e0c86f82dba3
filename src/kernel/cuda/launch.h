/* The arithmetic of training on GPUs: what the CUDA module offers to kernel/cuda/compute.c. A table
 * beside those of device/cuda_module.h, with the same rules: no policy, no state but what a handle
 * made here holds, 0 or an error that error_text explains. */
#ifndef WEFT_KERNEL_CUDA_LAUNCH_H
#define WEFT_KERNEL_CUDA_LAUNCH_H

#include "device/cuda_module.h"
#include "kernel/compute.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Matrix products go through cuBLASLt: loaded on demand, with what was learned about shapes so far.
 * One per GPU, for all of its streams. */
typedef struct weft_cuda_blas weft_cuda_blas_t;

/* Kernels for attention: the fastest; tensor cores as all chips since Ampere have them; none. */
enum { WEFT_CUDA_ATTENTION_AUTO, WEFT_CUDA_ATTENTION_WARP, WEFT_CUDA_ATTENTION_PLAIN };

/* What a kernel runs on. */
typedef struct weft_cuda_exec {
    int gpu;
    void *stream;
    weft_cuda_blas_t *blas;
    int attention;
    void *space; /* scratch memory of this stream alone */
    size_t space_bytes;
} weft_cuda_exec_t;

#define WEFT_CUDA_WHY 300 /* bytes for a sentence */

/* kernel/cuda/choices.h, for the module. */
typedef struct weft_cuda_choices {
    bool (*find)(const void *key, size_t key_bytes, void *choice, size_t bytes);
    void (*offer)(const void *key, size_t key_bytes, void *choice, size_t bytes);
} weft_cuda_choices_t;

typedef struct weft_cuda_compute_ops {
    uint32_t abi;

    /* `library` is a name or path, or "" for the usual ones. On failure *why_p is filled in.
     * `tune`: how many algorithms to time for every new shape, unless there is a choice; 0 takes
     * the library's first. */
    int (*blas_open)(int gpu, const char *library, int tune, const weft_cuda_choices_t *choices,
                     weft_cuda_blas_t **blas_p, char why[WEFT_CUDA_WHY]);

#define WEFT_CUDA_COMPUTE_SLOT(name, args_t)                                                       \
    int (*name)(const weft_cuda_exec_t *exec, const args_t *args);
    WEFT_COMPUTE_TABLE(WEFT_CUDA_COMPUTE_SLOT)
#undef WEFT_CUDA_COMPUTE_SLOT

#define WEFT_CUDA_LIST_SLOT(name, args_t)                                                          \
    int (*name##_list)(const weft_cuda_exec_t *exec, const args_t *list, int count);
    WEFT_COMPUTE_LISTS(WEFT_CUDA_LIST_SLOT)
#undef WEFT_CUDA_LIST_SLOT

    size_t (*embed_work)(int gpu, const weft_embed_t *args);
    size_t (*norm_work)(int gpu, const weft_norm_t *args);
    size_t (*attention_work)(int gpu, const weft_attention_t *args);

    const char *(*error_text)(int error);
} weft_cuda_compute_ops_t;

/* Errors that are not CUDA's. Those of cuBLASLt are negative, from -WEFT_CUDA_BLAS_ERROR down. */
#define WEFT_CUDA_BLAS_ERROR 1000000
#define WEFT_CUDA_UNSUPPORTED 3000000 /* a shape that no kernel is made for */

WEFT_CUDA_EXPORT const weft_cuda_compute_ops_t weft_cuda_compute;

#ifdef __cplusplus
}
#endif
#endif
