/* Collectives over shared memory: announce the call, choose the way, carry it out. */
#include <string.h>

#include "base/log.h"
#include "comm/shm/shm.h"
#include "comm/shm/wait.h"

/* Can ranks of other processes reach [ptr, ptr + bytes)? */
bool weft__shm_shared(const weft_shm_t *shm, const void *ptr, size_t bytes)
{
    int device;
    uint64_t offset;
    return shm->one_process || bytes == 0 ||
           (weft__heap_find(ptr, bytes, &device, &offset) && device == shm->device);
}

static uint32_t sharing(const weft_shm_t *shm, const weft_call_t *call)
{
    bool src = weft__shm_shared(shm, call->src, weft__call_extent(call, shm->rank, shm->size, false));
    bool dst = weft__shm_shared(shm, call->dst, weft__call_extent(call, shm->rank, shm->size, true));
    return (src ? WEFT_SLOT_SRC_SHARED : 0) | (dst ? WEFT_SLOT_DST_SHARED : 0);
}

/* Write our announcement and let the others see it. With a payload the data itself is in it,
 * without one the addresses of the buffers are. */
static void post(weft_shm_t *shm, const weft_call_t *call, weft_algo_t algo, size_t payload)
{
    weft_slot_t *slot = weft__shm_slot(shm, shm->rank);
    atomic_store_explicit(&slot->count, call->count, memory_order_relaxed);
    uint64_t sig = weft__sig_pack(call, algo);
    bool again = sig == shm->last_sig && call->count == shm->last_count;
    shm->repeats = again ? shm->repeats + 1 : 0;
    shm->last_sig = sig;
    shm->last_count = call->count;
    atomic_store_explicit(&slot->sig, sig, memory_order_relaxed);
    slot->bytes = (uint32_t)payload;
    if (payload > 0) {
        shm->kernels->copy(weft__slot_payload(slot), call->src, payload, WEFT_STORE_CACHED);
    } else if (algo != WEFT_ALGO_ONESHOT) {
        bool has_src = weft__call_src_blocks(call, shm->rank, shm->size) > 0;
        bool has_dst = weft__call_dst_blocks(call, shm->rank, shm->size) > 0;
        slot->flags = sharing(shm, call);
        slot->u.at.src = has_src ? (uint64_t)(uintptr_t)call->src : 0;
        slot->u.at.dst = has_dst ? (uint64_t)(uintptr_t)call->dst : 0;
    }
    /* Partner: the acquire load in weft__wait of every other rank. */
    atomic_store_explicit(&slot->seq, shm->seq + 1, memory_order_release);
    weft__ring_bell(shm->me);
}

/* What rank `p` announced beside the signature: where its buffers are, and whether all can reach
 * them. */
static void note_buffers(weft_shm_t *shm, int p, const weft_slot_t *slot)
{
    shm->shared &= slot->flags;
    shm->pointers[p] = weft__shm_reach(shm, p, slot->u.at.src);
    shm->pointers[shm->size + p] = weft__shm_reach(shm, p, slot->u.at.dst);
}

/* Wait until rank `p` has announced call `through`, and compare that one and those not compared
 * before with our own. */
static weft_status_t verify_peer(weft_shm_t *shm, int p, uint64_t through)
{
    weft_slot_t *slot = weft__shm_slot_of(shm, p, through);
    weft_status_t status = weft__wait(shm, p, &slot->seq, through + 1);
    for (uint64_t k = shm->verified; k <= through && status == WEFT_OK; k++) {
        weft_slot_t *theirs = weft__shm_slot_of(shm, p, k);
        weft_slot_t *ours = weft__shm_slot_of(shm, shm->rank, k);
        if (atomic_load_explicit(&theirs->sig, memory_order_relaxed) !=
                atomic_load_explicit(&ours->sig, memory_order_relaxed) ||
            atomic_load_explicit(&theirs->count, memory_order_relaxed) !=
                atomic_load_explicit(&ours->count, memory_order_relaxed)) {
            status = weft__shm_mismatch(shm, p, k);
        }
    }
    return status;
}

static weft_status_t verify_all(weft_shm_t *shm, uint64_t through)
{
    for (int i = 1, p = shm->rank; i < shm->size; i++) {
        p = weft__next(p, shm->size);
        weft_status_t status = verify_peer(shm, p, through);
        if (status != WEFT_OK) {
            return status;
        }
    }
    shm->verified = through + 1;
    return WEFT_OK;
}

/* Before the next call is announced: do not run away from the others. Once too far ahead, wait until
 * they have halved the distance, so that this happens once in a few calls and not in each. */
static weft_status_t keep_up(weft_shm_t *shm)
{
    bool far = shm->seq + 1 - shm->verified > WEFT_LAG;
    return far ? verify_all(shm, shm->seq - WEFT_LAG / 2) : WEFT_OK;
}

weft_status_t weft__shm_announce_to(weft_shm_t *shm, const weft_call_t *call, size_t bytes,
                                    int peer)
{
    shm->together = false;
    weft_status_t status = keep_up(shm);
    if (status == WEFT_OK) {
        post(shm, call, WEFT_ALGO_ONESHOT, bytes);
        if (peer >= 0) {
            /* It is likely to be ahead: its next announcement can be on its way meanwhile. */
            __builtin_prefetch(weft__shm_slot_of(shm, peer, shm->seq + 1));
            status = verify_peer(shm, peer, shm->seq);
        }
    }
    return status;
}

weft_status_t weft__shm_announce(weft_shm_t *shm, const weft_call_t *call, weft_algo_t algo,
                                 size_t bytes)
{
    shm->shared = WEFT_SLOT_SRC_SHARED | WEFT_SLOT_DST_SHARED;
    shm->together = false; /* others may have ended well after calls that are still compared here */
    weft_status_t status = keep_up(shm);
    if (status == WEFT_OK) {
        post(shm, call, algo, bytes);
        shm->together = true;
        status = verify_all(shm, shm->seq);
    }
    for (int p = 0; p < shm->size && status == WEFT_OK && algo != WEFT_ALGO_ONESHOT; p++) {
        note_buffers(shm, p, weft__shm_slot(shm, p));
    }
    return status;
}

/* Carry out a call by a given algorithm. */
static weft_status_t run(weft_shm_t *shm, const weft_call_t *call, weft_choice_t choice)
{
    if (choice.algo == WEFT_ALGO_ONESHOT) {
        bool blocks = weft__coll_info[call->coll].src_blocks == 'S';
        size_t payload = weft__call_bytes(call) * (blocks ? (size_t)shm->size : 1);
        if (payload <= WEFT_SLOT_BYTES) {
            return weft__shm_oneshot(shm, call);
        }
    }
    /* Before it goes in pieces: is it the same call for all? */
    weft_status_t status = weft__shm_announce(shm, call, choice.algo, 0);
    if (status != WEFT_OK) {
        return status;
    }
    if (choice.algo != WEFT_ALGO_ONESHOT &&
        shm->shared == (WEFT_SLOT_SRC_SHARED | WEFT_SLOT_DST_SHARED)) {
        return weft__shm_window(shm, call, choice);
    }
    shm->seq++;
    return weft__shm_pieces(shm, call, choice.algo);
}

weft_status_t weft__shm_collective(void *ctx, const weft_call_t *call)
{
    weft_shm_t *shm = ctx;
    if (atomic_load_explicit(&shm->segment->head->broken, memory_order_acquire) != 0) {
        return weft__shm_refuse(shm);
    }
    shm->current = call;
    atomic_store_explicit(&shm->me->call, ++shm->calls, memory_order_relaxed);
    weft_status_t status;
    if (call->coll == WEFT_COLL_ALLTOALLV) {
        status = weft__shm_alltoallv(shm, call);
    } else {
        weft_choice_t choice = weft__tuner_choose(&shm->comm->tuner, call->coll,
                                                  weft__call_bytes(call));
        status = run(shm, call, choice);
    }
    if (__builtin_expect(status != WEFT_OK, 0)) {
        weft__shm_drain(shm);
    }
    return status;
}

/* For pieces: a part of a call, by the same algorithm as the whole. */
weft_status_t weft__shm_run_piece(weft_shm_t *shm, const weft_call_t *piece, weft_algo_t algo)
{
    weft_choice_t choice = {algo, WEFT_STORE_CACHED, "a piece"};
    return run(shm, piece, choice);
}
