/* Waiting for another PE: poll, then give the core away, then sleep a little at a time.
 *
 * Puts are plain stores, so nobody can be woken by them; a wait that has lasted for some
 * milliseconds naps, for at most one.
 *
 * Where PEs share cores, polling costs the time of whoever needs this core. If that is the PE we
 * wait for, there is nothing to poll for. If it runs on another core, its answer is nearer than a
 * change of process, so a little polling pays; and since both sides then stay where they are,
 * partners on different cores run together for as long as the kernel lets them. */
#ifndef WEFT_SYMM_SHMEM_WAIT_H
#define WEFT_SYMM_SHMEM_WAIT_H

#include "comm/reach.h"
#include "symm/shmem/state.h"

#define WEFT_SHMEM_ANYBODY (-1) /* who will write what is waited for is not known */

/* Starts as {.pe = whom we wait for}. */
typedef struct weft_shmem_waiter {
    int pe;
    int polls, limit; /* limit: where PEs share cores */
    bool begun;       /* true from the start: never poll where PEs share cores */
    bool warned;
    bool left; /* whom we wait for has: what is not there by now will never be */
    weft_idler_t idler;
} weft_shmem_waiter_t;

/* The slow part: yield or nap, say who is late. Ends the job if a PE has died, or time is up. */
void weft__shmem_idle(weft_shmem_waiter_t *waiter, const char *call);

/* Pass the time once between two looks at what is waited for. */
static inline void weft__shmem_pause(weft_shmem_waiter_t *waiter, const char *call)
{
    if (likely(waiter->polls < weft__shmem.spin)) {
        waiter->polls++;
        weft__pause();
    } else {
        weft__shmem_idle(waiter, call);
    }
}

/* What a program polls for by itself is not there. Now and then: end the job if a PE has died, and
 * give the core away where PEs share cores. */
void weft__shmem_missed(const char *call);

#endif
