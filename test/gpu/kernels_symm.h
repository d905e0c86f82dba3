/* A user's own kernels on a symmetric heap (kernels_symm.cu), as a library that tests load. All
 * functions return 0 or a CUDA error; `stream` is a cudaStream_t. */
#ifndef WEFT_TEST_GPU_KERNELS_SYMM_H
#define WEFT_TEST_GPU_KERNELS_SYMM_H

#include <weft/symm.h>

#define SYMM_CHECK_BYTES 4096 /* of an area */
#define SYMM_CHECK_AREAS 6    /* one to send from and one to receive in, for each scope */
#define SYMM_CHECK_THREADS 128

typedef struct symm_check {
    char *areas;     /* symmetric: SYMM_CHECK_AREAS x SYMM_CHECK_BYTES */
    uint64_t *flags; /* symmetric: 3 */
    uint64_t *words; /* symmetric: 8, for atomics */
    int rounds;
    uint64_t seed;
    uint32_t *errors; /* pinned: [0] how many, [1] where the first one was */
} symm_check_t;

typedef struct symm_kernels {
    /* Load all kernels for the GPU that the calling thread uses from here on. */
    int (*load)(int gpu);
    /* Puts, gets, signals, atomics and barriers at every scope, checked by the kernel. */
    int (*check)(const weft_symm_view_t *heap, const symm_check_t *check, void *stream);
    /* Ping-pong of `bytes` between ranks 0 and 1 by blocks of `threads` (1: a thread, 32: a warp;
     * negative: blocks that wait by relaxed loads and a fence, to see what acquire loads cost),
     * values of the flag from base + 1 on. *ns (pinned): one way. */
    int (*handoff)(const weft_symm_view_t *heap, char *buffer, uint64_t *flag, uint64_t base,
                   uint64_t bytes, int threads, int rounds, double *ns, void *stream);
    /* Reads of `bytes` of parameters from `rank`; *ns (pinned): of one. */
    int (*lookup)(const weft_symm_view_t *heap, const weft_params_view_t *params, int rank,
                  uint64_t bytes, int rounds, double *ns, void *stream);
    /* All rows of a tensor, of 64-bit words, summed up into *sum (pinned). */
    int (*sum)(const weft_symm_view_t *heap, const weft_dtensor_view_t *tensor, uint64_t rows,
               uint64_t *sum, void *stream);
    /* Wait for *flag >= value; *result (pinned) becomes 1 or, if it gave up, 2. */
    int (*wait)(const weft_symm_view_t *heap, uint64_t *flag, uint64_t value, uint32_t *result,
                void *stream);
    /* Barriers of blocks, `rounds` of them; *ns (pinned): of one; negative if it gave up. */
    int (*barrier)(const weft_symm_view_t *heap, int rounds, double *ns, void *stream);
} symm_kernels_t;

#endif
