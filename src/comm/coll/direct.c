/* Direct: every rank works on its share of everybody's buffers.
 *
 * All-reduce of S bytes: rank r reads slice r of all sources and writes it to all destinations: S
 * read and S written per rank, the least there is. The same idea serves the rest: work is divided
 * so that each byte is read once by one rank and written where it belongs. Each rank starts with
 * itself and goes round, so that no memory is visited by all at once. Reductions read all sources
 * at once, by address: the transport must map them. */
#include "comm/coll/window.h"

#include <string.h>

#include "base/log.h"
#include "comm/comm.h"

/* Copies to many destinations go in blocks that stay in the cache between destinations. */
#define FAN_BLOCK ((size_t)64 << 10)

static void copy(const weft_window_t *w, char *to, const char *from, size_t bytes)
{
    w->kernels->copy(to, from, bytes, w->store);
}

/* Reduce elements [lo, hi) of all sources (from `shift` bytes on) into `dsts`. */
static void reduce_slice(const weft_window_t *w, size_t lo, size_t hi, size_t shift, int ndst,
                         void *const *dsts)
{
    const void *srcs[WEFT_MAX_RANKS];
    size_t element = weft_dtype_size(w->call->type);
    for (int i = 0, p = w->rank; i < w->size; i++, p = weft__next(p, w->size)) {
        srcs[i] = w->src[p] + shift + lo * element;
    }
    w->kernels->reduce(dsts, ndst, srcs, w->size, hi - lo, w->call->type, w->call->op, w->store);
}

static void allreduce(const weft_window_t *w)
{
    void *dsts[WEFT_MAX_RANKS];
    size_t lo, hi, element = weft_dtype_size(w->call->type);
    weft__slice(w->call->count, element, w->size, w->rank, &lo, &hi);
    for (int i = 0, p = w->rank; i < w->size; i++, p = weft__next(p, w->size)) {
        dsts[i] = w->dst[p] + lo * element;
    }
    if (hi > lo) {
        reduce_slice(w, lo, hi, 0, w->size, dsts);
    }
}

static void reduce(const weft_window_t *w)
{
    size_t lo, hi, element = weft_dtype_size(w->call->type);
    weft__slice(w->call->count, element, w->size, w->rank, &lo, &hi);
    void *dst = w->dst[w->call->root] + lo * element;
    if (hi > lo) {
        reduce_slice(w, lo, hi, 0, 1, &dst);
    }
}

static void reduce_scatter(const weft_window_t *w, size_t block)
{
    void *dst = w->dst[w->rank];
    reduce_slice(w, 0, w->call->count, (size_t)w->rank * block, 1, &dst);
}

/* Push [from, from + bytes) to offset `to` of every destination. */
static weft_status_t fan_out(weft_window_t *w, const char *from, size_t to, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += FAN_BLOCK) {
        size_t n = bytes - at < FAN_BLOCK ? bytes - at : FAN_BLOCK;
        for (int i = 0, p = w->rank; i < w->size; i++, p = weft__next(p, w->size)) {
            WEFT_TRY(weft__put(w, WEFT_DST, p, to + at, from + at, n));
        }
    }
    return WEFT_OK;
}

static weft_status_t broadcast(weft_window_t *w)
{
    size_t lo, hi, element = weft_dtype_size(w->call->type);
    weft__slice(w->call->count, element, w->size, w->rank, &lo, &hi);
    return fan_out(w, w->src[w->call->root] + lo * element, lo * element, (hi - lo) * element);
}

/* Swap [a, b) halves of a pair of blocks through a small buffer; each of the two ranks takes a
 * half, so both work and no byte is touched twice. */
static void swap_bytes(char *a, char *b, size_t bytes)
{
    char hold[4096];
    while (bytes > 0) {
        size_t n = bytes < sizeof(hold) ? bytes : sizeof(hold);
        memcpy(hold, a, n);
        memcpy(a, b, n);
        memcpy(b, hold, n);
        a += n;
        b += n;
        bytes -= n;
    }
}

static bool in_place_somewhere(const weft_window_t *w)
{
    for (int p = 0; p < w->size; p++) {
        if (w->src[p] == w->dst[p]) {
            return true;
        }
    }
    return false;
}

/* Some ranks may be in place and others not, so each pair exchanges through both of its blocks:
 * rank r's block for p and p's block for r, first half by the lower rank, second by the higher. */
static void exchange_pair(const weft_window_t *w, int p, size_t block)
{
    size_t half = block / 2, at = w->rank < p ? 0 : half, n = w->rank < p ? half : block - half;
    int low = w->rank < p ? w->rank : p, high = w->rank < p ? p : w->rank;
    char *low_src = w->src[low] + (size_t)high * block + at;
    char *low_dst = w->dst[low] + (size_t)high * block + at;
    char *high_src = w->src[high] + (size_t)low * block + at;
    char *high_dst = w->dst[high] + (size_t)low * block + at;
    if (low_src == low_dst && high_src == high_dst) {
        swap_bytes(low_src, high_src, n);
    } else if (low_src == low_dst) {
        copy(w, high_dst, low_src, n); /* save what is about to be overwritten */
        copy(w, low_dst, high_src, n);
    } else {
        copy(w, low_dst, high_src, n);
        copy(w, high_dst, low_src, n);
    }
}

static void alltoall(const weft_window_t *w, size_t block)
{
    size_t me = (size_t)w->rank;
    bool in_place = in_place_somewhere(w);
    copy(w, w->dst[me] + me * block, w->src[me] + me * block, block);
    for (int i = 1, p = w->rank; i < w->size; i++) {
        p = weft__next(p, w->size);
        if (in_place) {
            exchange_pair(w, p, block);
        } else {
            copy(w, w->dst[p] + me * block, w->src[me] + (size_t)p * block, block);
        }
    }
}

static bool overlaps(const weft_window_t *w, size_t block)
{
    size_t src_bytes = block * (size_t)weft__call_src_blocks(w->call, w->rank, w->size);
    size_t dst_bytes = block * (size_t)weft__call_dst_blocks(w->call, w->rank, w->size);
    const char *src = w->src[w->rank], *dst = w->dst[w->rank];
    return src_bytes && dst_bytes && src < dst + dst_bytes && dst < src + src_bytes;
}

weft_status_t weft__direct(weft_window_t *w)
{
    size_t block = w->call->count * weft_dtype_size(w->call->type);
    int me = w->rank, root = w->call->root;
    if (overlaps(w, block)) {
        w->store = WEFT_STORE_CACHED; /* in place: what is written was just read, and is cached */
    }
    switch (w->call->coll) {
    case WEFT_COLL_ALLREDUCE:
        allreduce(w);
        break;
    case WEFT_COLL_REDUCE:
        reduce(w);
        break;
    case WEFT_COLL_REDUCE_SCATTER:
        reduce_scatter(w, block);
        break;
    case WEFT_COLL_BROADCAST:
        return broadcast(w);
    case WEFT_COLL_ALLGATHER:
        return fan_out(w, w->src[me], (size_t)me * block, block);
    case WEFT_COLL_GATHER:
        return weft__put(w, WEFT_DST, root, (size_t)me * block, w->src[me], block);
    case WEFT_COLL_SCATTER:
        return weft__get(w, w->dst[me], WEFT_SRC, root, (size_t)me * block, block);
    case WEFT_COLL_ALLTOALL:
        alltoall(w, block);
        break;
    default:
        return WEFT_ERR_UNSUPPORTED;
    }
    return WEFT_OK;
}
