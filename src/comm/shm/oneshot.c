/* One-shot collectives: every rank puts its data beside its flag; everybody reads what it needs.
 *
 * One exchange of flags, no second synchronization: the two slots alternate (segment.h says why
 * that is safe). Least latency, but every rank reads every payload, so only for small sizes. */
#include "comm/shm/shm.h"

static void reduce_blocks(weft_shm_t *shm, const weft_call_t *call, size_t offset)
{
    const void *srcs[WEFT_MAX_RANKS];
    for (int p = 0; p < shm->size; p++) {
        srcs[p] = weft__slot_payload(weft__shm_slot(shm, p)) + offset;
    }
    void *dst = call->dst;
    weft__kernels()->reduce(&dst, 1, srcs, shm->size, call->count, call->type, call->op,
                            WEFT_STORE_CACHED);
}

/* Block `block` of rank p's payload to block p of dst, for every p. */
static void collect(weft_shm_t *shm, const weft_call_t *call, size_t bytes, size_t block)
{
    const weft_kernels_t *kernels = weft__kernels();
    for (int p = 0; p < shm->size; p++) {
        const char *from = weft__slot_payload(weft__shm_slot(shm, p)) + block * bytes;
        kernels->copy((char *)call->dst + (size_t)p * bytes, from, bytes, WEFT_STORE_CACHED);
    }
}

static void take(weft_shm_t *shm, const weft_call_t *call, size_t bytes, size_t block)
{
    const char *from = weft__slot_payload(weft__shm_slot(shm, call->root)) + block * bytes;
    weft__kernels()->copy(call->dst, from, bytes, WEFT_STORE_CACHED);
}

weft_status_t weft__shm_oneshot(weft_shm_t *shm, const weft_call_t *call)
{
    size_t bytes = call->count * weft_dtype_size(call->type);
    size_t payload = bytes * (size_t)weft__call_src_blocks(call, shm->rank, shm->size);
    weft_status_t status = weft__shm_announce(shm, call, WEFT_ALGO_ONESHOT, payload);
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
    shm->seq++;
    return WEFT_OK;
}
