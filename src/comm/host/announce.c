/* Calls that all ranks make: every rank announces its own in a slot (segment.h), and compares everybody's. */
#include <string.h>

#include "base/log.h"
#include "comm/host/host.h"
#include "comm/host/wait.h"

/* Write our announcement, with the data itself if there is a payload, and let the others see it. */
static void post(weft_host_t *host, const weft_call_t *call, weft_algo_t algo, size_t payload)
{
    weft_slot_t *slot = weft__host_slot(host, host->rank);
    atomic_store_explicit(&slot->count, call->count, memory_order_relaxed);
    uint64_t sig = weft__sig_pack(call, algo);
    bool again = sig == host->last_sig && call->count == host->last_count;
    host->repeats = again ? host->repeats + 1 : 0;
    host->last_sig = sig;
    host->last_count = call->count;
    atomic_store_explicit(&slot->sig, sig, memory_order_relaxed);
    slot->bytes = (uint32_t)payload;
    if (payload > 0) {
        host->kernels->copy(weft__slot_payload(slot), call->src, payload, WEFT_STORE_CACHED);
    }
    /* Partner: the acquire load in weft__wait of every other rank. */
    atomic_store_explicit(&slot->seq, host->seq + 1, memory_order_release);
    weft__ring_bell(host->me);
}

/* Wait until rank `p` has announced call `through`, and compare that one and those not compared
 * before with our own. */
static weft_status_t verify_peer(weft_host_t *host, int p, uint64_t through)
{
    weft_slot_t *slot = weft__host_slot_of(host, p, through);
    weft_status_t status = weft__wait(host, p, &slot->seq, through + 1);
    for (uint64_t k = host->verified; k <= through && status == WEFT_OK; k++) {
        weft_slot_t *theirs = weft__host_slot_of(host, p, k);
        weft_slot_t *ours = weft__host_slot_of(host, host->rank, k);
        if (atomic_load_explicit(&theirs->sig, memory_order_relaxed) !=
                atomic_load_explicit(&ours->sig, memory_order_relaxed) ||
            atomic_load_explicit(&theirs->count, memory_order_relaxed) !=
                atomic_load_explicit(&ours->count, memory_order_relaxed)) {
            status = weft__host_mismatch(host, p, k);
        }
    }
    return status;
}

static weft_status_t verify_all(weft_host_t *host, uint64_t through)
{
    for (int i = 1, p = host->rank; i < host->size; i++) {
        p = p + 1 == host->size ? 0 : p + 1;
        WEFT_TRY(verify_peer(host, p, through));
    }
    host->verified = through + 1;
    return WEFT_OK;
}

/* Before the next call is announced: do not run away from the others. Once too far ahead, wait until
 * they have halved the distance, so that this happens once in a few calls and not in each. */
static weft_status_t keep_up(weft_host_t *host)
{
    bool far = host->seq + 1 - host->verified > WEFT_LAG;
    return far ? verify_all(host, host->seq - WEFT_LAG / 2) : WEFT_OK;
}

weft_status_t weft__host_announce_to(weft_host_t *host, const weft_call_t *call, size_t bytes,
                                     int peer)
{
    host->together = false;
    weft_status_t status = keep_up(host);
    if (status == WEFT_OK) {
        post(host, call, WEFT_ALGO_ONESHOT, bytes);
        if (peer >= 0) {
            /* It is likely to be ahead: its next announcement can be on its way meanwhile. */
            __builtin_prefetch(weft__host_slot_of(host, peer, host->seq + 1));
            status = verify_peer(host, peer, host->seq);
        }
    }
    return status;
}

weft_status_t weft__host_announce(weft_host_t *host, const weft_call_t *call, weft_algo_t algo,
                                  size_t bytes)
{
    host->together =
        false; /* others may have ended well after calls that are still compared here */
    weft_status_t status = keep_up(host);
    if (status == WEFT_OK) {
        post(host, call, algo, bytes);
        host->together = true;
        status = verify_all(host, host->seq);
    }
    return status;
}

weft_status_t weft__host_gather(weft_host_t *host, bool first, const void *mine, void *all,
                                size_t bytes)
{
    weft_call_t call = {.coll = WEFT_COLL_ALLGATHER,
                        .type = WEFT_U8,
                        .count = bytes,
                        .src = mine,
                        .dst = all,
                        .comm = host->comm};
    if (weft__host_is_broken(host)) {
        return weft__host_refuse(host);
    }
    if (first) {
        weft__host_begin(host, &call);
    }
    host->current = &call;
    weft_status_t status = weft__host_announce(host, &call, WEFT_ALGO_ONESHOT, bytes);
    if (status != WEFT_OK) {
        weft__host_drain(host);
        return status;
    }
    for (int p = 0; p < host->size; p++) {
        memcpy((char *)all + (size_t)p * bytes, weft__slot_payload(weft__host_slot(host, p)),
               bytes);
    }
    host->seq++;
    return WEFT_OK;
}
