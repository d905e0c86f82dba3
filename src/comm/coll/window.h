/* What an algorithm sees: everybody's buffers, and numbered steps.
 *
 * A window opens when all ranks have announced the same call. src[p] and dst[p] are rank p's
 * buffers at addresses that are valid here; tmp[p] is a scratch of WEFT_TMP_BYTES per rank. A rank
 * tells the others how far it is with signal(step); wait(peer, step) returns when that peer has
 * signalled at least `step`. What a peer wrote before its signal is visible after the wait.
 *
 * The window closes with a barrier made by the caller: until then nobody's buffers change hands,
 * so an algorithm need not wait at its end. Algorithms hold for any transport that can map peers'
 * memory; they know nothing of segments or devices. */
#ifndef WEFT_COMM_COLL_WINDOW_H
#define WEFT_COMM_COLL_WINDOW_H

#include <stdint.h>

#include "comm/call.h"
#include "kernel/kernel.h"

#define WEFT_TMP_BYTES ((size_t)128 << 10)

typedef struct weft_window weft_window_t;
struct weft_window {
    int rank, size;
    const weft_call_t *call;
    char *const *src; /* [size]; NULL where the call has none */
    char *const *dst;
    char *const *tmp;
    const weft_kernels_t *kernels;
    weft_store_t store;
    size_t chunk; /* bytes per step of pipelined algorithms */
    void *ctx;
    void (*signal)(weft_window_t *window, uint32_t step);
    weft_status_t (*wait)(weft_window_t *window, int peer, uint32_t step);
};

/* All of them: WEFT_OK, or the status of a wait that failed. Steps are below 2^24. */
typedef weft_status_t (*weft_algo_fn)(weft_window_t *window);

weft_status_t weft__direct(weft_window_t *window); /* every collective but barrier, p2p */
weft_status_t weft__ring(weft_window_t *window);   /* allreduce, reduce_scatter, allgather, bcast */
weft_status_t weft__tree(weft_window_t *window);   /* allreduce, reduce, broadcast */
weft_status_t weft__doubling(weft_window_t *window); /* allreduce, allgather */

/* The rank after `rank`, going round. */
static inline int weft__next(int rank, int size)
{
    return rank + 1 == size ? 0 : rank + 1;
}

/* Elements [*lo_p, *hi_p) of `count`, of `element` bytes each, that part `index` of `parts` owns;
 * parts are equal but for the rest, and start at multiples of 128 bytes so that, in aligned buffers,
 * no two ranks write one pair of cache lines, which processors fetch together. */
static inline void weft__slice(size_t count, size_t element, int parts, int index, size_t *lo_p,
                               size_t *hi_p)
{
    size_t line = 128 / element, lines = (count + line - 1) / line;
    size_t each = lines / (size_t)parts, rest = lines % (size_t)parts, i = (size_t)index;
    size_t lo = (each * i + (i < rest ? i : rest)) * line;
    size_t hi = lo + (each + (i < rest)) * line;
    *lo_p = lo < count ? lo : count;
    *hi_p = hi < count ? hi : count;
}

#endif
