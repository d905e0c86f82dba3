/* One-shot collectives: every rank puts its data beside its flag; everybody reads what it needs.
 *
 * One exchange of flags, no second synchronization: slots are reused late (segment.h says why that
 * is safe). Least latency, but every rank reads every payload, so only for small sizes. */
#include "comm/host/announce.h"
#include "comm/shm/shm.h"

static void reduce_blocks(weft_shm_t *shm, const weft_call_t *call, size_t offset)
{
    const void *srcs[WEFT_MAX_RANKS];
    for (int p = 0; p < shm->size; p++) {
        srcs[p] = weft__slot_payload(weft__host_slot(shm->host, p)) + offset;
    }
    void *dst = call->dst;
    shm->kernels->reduce(&dst, 1, srcs, shm->size, call->count, call->type, call->op,
                         WEFT_STORE_CACHED);
}

/* Block `block` of rank p's payload to block p of dst, for every p. */
static inline void collect(weft_shm_t *shm, const weft_call_t *call, size_t bytes, size_t block)
{
    for (int p = 0; p < shm->size; p++) {
        const char *from = weft__slot_payload(weft__host_slot(shm->host, p)) + block * bytes;
        weft__copy_small(shm->kernels, (char *)call->dst + (size_t)p * bytes, from, bytes);
    }
}

static inline void take(weft_shm_t *shm, const weft_call_t *call, size_t bytes, size_t block)
{
    const char *from = weft__slot_payload(weft__host_slot(shm->host, call->root)) + block * bytes;
    weft__copy_small(shm->kernels, call->dst, from, bytes);
}

/* Whose payload does this rank need? */
enum { ALL = -2, NOBODY = -1 };

static int needed_rank(const weft_shm_t *shm, const weft_call_t *call)
{
    bool root = shm->rank == call->root;
    switch (call->coll) {
    case WEFT_COLL_BROADCAST:
    case WEFT_COLL_SCATTER:
        return root ? NOBODY : call->root;
    case WEFT_COLL_REDUCE:
    case WEFT_COLL_GATHER:
        return root ? ALL : NOBODY;
    default:
        return ALL;
    }
}

/* The same call again and again: ranks that need nothing from others need not wait for them, which
 * is what makes a stream of small broadcasts fast. A call that is new waits for all, so that a slip
 * is reported by the call itself, on every rank. */
#define ROUTINE 2

static inline bool is_routine(const weft_host_t *host, uint64_t sig, size_t count)
{
    return host->repeats >= ROUTINE && count == host->last_count && sig == host->last_sig;
}

/* Then those that send are likely to be ahead of a root, or of who needs the root: their next
 * announcements can be on their way meanwhile. */
#define AHEAD 3

static inline void look_ahead(const weft_shm_t *shm, const weft_call_t *call, int needed,
                              size_t bytes)
{
    size_t from = call->coll == WEFT_COLL_SCATTER ? (size_t)shm->rank * bytes : 0;
    size_t end = bytes > WEFT_INLINE_BYTES && bytes <= WEFT_AHEAD_BYTES ? from + bytes : 0;
    bool gathers = call->coll == WEFT_COLL_REDUCE || call->coll == WEFT_COLL_GATHER;
    if (needed < 0 && (needed == NOBODY || !gathers)) {
        return;
    }
    for (int p = needed < 0 ? 0 : needed; p < (needed < 0 ? shm->size : needed + 1); p++) {
        const weft_slot_t *slot = weft__host_slot_of(shm->host, p, shm->host->seq + AHEAD);
        if (p != shm->rank) {
            __builtin_prefetch(slot);
            for (size_t at = from; at < end; at += 64) {
                __builtin_prefetch(slot->payload + at);
            }
        }
    }
}

static inline __attribute__((always_inline)) weft_status_t
announce(weft_shm_t *shm, const weft_call_t *call, size_t bytes)
{
    weft_host_t *host = shm->host;
    uint64_t sig = weft__sig_pack(call, WEFT_ALGO_ONESHOT);
    size_t payload = bytes * (size_t)weft__call_src_blocks(call, shm->rank, shm->size);
    int needed = needed_rank(shm, call);
    bool routine = is_routine(host, sig, call->count);
    if (routine) {
        look_ahead(shm, call, needed, bytes);
    }
    return needed == ALL || !routine
               ? weft__announce(host, sig, call->count, call->src, payload)
               : weft__announce_to(host, sig, call->count, call->src, payload, needed);
}

static inline __attribute__((always_inline)) weft_status_t oneshot(weft_shm_t *shm,
                                                                   const weft_call_t *call)
{
    size_t bytes = weft__call_bytes(call);
    weft_status_t status = announce(shm, call, bytes);
    if (__builtin_expect(status != WEFT_OK, 0)) {
        return status;
    }
    size_t me = (size_t)shm->rank;
    if (bytes > 0) {
        switch (call->coll) {
        case WEFT_COLL_ALLREDUCE:
            reduce_blocks(shm, call, 0);
            break;
        case WEFT_COLL_REDUCE_SCATTER:
            reduce_blocks(shm, call, me * bytes);
            break;
        case WEFT_COLL_REDUCE:
            if (shm->rank == call->root) {
                reduce_blocks(shm, call, 0);
            }
            break;
        case WEFT_COLL_BROADCAST:
            take(shm, call, bytes, 0);
            break;
        case WEFT_COLL_SCATTER:
            take(shm, call, bytes, me);
            break;
        case WEFT_COLL_GATHER:
            if (shm->rank == call->root) {
                collect(shm, call, bytes, 0);
            }
            break;
        case WEFT_COLL_ALLGATHER:
            collect(shm, call, bytes, 0);
            break;
        case WEFT_COLL_ALLTOALL:
            collect(shm, call, bytes, me);
            break;
        default:
            break;
        }
    }
    shm->host->seq++;
    return WEFT_OK;
}

weft_status_t weft__shm_oneshot(weft_shm_t *shm, const weft_call_t *call)
{
    return oneshot(shm, call);
}

weft_status_t weft__shm_small(void *ctx, const weft_call_t *call)
{
    weft_shm_t *shm = ctx;
    if (__builtin_expect(weft__host_is_broken(shm->host), 0)) {
        return weft__host_refuse(shm->host);
    }
    weft__host_begin(shm->host, call);
    weft_status_t status = oneshot(shm, call);
    if (__builtin_expect(status != WEFT_OK, 0)) {
        weft__host_drain(shm->host);
    }
    return status;
}
