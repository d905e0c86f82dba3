/* Collectives over shared memory: announce the call, choose the way, carry it out. */
#include "base/log.h"
#include "comm/shm/shm.h"

/* Can ranks of other processes reach [ptr, ptr + bytes)? */
bool weft__shm_shared(const weft_shm_t *shm, const void *ptr, size_t bytes)
{
    int device;
    uint64_t offset;
    return shm->host->one_process || bytes == 0 ||
           (weft__heap_find(ptr, bytes, &device, &offset) && device == shm->device);
}

static uint32_t sharing(const weft_shm_t *shm, const weft_call_t *call)
{
    bool src = weft__shm_shared(shm, call->src,
                                weft__call_extent(call, shm->rank, shm->size, false));
    bool dst = weft__shm_shared(shm, call->dst,
                                weft__call_extent(call, shm->rank, shm->size, true));
    return (src ? WEFT_SLOT_SRC_SHARED : 0) | (dst ? WEFT_SLOT_DST_SHARED : 0);
}

weft_status_t weft__shm_announce(weft_shm_t *shm, const weft_call_t *call, weft_algo_t algo)
{
    weft_host_t *host = shm->host;
    weft_slot_t *mine = weft__host_slot(host, shm->rank);
    bool has_src = weft__call_src_blocks(call, shm->rank, shm->size) > 0;
    bool has_dst = weft__call_dst_blocks(call, shm->rank, shm->size) > 0;
    mine->flags = (uint16_t)sharing(shm, call);
    mine->u.at.src = has_src ? (uint64_t)(uintptr_t)call->src : 0;
    mine->u.at.dst = has_dst ? (uint64_t)(uintptr_t)call->dst : 0;
    weft_status_t status = weft__host_announce(host, call, algo, 0);
    shm->shared = WEFT_SLOT_ALL_SHARED;
    for (int p = 0; p < shm->size && status == WEFT_OK; p++) {
        const weft_slot_t *slot = weft__host_slot(host, p);
        shm->shared &= slot->flags;
        shm->pointers[p] = weft__shm_reach(shm, p, slot->u.at.src);
        shm->pointers[shm->size + p] = weft__shm_reach(shm, p, slot->u.at.dst);
    }
    return status;
}

/* This rank's own parts lie elsewhere than what it has announced, which is for others. */
static void use_own(weft_shm_t *shm, const weft_shm_own_t *own)
{
    char **src = &shm->pointers[shm->rank], **dst = &shm->pointers[shm->size + shm->rank];
    *src = own->src ? own->src : *src;
    *dst = own->dst ? own->dst : *dst;
}

/* Carry out a call by a given algorithm. */
static weft_status_t run(weft_shm_t *shm, const weft_call_t *call, weft_choice_t choice,
                         const weft_shm_own_t *own)
{
    if (choice.algo == WEFT_ALGO_ONESHOT) {
        bool blocks = weft__coll_info[call->coll].src_blocks == 'S';
        size_t payload = weft__call_bytes(call) * (blocks ? (size_t)shm->size : 1);
        if (payload <= WEFT_SLOT_BYTES) {
            return weft__shm_oneshot(shm, call);
        }
    }
    /* Before it goes in chunks: is it the same call for all? */
    WEFT_TRY(weft__shm_announce(shm, call, choice.algo));
    if (choice.algo != WEFT_ALGO_ONESHOT && shm->shared == WEFT_SLOT_ALL_SHARED) {
        use_own(shm, own);
        return weft__shm_window(shm, call, choice);
    }
    shm->host->seq++;
    return weft__shm_chunks(shm, call, choice);
}

weft_status_t weft__shm_collective(void *ctx, const weft_call_t *call)
{
    weft_shm_t *shm = ctx;
    weft_host_t *host = shm->host;
    if (weft__host_is_broken(host)) {
        return weft__host_refuse(host);
    }
    weft__host_begin(host, call);
    weft_status_t status;
    if (call->coll == WEFT_COLL_ALLTOALLV) {
        status = weft__shm_alltoallv(shm, call);
    } else {
        weft_choice_t choice = weft__tuner_choose(&shm->comm->tuner, call->coll,
                                                  weft__call_bytes(call));
        status = run(shm, call, choice, &(weft_shm_own_t){NULL, NULL});
    }
    if (__builtin_expect(status != WEFT_OK, 0)) {
        weft__host_drain(host);
    }
    return status;
}

weft_status_t weft__shm_run_chunk(weft_shm_t *shm, const weft_call_t *chunk, weft_algo_t algo,
                                  const weft_shm_own_t *own)
{
    weft_choice_t choice = {algo, WEFT_STORE_CACHED, "a chunk"};
    return run(shm, chunk, choice, own);
}
