/* What an algorithm sees: everybody's buffers, verbs to reach them, and numbered steps.
 *
 * A window opens when all ranks have announced the same call. Each rank has three buffers in it:
 * the call's source and destination, and a scratch of WEFT_TMP_BYTES. A rank works on its own by
 * address (src[rank], ...) and on a peer's by verbs: get, put, reduce_from. It tells the others how
 * far it is with signal(step); wait(peer, step) returns when that peer has signalled at least
 * `step`. What a peer wrote before its signal, also with put, is visible after the wait.
 *
 * Where a transport maps peers' memory, src[p], dst[p] and tmp[p] are a peer's buffers at addresses
 * that are valid here, and verbs are loads and stores. Where it does not, they are NULL, and verbs
 * go to the transport. direct.c alone wants them mapped.
 *
 * The window closes with a barrier made by the caller: until then nobody's buffers change hands,
 * so an algorithm need not wait at its end. */
#ifndef WEFT_COMM_COLL_WINDOW_H
#define WEFT_COMM_COLL_WINDOW_H

#include <stdint.h>

#include "comm/call.h"
#include "kernel/kernel.h"

#define WEFT_TMP_BYTES ((size_t)128 << 10)

typedef enum weft_buffer { WEFT_SRC, WEFT_DST, WEFT_TMP, WEFT_BUFFERS } weft_buffer_t;

typedef struct weft_window weft_window_t;
struct weft_window {
    int rank, size;
    const weft_call_t *call;
    union {
        struct {
            char *const *src; /* [size]; NULL where the call has none, or it is not mapped */
            char *const *dst;
            char *const *tmp;
        };
        char *const *at[WEFT_BUFFERS]; /* the same by number */
    };
    const weft_kernels_t *kernels;
    weft_store_t store;
    size_t chunk; /* bytes per step of pipelined algorithms */
    void *ctx;
    void (*signal)(weft_window_t *window, uint32_t step);
    weft_status_t (*wait)(weft_window_t *window, int peer, uint32_t step);

    /* Where buffers of peers are not mapped, else NULL: move bytes between a peer's buffer, from
     * `offset` on, and memory of this rank; done, or to be seen after this rank's next signal
     * (put), on return. */
    weft_status_t (*get)(weft_window_t *window, void *to, weft_buffer_t from, int peer,
                         size_t offset, size_t bytes);
    weft_status_t (*put)(weft_window_t *window, weft_buffer_t to, int peer, size_t offset,
                         const void *from, size_t bytes);
    char *landing; /* room for what is reduced there */
    size_t landing_bytes;
};

/* ---- verbs ------------------------------------------------------------------------------- */

/* `bytes` of a peer's buffer to memory of this rank. */
static inline weft_status_t weft__get(weft_window_t *w, void *to, weft_buffer_t from, int peer,
                                      size_t offset, size_t bytes)
{
    const char *there = w->at[from][peer];
    if (__builtin_expect(there == NULL, 0)) {
        return w->get(w, to, from, peer, offset, bytes);
    }
    w->kernels->copy(to, there + offset, bytes, w->store);
    return WEFT_OK;
}

/* The other way. */
static inline weft_status_t weft__put(weft_window_t *w, weft_buffer_t to, int peer, size_t offset,
                                      const void *from, size_t bytes)
{
    char *there = w->at[to][peer];
    if (__builtin_expect(there == NULL, 0)) {
        return w->put(w, to, peer, offset, from, bytes);
    }
    w->kernels->copy(there + offset, from, bytes, w->store);
    return WEFT_OK;
}

/* One of two operands of a reduction: the peer's is the left one, or the right one. */
typedef enum weft_side { WEFT_LEFT, WEFT_RIGHT } weft_side_t;

/* Reduce `count` elements of a peer's buffer and of `mine` to `to`, both of this rank. */
weft_status_t weft__reduce_far(weft_window_t *w, void *to, const void *mine, weft_buffer_t from,
                               int peer, size_t offset, size_t count, weft_side_t side);
static inline weft_status_t weft__reduce_from(weft_window_t *w, void *to, const void *mine,
                                              weft_buffer_t from, int peer, size_t offset,
                                              size_t count, weft_side_t side)
{
    const char *there = w->at[from][peer];
    if (__builtin_expect(there == NULL, 0)) {
        return weft__reduce_far(w, to, mine, from, peer, offset, count, side);
    }
    there += offset;
    w->kernels->combine(to, side == WEFT_LEFT ? there : mine, side == WEFT_LEFT ? mine : there,
                        count, w->call->type, w->call->op);
    return WEFT_OK;
}

/* ---- algorithms --------------------------------------------------------------------------- */

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
 * parts are equal but for the rest, and start at multiples of 128 bytes so that, in aligned
 * buffers, no two ranks write one pair of cache lines, which processors fetch together. */
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
