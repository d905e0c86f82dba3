/* Waiting: see wait.h. */
#include "symm/shmem/wait.h"

#include <sched.h>
#include <time.h>

#include "base/clock.h"

#define MS 1000000ull
#define YIELD_NS (20 * MS) /* longer than it takes to wake a chain of PEs that nap */
#define YIELD_CROWDED_NS (4 * MS)
#define NAP_LEAST_NS (MS / 20)
#define NAP_MOST_NS MS

void weft__shmem_idle(weft_shmem_waiter_t *waiter, const char *call)
{
    const weft_shmem_state_t *s = &weft__shmem;
    /* Partner: the watch, which sets it. It orders nothing. */
    if (unlikely(atomic_load_explicit(&s->dead, memory_order_relaxed) != 0)) {
        weft__shmem_peer_died(call);
    }
    /* The clock costs a tenth of a yield. */
    if ((waiter->yields++ & 15) == 15) {
        uint64_t now = weft__now_ns();
        if (waiter->start_ns == 0) {
            waiter->start_ns = now;
        }
        uint64_t waited = now - waiter->start_ns;
        if (waited >= (s->crowded ? YIELD_CROWDED_NS : YIELD_NS)) {
            uint64_t nap = waited / 64;
            nap = nap < NAP_LEAST_NS ? NAP_LEAST_NS : nap > NAP_MOST_NS ? NAP_MOST_NS : nap;
            nanosleep(&(struct timespec){.tv_nsec = (long)nap}, NULL);
            waiter->yields = 15; /* awake: look at the clock again next time */
            return;
        }
    }
    sched_yield();
}
