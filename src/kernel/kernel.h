/* Arithmetic on device buffers: copies and reductions, at the speed of memory.
 *
 * One table per instruction set (plain C, AVX2, AVX-512), chosen once at run time; all of them give
 * the same bits: no fused multiply-add, no reassociation. Only which of two NaNs comes out of a sum
 * or product is left open. Nothing here allocates or fails; arguments were checked at the API edge.
 * Pointers need only be aligned to their element size. */
#ifndef WEFT_KERNEL_KERNEL_H
#define WEFT_KERNEL_KERNEL_H

#include <stdbool.h>
#include <stddef.h>

#include <weft/types.h>

/* How stores reach memory. STREAM bypasses the cache (non-temporal): it saves the read for
 * ownership and wins when the data does not fit in the last-level cache. A kernel that streams
 * ends with a store fence, so that a flag written after it is seen after the data. */
typedef enum weft_store { WEFT_STORE_CACHED, WEFT_STORE_STREAM } weft_store_t;

typedef struct weft_kernels {
    const char *name; /* "avx512", "avx2", "none" */

    /* dst[0..bytes) = src[0..bytes); no overlap, or dst == src (then nothing is done). */
    void (*copy)(void *dst, const void *src, size_t bytes, weft_store_t store);

    /* For each i < count: r = srcs[0][i] op srcs[1][i] op ... srcs[nsrc-1][i], from left to right;
     * AVG divides the sum by nsrc. dsts[d][i] = r for every d < ndst. nsrc, ndst >= 1. f16,
     * bf16 and float8 are reduced in f32 and rounded once. Any dst may equal any src (same address
     * exactly); other overlaps are not allowed. A few cache lines of each stream are taken in turn,
     * so any number of sources and destinations is fine. STREAM needs destinations that lie alike
     * modulo 64; those that differ from dsts[0] are stored through the cache. One source is copied
     * bit by bit, whatever the operation. */
    void (*reduce)(void *const *dsts, int ndst, const void *const *srcs, int nsrc, size_t count,
                   weft_dtype_t type, weft_op_t op, weft_store_t store);

    /* As reduce with one source and one destination a step: dst[i] = a[i] op b[i], for algorithms
     * that carry partial results. AVG sums here (no division); see finish. dst may equal a or b. */
    void (*combine)(void *dst, const void *a, const void *b, size_t count, weft_dtype_t type,
                    weft_op_t op);

    /* dst[i] = src[i] / n for AVG, in the element's own type (f16, bf16 and float8: in f32, rounded
     * once); a copy for other ops. dst may equal src. */
    void (*finish)(void *dst, const void *src, size_t count, weft_dtype_t type, weft_op_t op,
                   int n);
} weft_kernels_t;

/* The table in force: the best the CPU has, or what WEFT_SIMD asks for. Thread-safe. */
const weft_kernels_t *weft__kernels(void);

/* The table of that name if this CPU can run it, else NULL. For tests. */
const weft_kernels_t *weft__kernels_named(const char *name);

#endif
