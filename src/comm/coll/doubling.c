/* Recursive doubling: log2 N exchanges with partners 1, 2, 4, ... away.
 *
 * All-reduce: in round i ranks r and r xor 2^i combine what they have, so after log2 N rounds all
 * have everything: S log2 N read per rank, the fewest steps. With N not a power of two the ranks
 * above the largest one hand their data to a partner first and take the result from it last.
 * All-gather: in round i rank r, holding the 2^i blocks from its own on, pulls the next 2^i from rank
 * r + 2^i: any N. */
#include "comm/coll/window.h"

#define HALF (WEFT_TMP_BYTES / 2)

/* Values live in tmp: value i of a chunk in half i % 2. Value i+1 overwrites value i-1, which the
 * partner of round i-1 must have read: it has once it signalled the end of that round. Steps of a
 * chunk: 1 own data there, 2 + i round i done (the fold of extra ranks is round 0), `steps` all. */
typedef struct doubling {
    weft_window_t *w;
    int core;   /* largest power of two <= size */
    int rounds; /* log2 core */
    size_t element, most;
} doubling_t;

static weft_status_t wait_for(const doubling_t *d, int peer, uint32_t step)
{
    return d->w->wait(d->w, peer, step);
}

static void combine_with(const doubling_t *d, int peer, int value, size_t count)
{
    weft_window_t *w = d->w;
    int low = w->rank < peer ? w->rank : peer, high = w->rank < peer ? peer : w->rank;
    size_t from = (size_t)(value & 1) * HALF, to = (size_t)((value + 1) & 1) * HALF;
    /* The lower rank's value is always the left operand: both partners compute the same bits. */
    w->kernels->combine(w->tmp[w->rank] + to, w->tmp[low] + from, w->tmp[high] + from, count,
                        w->call->type, w->call->op);
}

/* Rounds of one chunk on a core rank. Returns with the sum in half (rounds + 1) % 2. */
static weft_status_t core_rounds(const doubling_t *d, size_t count, uint32_t base)
{
    weft_window_t *w = d->w;
    int extra = w->rank + d->core;
    weft_status_t status = WEFT_OK;
    if (extra < w->size) {
        status = wait_for(d, extra, base + 1);
        if (status == WEFT_OK) {
            combine_with(d, extra, 0, count);
        }
    } else {
        w->kernels->copy(w->tmp[w->rank] + HALF, w->tmp[w->rank], count * d->element,
                         WEFT_STORE_CACHED);
    }
    w->signal(w, base + 2);
    for (int i = 0; i < d->rounds && status == WEFT_OK; i++) {
        int partner = w->rank ^ (1 << i);
        status = wait_for(d, partner, base + 2 + (uint32_t)i);
        if (status == WEFT_OK && i > 0) {
            status = wait_for(d, w->rank ^ (1 << (i - 1)), base + 2 + (uint32_t)i);
        }
        if (status == WEFT_OK) {
            combine_with(d, partner, i + 1, count);
            w->signal(w, base + 3 + (uint32_t)i);
        }
    }
    return status;
}

/* Before tmp is used for the next chunk, everyone who read it must be done with this one. */
static weft_status_t wait_readers(const doubling_t *d, uint32_t done)
{
    weft_window_t *w = d->w;
    weft_status_t status = WEFT_OK;
    for (int i = 0; i < d->rounds && status == WEFT_OK; i++) {
        status = wait_for(d, w->rank ^ (1 << i), done);
    }
    if (status == WEFT_OK && w->rank + d->core < w->size) {
        status = wait_for(d, w->rank + d->core, done);
    }
    return status;
}

static weft_status_t reduce_chunk(const doubling_t *d, size_t at, size_t count, uint32_t base)
{
    weft_window_t *w = d->w;
    const weft_call_t *call = w->call;
    uint32_t steps = (uint32_t)d->rounds + 3;
    size_t offset = at * d->element;
    bool is_extra = w->rank >= d->core;
    int from = is_extra ? w->rank - d->core : w->rank;
    w->kernels->copy(w->tmp[w->rank], w->src[w->rank] + offset, count * d->element,
                     WEFT_STORE_CACHED);
    w->signal(w, base + 1);
    weft_status_t status = is_extra ? wait_for(d, from, base + 2 + (uint32_t)d->rounds)
                                    : core_rounds(d, count, base);
    if (status != WEFT_OK) {
        return status;
    }
    const char *sum = w->tmp[from] + (size_t)((d->rounds + 1) & 1) * HALF;
    w->kernels->finish(w->dst[w->rank] + offset, sum, count, call->type, call->op, w->size);
    w->signal(w, base + steps);
    return is_extra ? wait_for(d, from, base + steps) : wait_readers(d, base + steps);
}

static weft_status_t doubling_allreduce(weft_window_t *w)
{
    doubling_t d = {.w = w, .core = 1, .element = weft_dtype_size(w->call->type)};
    d.most = HALF / d.element;
    while (d.core * 2 <= w->size) {
        d.core *= 2;
        d.rounds++;
    }
    uint32_t base = 0;
    for (size_t at = 0; at < w->call->count; at += d.most) {
        size_t left = w->call->count - at;
        weft_status_t status = reduce_chunk(&d, at, left < d.most ? left : d.most, base);
        if (status != WEFT_OK) {
            return status;
        }
        base += (uint32_t)d.rounds + 3;
    }
    return WEFT_OK;
}

static weft_status_t doubling_allgather(weft_window_t *w)
{
    int n = w->size, r = w->rank;
    size_t block = w->call->count * weft_dtype_size(w->call->type);
    w->kernels->copy(w->dst[r] + (size_t)r * block, w->src[r], block, w->store);
    w->signal(w, 1);
    uint32_t step = 1;
    for (int have = 1; have < n; have *= 2, step++) {
        int peer = (r + have) % n;
        int take = n - have < have ? n - have : have;
        weft_status_t status = w->wait(w, peer, step);
        if (status != WEFT_OK) {
            return status;
        }
        for (int i = 0; i < take; i++) {
            size_t at = (size_t)((peer + i) % n) * block;
            w->kernels->copy(w->dst[r] + at, w->dst[peer] + at, block, w->store);
        }
        w->signal(w, step + 1);
    }
    return WEFT_OK;
}

weft_status_t weft__doubling(weft_window_t *w)
{
    switch (w->call->coll) {
    case WEFT_COLL_ALLREDUCE:
        return doubling_allreduce(w);
    case WEFT_COLL_ALLGATHER:
        return doubling_allgather(w);
    default:
        return WEFT_ERR_UNSUPPORTED;
    }
}
