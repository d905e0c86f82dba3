/* One thread at a time is in a call of a communicator: what happens where that does not hold.
 *
 * A call says that it has begun (calling) and then makes sure that its thread still owns the
 * communicator and that the handle lives: a store and some loads, without a locked instruction or a
 * fence, which would have to wait for the flag of the call before. Whoever takes the communicator
 * from the owner pays for both:
 *
 *     owner, every call                     another thread's first call, destroy, abort
 *     calling = this call                   owner = me (or: the handle is dead)
 *     is owner me? does the handle live?    every core passes a fence
 *                                           is calling NULL?
 *
 * Either the first sees that the second came, or the second sees the first in a call. A thread that
 * lost the communicator between its looks has written that it calls: not over what the new owner
 * writes, which has the next place for it. Threads that take turns are fine; each change costs a
 * system call. */
#include <linux/membarrier.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "comm/backends.h"
#include "comm/init.h"

void weft__comm_fence_all(void)
{
    /* Without membarrier, wait for longer than a store takes. */
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0 ||
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

const char *weft__comm_calling(weft_comm_h comm)
{
    const char *call = NULL;
    for (int i = 0; i < WEFT_CALL_PLACES && !call; i++) {
        /* Partner: the release in the end of a call (run.c). */
        call = atomic_load_explicit(&comm->calling[i], memory_order_acquire);
    }
    return call;
}

weft_status_t weft__comm_crossed(weft_comm_h comm, const char *who)
{
    const char *other = weft__comm_calling(comm);
    return weft__fail(WEFT_ERR_INVALID,
                      "weft_%s: two threads of rank %d made calls on the same communicator at the "
                      "same time, weft_%s and weft_%s; let one thread use it at a time",
                      who, comm->rank, other ? other : who, who);
}

weft_status_t weft__comm_take_over(weft_comm_h comm, uintptr_t thread, const char *who)
{
    pthread_mutex_lock(&comm->order_lock);
    weft_status_t status = weft__comm_check(comm, who);
    if (status == WEFT_OK) {
        uintptr_t before = atomic_load_explicit(&comm->owner, memory_order_relaxed);
        /* Partner: the second look at the owner in begin (run.c). */
        atomic_store(&comm->owner, thread | ((before + 1) % WEFT_CALL_PLACES));
        if (before) {
            weft__comm_fence_all();
        }
        if (weft__comm_calling(comm)) {
            atomic_store(&comm->owner, before);
            status = weft__comm_crossed(comm, who);
        }
    }
    pthread_mutex_unlock(&comm->order_lock);
    return status;
}

/* More threads than there are places have crossed each other: the communicator may have been used
 * by two at once. */
static weft_status_t tear(weft_comm_h comm)
{
    char text[160];
    snprintf(text, sizeof(text),
             "two threads of rank %d made calls on the same communicator at the same time; let one "
             "thread use it at a time",
             comm->rank);
    comm->backend->fail(comm->ctx, WEFT_ERR_MISMATCH, comm->rank, text);
    comm->backend->told(comm->ctx);
    return weft__fail(WEFT_ERR_MISMATCH, "%s", text);
}

weft_status_t weft__comm_end_crossed(weft_comm_h comm, uintptr_t thread, weft_status_t status)
{
    pthread_mutex_lock(&comm->order_lock); /* until weft__comm_take_over has given it back */
    uintptr_t owner = atomic_load_explicit(&comm->owner, memory_order_relaxed);
    bool mine = owner - owner % WEFT_CALL_PLACES == thread;
    if (mine) {
        /* Partner: weft__comm_calling. */
        atomic_store_explicit(&comm->calling[owner % WEFT_CALL_PLACES], NULL, memory_order_release);
    }
    pthread_mutex_unlock(&comm->order_lock);
    return mine ? status : tear(comm);
}

/* ---- symmetric heaps -------------------------------------------------------------------- */

void weft__comm_hold(weft_comm_h comm)
{
    atomic_fetch_add(&comm->holds, 1);
}

void weft__comm_let_go(weft_comm_h comm)
{
    pthread_mutex_lock(&comm->order_lock);
    bool last = atomic_fetch_sub(&comm->holds, 1) == 1;
    /* Partner: weft_comm_abort, which takes the handle away and then, under the lock, lets go
     * too. */
    bool dead = atomic_load(&comm->magic) != WEFT_COMM_MAGIC;
    pthread_mutex_unlock(&comm->order_lock);
    if (last && dead) {
        weft__comm_release(comm);
    }
}
