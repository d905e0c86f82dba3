/* Patterns inside kernels: what the host launches. One block per rank; `rounds` in one launch, so
 * that launching is not what is timed. */
#ifndef WEFT_BENCH_CUDA_LAUNCH_H
#define WEFT_BENCH_CUDA_LAUNCH_H

#include <weft/symm.h>

#include "device/cuda_module.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which row lookup number `which` wants: as good as random, and quickly known. */
#ifdef __CUDACC__
__host__ __device__
#endif
    static inline uint64_t
    weft__bench_row(uint64_t seed, uint64_t which, uint64_t rows)
{
    return ((seed + which) * 0x9e3779b97f4a7c15ull >> 33) % rows;
}

/* Activations around the ring of ranks; see patterns/handoff.c. */
typedef struct weft_bench_handoff {
    uint64_t bytes;
    uint64_t laps; /* before this launch */
    int rounds;
    float *inbox;     /* symmetric */
    uint64_t *signal; /* symmetric */
} weft_bench_handoff_t;

/* Rows of a distributed tensor, one after the other; see patterns/lookup.c. */
typedef struct weft_bench_lookup {
    weft_dtensor_view_t table;
    uint64_t rows, seed;
    uint64_t asked; /* lookups before this launch */
    int rounds;
    char *got;
} weft_bench_lookup_t;

/* Puts with a signal, to and fro between ranks 0 and 1; see put.c. */
#define WEFT_BENCH_PING_BYTES 65536 /* at most */
typedef struct weft_bench_ping {
    uint64_t bytes;
    int rounds, check;
    uint64_t base;    /* signals used so far */
    char *buffer;     /* symmetric, `bytes` */
    uint64_t *signal; /* symmetric */
    double *result;   /* pinned: nanoseconds one way, bytes found wrong where `check` is set */
} weft_bench_ping_t;

typedef struct weft_cuda_bench_ops {
    uint32_t abi;
    /* Load every kernel on `gpu`, before one waits for another. */
    int (*load)(int gpu);
    int (*handoff)(int gpu, const weft_symm_view_t *view, const weft_bench_handoff_t *handoff,
                   void *stream);
    int (*lookup)(int gpu, const weft_symm_view_t *view, const weft_bench_lookup_t *lookup,
                  void *stream);
    int (*ping)(int gpu, const weft_symm_view_t *view, const weft_bench_ping_t *ping, void *stream);
} weft_cuda_bench_ops_t;

WEFT_CUDA_EXPORT const weft_cuda_bench_ops_t weft_cuda_bench;

#ifdef __cplusplus
}
#endif
#endif
