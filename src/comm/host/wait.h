/* Waiting for another rank: spin, then yield, then sleep.
 *
 * A rank that waits for a flag of rank p polls it, gives its core away with sched_yield, and after
 * some milliseconds (in a large call beside computing: a fifth of one) sleeps on p's doorbell. The
 * bell costs the writer one load of its own cache line per flag, no fence: the ordering is the
 * sleeper's to pay.
 *
 *     writer p                          sleeper
 *     store flag (release)              sleepers += 1
 *     load sleepers                     membarrier: every core of registered processes passes a
 *                                       fence
 *     if any: wake += 1, futex_wake     read wake; load flag; futex_wait(wake) if it is not there
 *
 * Either the sleeper's second look sees the flag, or the writer's load came after the membarrier
 * and sees the sleeper. Where membarrier is not to be had, the sleeper naps for at most 1 ms. */
#ifndef WEFT_COMM_HOST_WAIT_H
#define WEFT_COMM_HOST_WAIT_H

#include "comm/host/host.h"
#include "comm/host/idle.h"

/* Can sleepers rely on membarrier in this process? Registers it; called once per join. */
bool weft__wait_init(void);

void weft__wake_all(weft_rank_block_t *block);

/* Every core that runs a rank passes a fence; without membarrier, wait longer than a store
 * takes. */
void weft__wait_fence(const weft_host_t *host);

/* To be called after every store that another rank may wait for. */
static inline void weft__ring_bell(weft_rank_block_t *me)
{
    /* Partner: the sleeper's membarrier, see above. The compiler must not hoist the load. */
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&me->sleepers, memory_order_relaxed) != 0, 0)) {
        weft__wake_all(me);
    }
}

/* Poll `word`, owned by rank `peer`, until it is at least `target` (acquire). */
weft_status_t weft__wait_slow(weft_host_t *host, int peer, const _Atomic uint64_t *word,
                              uint64_t target);

static inline weft_status_t weft__wait(weft_host_t *host, int peer, const _Atomic uint64_t *word,
                                       uint64_t target)
{
    for (int i = 0; i < host->spin; i++) {
        if (__builtin_expect(atomic_load_explicit(word, memory_order_acquire) >= target, 1)) {
            return WEFT_OK;
        }
        weft__pause(); /* a poll while the line is on its way only delays it */
    }
    return weft__wait_slow(host, peer, word, target);
}

/* Poll up to `polls` times, whether or not that is polite. */
static inline void weft__linger(const _Atomic uint64_t *word, uint64_t target, int polls)
{
    while (polls-- > 0 && atomic_load_explicit(word, memory_order_acquire) < target) {
        weft__pause();
    }
}

/* State of a longer wait, for callers that poll something else than one word. */
typedef struct weft_waiter {
    int polls;
    bool several; /* waits for more than `word`: sleep only briefly */
    bool warned;
    uint64_t start_ns, check_ns;
} weft_waiter_t;

/* Pass the time once: spin, yield or sleep a little, on the doorbell of `peer`. `word` and `target`
 * as for weft__wait: what is looked at before sleeping. Errors: broken, dead, left, late. */
weft_status_t weft__wait_step(weft_host_t *host, weft_waiter_t *waiter, int peer,
                              const _Atomic uint64_t *word, uint64_t target);

#endif
