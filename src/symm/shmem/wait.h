/* Waiting for another PE: poll, then give the core away, then sleep a little at a time.
 *
 * Puts are plain stores, so nobody can be woken by them; a wait that has lasted for some milliseconds
 * naps, for at most one. Where PEs share cores, polling is skipped: the PE waited for may need this very
 * core. */
#ifndef WEFT_SYMM_SHMEM_WAIT_H
#define WEFT_SYMM_SHMEM_WAIT_H

#include "comm/shm/wait.h"
#include "symm/shmem/state.h"

typedef struct weft_shmem_waiter {
    int polls;
    unsigned yields;
    uint64_t start_ns;
} weft_shmem_waiter_t;

/* The slow part: yield or nap. Ends the job if a PE has died. */
void weft__shmem_idle(weft_shmem_waiter_t *waiter, const char *call);

/* Pass the time once between two looks at what is waited for. `waiter` starts as {0}. */
static inline void weft__shmem_pause(weft_shmem_waiter_t *waiter, const char *call)
{
    if (likely(waiter->polls < weft__shmem.spin)) {
        waiter->polls++;
        weft__pause();
    } else {
        weft__shmem_idle(waiter, call);
    }
}

#endif
