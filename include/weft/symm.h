/* Weft: symmetric memory. One-sided puts, gets, atomics and signals between the ranks of a
 * communicator.
 *
 * A symmetric heap is memory of the same size on every rank, in which allocations have the same
 * offset everywhere. So a rank names memory of another one by its own address of it, and a number:
 *
 *     uint64_t *counter;
 *     weft_symm_malloc(symm, 8, (void **)&counter);             collective: all ranks
 *     weft_symm_atomic_add(symm, counter, 1, 3, NULL);          to the counter of rank 3
 *
 * The memory is the device's (weft_malloc): of virtual GPUs or real ones, as WEFT_DEVICE says;
 * ranks are processes, threads, or both. Inside CUDA kernels the same names take a view of the heap
 * in place of its handle: <weft/symm_device.cuh>. Structures that ranks share are in
 * <weft/shared.h>.
 *
 * What holds for every call:
 *
 *  - "Symmetric" pointers point into the caller's own heap; others, at any memory of the caller. A
 *    pointer outside the heap, one whose bytes do not fit in it, or one whose first or last byte is
 *    not allocated, is WEFT_ERR_INVALID with a sentence that says where it lies; so is a rank that
 *    does not exist. `rank` may be the caller's own.
 *  - Collective calls are made by every rank, in the same order and with the same sizes, one at a
 *    time and not while other calls of the same communicator are under way. A rank that passes
 *    another size gives WEFT_ERR_MISMATCH on all, naming two ranks and their sizes, and changes
 *    nothing.
 *  - All other calls concern only the caller, and may be made by several threads of it at once.
 *  - `stream` NULL: done in the calling thread, and complete on return. Otherwise queued, in order
 *    with the rest of the stream; the caller keeps buffers alive until the stream has passed. On
 *    GPUs, buffers of queued calls are device memory or from weft_host_malloc.
 *  - Words that are waited for or changed by atomics are 8 bytes, aligned to 8, and only touched
 *    by the calls here (on virtual GPUs: or by C11 atomics).
 *  - A rank that dies never leaves another one waiting: what waits returns WEFT_ERR_RANK_DEAD,
 *    names the rank, and breaks the communicator; kernels that wait return false. A signal that
 *    does not come is WEFT_ERR_TIMEOUT after the communicator's timeout. On virtual GPUs calls that
 *    wait for nobody go on working, and the heap of a dead rank stays, as it was left. On GPUs the
 *    memory of a process goes with it, so what touches it fails as well. */
#ifndef WEFT_SYMM_H
#define WEFT_SYMM_H

#include <weft/comm.h>
#include <weft/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_symm *weft_symm_h;

/* ---- the heap --------------------------------------------------------------------------- */

/* Make a heap of `bytes` on every rank of `comm`; 0: as the setting WEFT_SYMM_SIZE says.
 * Collective. Destroy it before the communicator. Refused where ranks cannot reach each other's
 * memory: WEFT_ERR_UNSUPPORTED for ranks that NCCL connects. WEFT_ERR_MISMATCH if the sizes
 * differ. */
weft_status_t weft_symm_create(weft_comm_h comm, size_t bytes, weft_symm_h *symm_p);

/* Free the heap and everything in it. Collective, and waits for all ranks, so that nobody's puts
 * come late; with a broken communicator it does not wait, and the memory stays with the device
 * until the process ends. NULL is allowed. */
weft_status_t weft_symm_destroy(weft_symm_h symm);

/* Allocate `bytes` at the same offset on all ranks, aligned to 256 bytes, contents zero.
 * Collective; returns when it is there on all ranks. WEFT_ERR_NO_MEMORY, on all ranks, says what
 * the heap has left and which setting makes it larger. */
weft_status_t weft_symm_malloc(weft_symm_h symm, size_t bytes, void **ptr_p);

/* Free it. Collective; waits for all ranks first. NULL is allowed, on all ranks. */
weft_status_t weft_symm_free(weft_symm_h symm, void *ptr);

weft_status_t weft_symm_rank(weft_symm_h symm, int *rank_p);
weft_status_t weft_symm_size(weft_symm_h symm, int *size_p);
weft_status_t weft_symm_comm(weft_symm_h symm, weft_comm_h *comm_p);

typedef struct weft_symm_stats {
    size_t bytes;   /* of the heap, on each rank */
    size_t used;    /* handed out, after rounding */
    size_t largest; /* what weft_symm_malloc could give now */
    size_t count;   /* allocations that live */
} weft_symm_stats_t;
weft_status_t weft_symm_stats(weft_symm_h symm, weft_symm_stats_t *stats_p);

/* Where the symmetric address `addr` of this rank is on `rank`, for direct access: by the host on
 * virtual GPUs, by kernels (and weft_memcpy) on real ones. Valid until it is freed. NULL, with a
 * sentence in weft_last_error, if addr is not in the heap or there is no such rank. */
void *weft_symm_ptr(weft_symm_h symm, const void *addr, int rank);

/* ---- put and get ------------------------------------------------------------------------ */

/* Write `bytes` from `src` to symmetric `dst` on `rank`. Puts are not ordered among each other, nor
 * seen by others, before a fence, quiet, signal or barrier says so. */
weft_status_t weft_symm_put(weft_symm_h symm, void *dst, const void *src, size_t bytes, int rank,
                            weft_stream_h stream);

/* Read `bytes` from symmetric `src` on `rank` to `dst`. */
weft_status_t weft_symm_get(weft_symm_h symm, void *dst, const void *src, size_t bytes, int rank,
                            weft_stream_h stream);

/* Puts and atomics made so far (on `stream`, if one is given) come before those made later. */
weft_status_t weft_symm_fence(weft_symm_h symm, weft_stream_h stream);

/* Puts and atomics made so far (on `stream`, if one is given) are complete, and visible to all. */
weft_status_t weft_symm_quiet(weft_symm_h symm, weft_stream_h stream);

/* Quiet, then wait for all ranks. Collective. The order is that of the communicator's calls. */
weft_status_t weft_symm_barrier(weft_symm_h symm, weft_stream_h stream);

/* ---- signals ---------------------------------------------------------------------------- */

typedef enum weft_signal_op { WEFT_SIGNAL_SET, WEFT_SIGNAL_ADD } weft_signal_op_t;

typedef enum weft_cmp {
    WEFT_CMP_EQ,
    WEFT_CMP_NE,
    WEFT_CMP_GT,
    WEFT_CMP_GE,
    WEFT_CMP_LT,
    WEFT_CMP_LE
} weft_cmp_t;

/* weft_symm_put, then change the symmetric word `signal` on the same rank: whoever sees the signal
 * sees the data. */
weft_status_t weft_symm_put_signal(weft_symm_h symm, void *dst, const void *src, size_t bytes,
                                   uint64_t *signal, uint64_t value, weft_signal_op_t op, int rank,
                                   weft_stream_h stream);

/* The signal alone. What this rank (this stream) did before is seen by whoever sees it. */
weft_status_t weft_symm_signal_op(weft_symm_h symm, uint64_t *signal, uint64_t value,
                                  weft_signal_op_t op, int rank, weft_stream_h stream);

/* Wait until `*signal cmp value` holds for this rank's own symmetric word. What was put before the
 * signal can be read then. */
weft_status_t weft_symm_signal_wait(weft_symm_h symm, const uint64_t *signal, weft_cmp_t cmp,
                                    uint64_t value, weft_stream_h stream);

/* ---- atomics ---------------------------------------------------------------------------- */

/* On the symmetric 64-bit word `target` of `rank`, indivisible among all ranks and with what
 * kernels do. `old_p`, where there is one, gets what the word held before: memory of the caller
 * that lives until the call is done (queued on GPUs: device memory, or from weft_host_malloc). */
weft_status_t weft_symm_atomic_set(weft_symm_h symm, uint64_t *target, uint64_t value, int rank,
                                   weft_stream_h stream);
weft_status_t weft_symm_atomic_add(weft_symm_h symm, uint64_t *target, uint64_t value, int rank,
                                   weft_stream_h stream);
weft_status_t weft_symm_atomic_and(weft_symm_h symm, uint64_t *target, uint64_t value, int rank,
                                   weft_stream_h stream);
weft_status_t weft_symm_atomic_or(weft_symm_h symm, uint64_t *target, uint64_t value, int rank,
                                  weft_stream_h stream);
weft_status_t weft_symm_atomic_xor(weft_symm_h symm, uint64_t *target, uint64_t value, int rank,
                                   weft_stream_h stream);
weft_status_t weft_symm_atomic_fetch(weft_symm_h symm, const uint64_t *target, uint64_t *old_p,
                                     int rank, weft_stream_h stream);
weft_status_t weft_symm_atomic_fetch_add(weft_symm_h symm, uint64_t *target, uint64_t value,
                                         uint64_t *old_p, int rank, weft_stream_h stream);
weft_status_t weft_symm_atomic_fetch_and(weft_symm_h symm, uint64_t *target, uint64_t value,
                                         uint64_t *old_p, int rank, weft_stream_h stream);
weft_status_t weft_symm_atomic_fetch_or(weft_symm_h symm, uint64_t *target, uint64_t value,
                                        uint64_t *old_p, int rank, weft_stream_h stream);
weft_status_t weft_symm_atomic_fetch_xor(weft_symm_h symm, uint64_t *target, uint64_t value,
                                         uint64_t *old_p, int rank, weft_stream_h stream);
weft_status_t weft_symm_atomic_swap(weft_symm_h symm, uint64_t *target, uint64_t value,
                                    uint64_t *old_p, int rank, weft_stream_h stream);

/* Becomes `value` if it is `expected`; *old_p == expected says that it did. */
weft_status_t weft_symm_atomic_cswap(weft_symm_h symm, uint64_t *target, uint64_t expected,
                                     uint64_t value, uint64_t *old_p, int rank,
                                     weft_stream_h stream);

/* ---- inside kernels --------------------------------------------------------------------- */

#define WEFT_SYMM_VIEW_RANKS 32

/* Where a wait inside a kernel gave up, in host memory: written by the first thread that does. */
typedef struct weft_symm_report {
    uint64_t offset; /* of the word, in the heap */
    uint64_t wanted, found;
    uint32_t cmp;
    uint32_t ready; /* 1 once all of the above is there */
} weft_symm_report_t;

/* A heap as kernels see it, passed to them by value. The fields are for <weft/symm_device.cuh>. */
typedef struct weft_symm_view {
    int rank, size;
    int wide;             /* ranks are on several GPUs: order has to hold for the whole system */
    uint64_t bytes;       /* of each rank's heap */
    uint64_t timeout_ns;  /* of waits; 0: none */
    const uint32_t *stop; /* host memory; not 0: give up waiting */
    weft_symm_report_t *report;       /* host memory */
    char *base[WEFT_SYMM_VIEW_RANKS]; /* of every rank's heap, as it is mapped here */
} weft_symm_view_t;

/* Make the view of this rank. Valid as long as the heap. On virtual GPUs too, for code that wants
 * the addresses; WEFT_ERR_UNSUPPORTED with more than WEFT_SYMM_VIEW_RANKS ranks.
 *
 * While there is a heap on GPUs its communicator counts on all ranks: one that dies or leaves
 * breaks it for the others even if they are in no call, because a kernel may wait for it. A wait of
 * a kernel that fails returns false; weft_symm_error then says why. */
weft_status_t weft_symm_view(weft_symm_h symm, weft_symm_view_t *view_p);

/* WEFT_OK, or why waits fail: the communicator's error, or a signal that a kernel waited for in
 * vain. */
weft_status_t weft_symm_error(weft_symm_h symm);

#ifdef __cplusplus
}
#endif

#include <weft/shared.h>

#endif
