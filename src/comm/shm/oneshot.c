/* One-shot collectives: every rank puts its data beside its flag; everybody reads what it needs.
 *
 * One exchange of flags, no second synchronization: slots are reused late (segment.h says why that is
 * safe). Least latency, but every rank reads every payload, so only for small sizes. */
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
static void collect(weft_shm_t *shm, const weft_call_t *call, size_t bytes, size_t block)
{
    const weft_kernels_t *kernels = shm->kernels;
    for (int p = 0; p < shm->size; p++) {
        const char *from = weft__slot_payload(weft__host_slot(shm->host, p)) + block * bytes;
        kernels->copy((char *)call->dst + (size_t)p * bytes, from, bytes, WEFT_STORE_CACHED);
    }
}

static void take(weft_shm_t *shm, const weft_call_t *call, size_t bytes, size_t block)
{
    const char *from = weft__slot_payload(weft__host_slot(shm->host, call->root)) + block * bytes;
    shm->kernels->copy(call->dst, from, bytes, WEFT_STORE_CACHED);
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

static bool is_routine(const weft_host_t *host, const weft_call_t *call)
{
    return host->repeats >= ROUTINE && call->count == host->last_count &&
           weft__sig_pack(call, WEFT_ALGO_ONESHOT) == host->last_sig;
}

/* The next call is likely to be like this one: fetch its slot for writing now, while nothing waits
 * for it. Everybody has left it, since they all announced the call that just ended. */
static void own_next_slot(weft_host_t *host, size_t payload)
{
    weft_slot_t *slot = weft__host_slot(host, host->rank);
    if (payload > 0) { /* a pure flag is polled by all at once: leave it to them */
        __builtin_prefetch(slot, 1);
    }
    if (payload > WEFT_INLINE_BYTES) {
        for (size_t at = 0; at < payload && at < 1024; at += 64) {
            __builtin_prefetch(slot->payload + at, 1);
        }
    }
}

weft_status_t weft__shm_oneshot(weft_shm_t *shm, const weft_call_t *call)
{
    weft_host_t *host = shm->host;
    size_t bytes = weft__call_bytes(call);
    size_t payload = bytes * (size_t)weft__call_src_blocks(call, shm->rank, shm->size);
    int needed = needed_rank(shm, call);
    weft_status_t status = needed == ALL || !is_routine(host, call)
                               ? weft__host_announce(host, call, WEFT_ALGO_ONESHOT, payload)
                               : weft__host_announce_to(host, call, payload, needed);
    if (status != WEFT_OK) {
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
    host->seq++;
    own_next_slot(host, payload);
    return WEFT_OK;
}
