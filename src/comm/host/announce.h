/* Announcing a call and comparing it with the others', inline: between the API and the flag of a
 * small call there is one function. segment.h says what slots are, and why nobody acknowledges
 * them. */
#ifndef WEFT_COMM_HOST_ANNOUNCE_H
#define WEFT_COMM_HOST_ANNOUNCE_H

#include <string.h>

#include "comm/host/host.h"
#include "comm/host/wait.h"

/* Both ends as one word each; in between they overlap. */
#define WEFT_COPY_ENDS(type, to, from, bytes)                                                      \
    do {                                                                                           \
        type first, last;                                                                          \
        memcpy(&first, from, sizeof(first));                                                       \
        memcpy(&last, (const char *)(from) + (bytes) - sizeof(last), sizeof(last));                \
        memcpy(to, &first, sizeof(first));                                                         \
        memcpy((char *)(to) + (bytes) - sizeof(last), &last, sizeof(last));                        \
    } while (0)

/* As the kernels' copy, without a call where the data fits into the line of a flag. */
static inline void weft__copy_small(const weft_kernels_t *kernels, void *to, const void *from,
                                    size_t bytes)
{
    typedef struct pair {
        uint64_t low, high;
    } pair_t;
    if (bytes > WEFT_INLINE_BYTES || bytes < 4) {
        kernels->copy(to, from, bytes, WEFT_STORE_CACHED);
    } else if (bytes >= 16) {
        WEFT_COPY_ENDS(pair_t, to, from, bytes);
    } else if (bytes >= 8) {
        WEFT_COPY_ENDS(uint64_t, to, from, bytes);
    } else {
        WEFT_COPY_ENDS(uint32_t, to, from, bytes);
    }
}

/* Lines of a payload that are worth asking for ahead of time. */
#define WEFT_AHEAD_BYTES 1024

/* The next call is likely to be like this one: get its slot for writing now, while this one waits.
 * Others may still compare what was announced there, but no longer read its payload. The line of
 * the flag is written, which gets it for certain; lines of payload are asked for. */
static inline void weft__own_next_slot(weft_host_t *host, size_t payload)
{
    weft_slot_t *next = weft__host_slot_of(host, host->rank, host->seq + 1);
    next->bytes = 0;
    if (payload > WEFT_INLINE_BYTES) {
        for (size_t at = 0; at < payload && at < WEFT_AHEAD_BYTES; at += 64) {
            weft__prefetch_own(next->payload + at);
        }
    }
}

/* Write our announcement, with the data itself if there is a payload, and let the others see it. */
static inline void weft__post(weft_host_t *host, uint64_t sig, size_t count, const void *src,
                              size_t payload)
{
    weft_slot_t *slot = weft__host_slot(host, host->rank);
    bool again = sig == host->last_sig && count == host->last_count;
    host->repeats = !again ? 0 : host->repeats < UINT16_MAX ? host->repeats + 1 : UINT16_MAX;
    host->last_sig = sig;
    host->last_count = count;
    atomic_store_explicit(&slot->count, count, memory_order_relaxed);
    atomic_store_explicit(&slot->sig, sig, memory_order_relaxed);
    slot->repeats = (uint16_t)host->repeats;
    slot->bytes = (uint32_t)payload;
    if (payload > 0) {
        weft__copy_small(host->kernels, weft__slot_payload(slot), src, payload);
    }
    /* Partner: the acquire load in weft__wait of every other rank. */
    atomic_store_explicit(&slot->seq, host->seq + 1, memory_order_release);
    weft__ring_bell(host->me);
    weft__own_next_slot(host, payload);
}

static inline bool weft__same_call(const weft_slot_t *a, const weft_slot_t *b)
{
    return atomic_load_explicit(&a->sig, memory_order_relaxed) ==
               atomic_load_explicit(&b->sig, memory_order_relaxed) &&
           atomic_load_explicit(&a->count, memory_order_relaxed) ==
               atomic_load_explicit(&b->count, memory_order_relaxed);
}

/* Wait until rank `p` has announced call `through`, and compare that one and those not compared
 * before with our own. Where both say that those were all alike, the last one tells: the lines
 * of the others stay with who wrote them. */
static inline weft_status_t weft__verify_peer(weft_host_t *host, int p, uint64_t through)
{
    const weft_slot_t *theirs = weft__host_slot_of(host, p, through);
    const weft_slot_t *ours = weft__host_slot_of(host, host->rank, through);
    uint64_t before = through - host->verified;
    weft_status_t status = weft__wait(host, p, &theirs->seq, through + 1);
    if (__builtin_expect(status != WEFT_OK, 0)) {
        return status;
    }
    bool told = theirs->repeats >= before && ours->repeats >= before;
    return __builtin_expect(told && weft__same_call(theirs, ours), 1)
               ? WEFT_OK
               : weft__verify_each(host, p, through);
}

static inline weft_status_t weft__verify_all(weft_host_t *host, uint64_t through)
{
    for (int i = 1, p = host->rank; i < host->size; i++) {
        p = p + 1 == host->size ? 0 : p + 1;
        weft_status_t status = weft__verify_peer(host, p, through);
        if (__builtin_expect(status != WEFT_OK, 0)) {
            return status;
        }
    }
    host->verified = through + 1;
    return WEFT_OK;
}

/* Before the next call is announced: do not run away from the others. Once too far ahead, wait
 * until they have halved the distance, so that this happens once in a few calls and not in each.
 * Others may have ended well after calls that are still compared here: they are not together. */
static inline weft_status_t weft__keep_up(weft_host_t *host)
{
    host->together = false;
    bool far = host->seq + 1 - host->verified > WEFT_LAG;
    return __builtin_expect(far, 0) ? weft__verify_far(host) : WEFT_OK;
}

/* weft__host_announce. */
static inline weft_status_t weft__announce(weft_host_t *host, uint64_t sig, size_t count,
                                           const void *src, size_t payload)
{
    weft_status_t status = weft__keep_up(host);
    if (__builtin_expect(status != WEFT_OK, 0)) {
        return status;
    }
    weft__post(host, sig, count, src, payload);
    host->together = true;
    return weft__verify_all(host, host->seq);
}

/* The same by one-shot, but wait only for `peer` (-1: for nobody). Comparing with the others is
 * left to a later call. Only where nothing is needed from them. */
static inline weft_status_t weft__announce_to(weft_host_t *host, uint64_t sig, size_t count,
                                              const void *src, size_t payload, int peer)
{
    weft_status_t status = weft__keep_up(host);
    if (__builtin_expect(status != WEFT_OK, 0)) {
        return status;
    }
    weft__post(host, sig, count, src, payload);
    return peer >= 0 ? weft__verify_peer(host, peer, host->seq) : WEFT_OK;
}

#endif
