/* Recursive doubling: log2 N exchanges with partners 1, 2, 4, ... away.
 *
 * All-reduce: in round i ranks r and r xor 2^i combine what they have, so after log2 N rounds all
 * have everything: S log2 N read per rank, the fewest steps. With N not a power of two the ranks
 * above the largest one hand their data to a partner first and take the result from it last.
 * All-gather: in round i rank r, holding the 2^i blocks from its own on, pulls the next 2^i from
 * rank r + 2^i: any N. */
#include "comm/coll/window.h"

#include "base/log.h"

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

static weft_status_t combine_with(const doubling_t *d, int peer, int value, size_t count)
{
    weft_window_t *w = d->w;
    char *tmp = w->tmp[w->rank];
    size_t from = (size_t)(value & 1) * HALF, to = (size_t)((value + 1) & 1) * HALF;
    /* The lower rank's value is always the left operand: both partners compute the same bits. */
    return weft__reduce_from(w, tmp + to, tmp + from, WEFT_TMP, peer, from, count,
                             peer < w->rank ? WEFT_LEFT : WEFT_RIGHT);
}

/* Rounds of one chunk on a core rank. Returns with the sum in half (rounds + 1) % 2. */
static weft_status_t core_rounds(const doubling_t *d, size_t count, uint32_t base)
{
    weft_window_t *w = d->w;
    int extra = w->rank + d->core;
    if (extra < w->size) {
        WEFT_TRY(w->wait(w, extra, base + 1));
        WEFT_TRY(combine_with(d, extra, 0, count));
    } else {
        w->kernels->copy(w->tmp[w->rank] + HALF, w->tmp[w->rank], count * d->element,
                         WEFT_STORE_CACHED);
    }
    w->signal(w, base + 2);
    for (int i = 0; i < d->rounds; i++) {
        int partner = w->rank ^ (1 << i);
        WEFT_TRY(w->wait(w, partner, base + 2 + (uint32_t)i));
        if (i > 0) {
            WEFT_TRY(w->wait(w, w->rank ^ (1 << (i - 1)), base + 2 + (uint32_t)i));
        }
        WEFT_TRY(combine_with(d, partner, i + 1, count));
        w->signal(w, base + 3 + (uint32_t)i);
    }
    return WEFT_OK;
}

/* Before tmp is used for the next chunk, everyone who read it must be done with this one. */
static weft_status_t wait_readers(const doubling_t *d, uint32_t done)
{
    weft_window_t *w = d->w;
    for (int i = 0; i < d->rounds; i++) {
        WEFT_TRY(w->wait(w, w->rank ^ (1 << i), done));
    }
    return w->rank + d->core < w->size ? w->wait(w, w->rank + d->core, done) : WEFT_OK;
}

static weft_status_t reduce_chunk(const doubling_t *d, size_t at, size_t count, uint32_t base)
{
    weft_window_t *w = d->w;
    const weft_call_t *call = w->call;
    uint32_t steps = (uint32_t)d->rounds + 3;
    size_t offset = at * d->element, half = (size_t)((d->rounds + 1) & 1) * HALF;
    char *to = w->dst[w->rank] + offset;
    const char *sum = w->tmp[w->rank] + half;
    int core = w->rank - d->core; /* of an extra rank: who has the sum for it */
    w->kernels->copy(w->tmp[w->rank], w->src[w->rank] + offset, count * d->element,
                     WEFT_STORE_CACHED);
    w->signal(w, base + 1);
    if (core >= 0) {
        WEFT_TRY(w->wait(w, core, base + 2 + (uint32_t)d->rounds));
        WEFT_TRY(weft__get(w, to, WEFT_TMP, core, half, count * d->element));
        sum = to;
    } else {
        WEFT_TRY(core_rounds(d, count, base));
    }
    w->kernels->finish(to, sum, count, call->type, call->op, w->size);
    w->signal(w, base + steps);
    return core >= 0 ? w->wait(w, core, base + steps) : wait_readers(d, base + steps);
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
        WEFT_TRY(reduce_chunk(&d, at, left < d.most ? left : d.most, base));
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
        WEFT_TRY(w->wait(w, peer, step));
        for (int i = 0; i < take; i++) {
            size_t at = (size_t)((peer + i) % n) * block;
            WEFT_TRY(weft__get(w, w->dst[r] + at, WEFT_DST, peer, at, block));
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
