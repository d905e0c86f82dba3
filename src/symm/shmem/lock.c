/* Locks: a queue of those who wait (Mellor-Crummey and Scott), inside the user's long.
 *
 *     on PE 0            tail:  0, or 1 + the PE that came last
 *     on every PE        next:  0, or 1 + the PE that comes after it; bit 31: it still waits; bit
 *                               30: it has the lock
 *
 * A PE that waits polls its own memory, and whoever releases the lock writes there: first come,
 * first served, one transfer of a cache line per hand-over. Free, the lock is 0 everywhere, as it
 * began. Bit 30 is for its PE alone, which would otherwise wait for ever after a mistake. */
#include "symm/shmem/wait.h"

#include "symm/shmem/api.h"

#define HOME 0
#define WAITS (UINT32_C(1) << 31)
#define HOLDS (UINT32_C(1) << 30)
#define NUMBER (HOLDS - 1)

_Static_assert(WEFT_MAX_RANKS < NUMBER, "a PE's number fits beside the bits");

typedef struct lock {
    _Atomic uint32_t tail, next;
} lock_t;

_Static_assert(sizeof(lock_t) == sizeof(long), "the lock is the user's long");

static lock_t *lock_of(long *lock, int pe, const char *call)
{
    return weft__shmem_remote(lock, sizeof(*lock), pe, call);
}

DEFINE(void, set_lock, long *lock)
{
    uint32_t me = (uint32_t)weft__shmem.me + 1;
    lock_t *home = lock_of(lock, HOME, CALL), *mine = lock_of(lock, weft__shmem.me, CALL);
    if (unlikely(atomic_load_explicit(&mine->next, memory_order_relaxed) & (HOLDS | WAITS))) {
        weft__shmem_die(
            "%s on PE %d: this PE has the lock already, or waits for it in another thread", CALL,
            weft__shmem.me);
    }
    /* Our `next` is 0, as we are in no queue. Partner: the release in clear_lock of whoever had
     * it. */
    uint32_t before = atomic_exchange_explicit(&home->tail, me, memory_order_acq_rel);
    if (before == 0) {
        atomic_fetch_or_explicit(&mine->next, HOLDS, memory_order_relaxed);
        return;
    }
    /* Somebody may have come after us by now: leave its number. */
    atomic_fetch_or_explicit(&mine->next, WAITS, memory_order_relaxed);
    lock_t *previous = lock_of(lock, (int)before - 1, CALL);
    /* Partner: the loads of `next` in clear_lock there. It may be waiting itself: leave its
     * bits. */
    atomic_fetch_or_explicit(&previous->next, me, memory_order_acq_rel);
    /* Any of those before us may need this core. */
    weft_shmem_waiter_t waiter = {.pe = (int)before - 1, .begun = true};
    /* Partner: the release in clear_lock there. */
    while (atomic_load_explicit(&mine->next, memory_order_acquire) & WAITS) {
        weft__shmem_pause(&waiter, CALL);
    }
}

DEFINE(int, test_lock, long *lock)
{
    uint32_t free = 0, me = (uint32_t)weft__shmem.me + 1;
    lock_t *home = lock_of(lock, HOME, CALL), *mine = lock_of(lock, weft__shmem.me, CALL);
    /* Partner: the release in clear_lock of whoever had it. */
    if (atomic_load_explicit(&home->tail, memory_order_relaxed) != 0 ||
        !atomic_compare_exchange_strong_explicit(&home->tail, &free, me, memory_order_acq_rel,
                                                 memory_order_relaxed)) {
        weft__shmem_missed(CALL);
        return 1;
    }
    atomic_fetch_or_explicit(&mine->next, HOLDS, memory_order_relaxed);
    return 0;
}

DEFINE(void, clear_lock, long *lock)
{
    uint32_t me = (uint32_t)weft__shmem.me + 1, tail = me;
    lock_t *home = lock_of(lock, HOME, CALL), *mine = lock_of(lock, weft__shmem.me, CALL);
    weft_shmem_waiter_t waiter = {.pe = WEFT_SHMEM_ANYBODY};
    uint32_t next = atomic_load_explicit(&mine->next, memory_order_acquire);
    if (unlikely(!(next & HOLDS))) {
        weft__shmem_die("%s on PE %d: this PE does not have the lock", CALL, weft__shmem.me);
    }
    /* The quiet that is asked for: the releases below order the same. */
    if (next == HOLDS && atomic_compare_exchange_strong_explicit(
                             &home->tail, &tail, 0, memory_order_acq_rel, memory_order_relaxed)) {
        atomic_store_explicit(&mine->next, 0, memory_order_relaxed); /* nobody comes after us */
        return;
    }
    /* Partner: the fetch_or of the one that has come after us and is about to say so. */
    while ((next = atomic_load_explicit(&mine->next, memory_order_acquire) & NUMBER) == 0) {
        weft__shmem_pause(&waiter, CALL);
    }
    atomic_store_explicit(&mine->next, 0, memory_order_relaxed);
    lock_t *successor = lock_of(lock, (int)next - 1, CALL);
    /* Partner: the acquire in set_lock there. Its bits were set before it gave us its number. */
    atomic_fetch_xor_explicit(&successor->next, WAITS | HOLDS, memory_order_acq_rel);
}
