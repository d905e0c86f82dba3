/* Ring: everyone pulls from the left neighbour, N-1 times round.
 *
 *     0 -> 1 -> 2 -> ... -> N-1 -> 0        data flows right; rank r reads rank r-1
 *
 * All-reduce of S bytes: N-1 steps that combine a slice of S/N, then N-1 that copy one: each rank
 * moves 2 S (N-1)/N. Step t of rank r needs step t-1 of its left neighbour and nothing else. */
#include "comm/coll/window.h"

#include "base/log.h"

typedef struct ring {
    weft_window_t *w;
    int left, right;
    size_t element;
} ring_t;

static int wrap(int index, int size)
{
    int r = index % size;
    return r < 0 ? r + size : r;
}

static ring_t make_ring(weft_window_t *w)
{
    return (ring_t){.w = w,
                    .left = wrap(w->rank - 1, w->size),
                    .right = wrap(w->rank + 1, w->size),
                    .element = weft_dtype_size(w->call->type)};
}

/* Slice i of a buffer is never overwritten before its reader is done: the final value of a slice
 * reaches rank r only by way of r's right neighbour, which read the partial one before. So it works
 * in place as well. */
static weft_status_t ring_allreduce(weft_window_t *w)
{
    ring_t ring = make_ring(w);
    const weft_kernels_t *k = w->kernels;
    const weft_call_t *call = w->call;
    int n = w->size, r = w->rank;
    size_t lo, hi;
    if (n == 1) {
        k->finish(w->dst[0], w->src[0], call->count, call->type, call->op, 1);
        return WEFT_OK;
    }
    for (int t = 0; t < n - 1; t++) {
        WEFT_TRY(w->wait(w, ring.left, (uint32_t)t));
        weft__slice(call->count, ring.element, n, wrap(r - 1 - t, n), &lo, &hi);
        size_t at = lo * ring.element;
        WEFT_TRY(weft__reduce_from(w, w->dst[r] + at, w->src[r] + at, t == 0 ? WEFT_SRC : WEFT_DST,
                                   ring.left, at, hi - lo, WEFT_LEFT));
        if (t == n - 2) {
            k->finish(w->dst[r] + at, w->dst[r] + at, hi - lo, call->type, call->op, n);
        }
        w->signal(w, (uint32_t)t + 1);
    }
    for (int t = n - 1; t < 2 * n - 2; t++) {
        WEFT_TRY(w->wait(w, ring.left, (uint32_t)t));
        weft__slice(call->count, ring.element, n, wrap(r - (t - n + 1), n), &lo, &hi);
        size_t at = lo * ring.element;
        WEFT_TRY(weft__get(w, w->dst[r] + at, WEFT_DST, ring.left, at, (hi - lo) * ring.element));
        w->signal(w, (uint32_t)t + 1);
    }
    return WEFT_OK;
}

/* One chunk of every block goes round: partial sums wait in two alternating halves of tmp, which
 * the right neighbour must have read before they are written again. `base` numbers the steps. */
static weft_status_t scatter_chunk(const ring_t *ring, size_t at, size_t count, uint32_t base)
{
    weft_window_t *w = ring->w;
    const weft_call_t *call = w->call;
    int n = w->size, r = w->rank;
    size_t block = call->count * ring->element, half = WEFT_TMP_BYTES / 2;
    for (int t = 0; t < n - 1; t++) {
        uint32_t step = base + (uint32_t)t;
        WEFT_TRY(w->wait(w, ring->left, step));
        WEFT_TRY(w->wait(w, ring->right, step));
        size_t offset = (size_t)wrap(r - 2 - t, n) * block + at * ring->element;
        bool last = t == n - 2;
        char *to = last ? w->dst[r] + at * ring->element : w->tmp[r] + (step & 1) * half;
        WEFT_TRY(weft__reduce_from(w, to, w->src[r] + offset, t == 0 ? WEFT_SRC : WEFT_TMP,
                                   ring->left, t == 0 ? offset : ((step + 1) & 1) * half, count,
                                   WEFT_LEFT));
        if (last) {
            w->kernels->finish(to, to, count, call->type, call->op, n);
        }
        w->signal(w, step + 1);
    }
    return WEFT_OK;
}

static weft_status_t ring_reduce_scatter(weft_window_t *w)
{
    ring_t ring = make_ring(w);
    const weft_call_t *call = w->call;
    if (w->size == 1) {
        w->kernels->finish(w->dst[0], w->src[0], call->count, call->type, call->op, 1);
        return WEFT_OK;
    }
    size_t most = WEFT_TMP_BYTES / 2 / ring.element;
    uint32_t step = 0;
    for (size_t at = 0; at < call->count; at += most) {
        size_t count = call->count - at < most ? call->count - at : most;
        WEFT_TRY(scatter_chunk(&ring, at, count, step));
        step += (uint32_t)w->size - 1;
    }
    return WEFT_OK;
}

static weft_status_t ring_allgather(weft_window_t *w)
{
    ring_t ring = make_ring(w);
    int n = w->size, r = w->rank;
    size_t block = w->call->count * ring.element;
    w->kernels->copy(w->dst[r] + (size_t)r * block, w->src[r], block, w->store);
    for (int t = 0; t < n - 1; t++) {
        WEFT_TRY(w->wait(w, ring.left, (uint32_t)t));
        size_t at = (size_t)wrap(r - 1 - t, n) * block;
        WEFT_TRY(weft__get(w, w->dst[r] + at, t == 0 ? WEFT_SRC : WEFT_DST, ring.left,
                           t == 0 ? 0 : at, block));
        w->signal(w, (uint32_t)t + 1);
    }
    return WEFT_OK;
}

/* A chain from root on, in chunks, so that all links are busy at once. */
static weft_status_t ring_broadcast(weft_window_t *w)
{
    ring_t ring = make_ring(w);
    size_t bytes = w->call->count * ring.element;
    bool root = w->rank == w->call->root;
    bool first = ring.left == w->call->root || root; /* from the source itself */
    uint32_t step = 1;
    for (size_t at = 0; at < bytes; at += w->chunk, step++) {
        size_t n = bytes - at < w->chunk ? bytes - at : w->chunk;
        if (!first) {
            WEFT_TRY(w->wait(w, ring.left, step));
        }
        WEFT_TRY(weft__get(w, w->dst[w->rank] + at, first ? WEFT_SRC : WEFT_DST,
                           first ? w->call->root : ring.left, at, n));
        w->signal(w, step);
    }
    return WEFT_OK;
}

weft_status_t weft__ring(weft_window_t *w)
{
    switch (w->call->coll) {
    case WEFT_COLL_ALLREDUCE:
        return ring_allreduce(w);
    case WEFT_COLL_REDUCE_SCATTER:
        return ring_reduce_scatter(w);
    case WEFT_COLL_ALLGATHER:
        return ring_allgather(w);
    case WEFT_COLL_BROADCAST:
        return ring_broadcast(w);
    default:
        return WEFT_ERR_UNSUPPORTED;
    }
}
