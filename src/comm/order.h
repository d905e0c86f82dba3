/* A thread begins and ends a call on a communicator: the way of every call, inline. order.c has
 * the idea, and what happens where two threads do so at the same time. */
#ifndef WEFT_COMM_ORDER_H
#define WEFT_COMM_ORDER_H

#include "comm/comm.h"

/* Its address tells threads apart. Plain to find, as the depth of groups is: part of every call. */
extern _Thread_local _Alignas(WEFT_CALL_PLACES) char weft__self
    __attribute__((tls_model("initial-exec")));

static inline bool weft__is_mine(uintptr_t owner)
{
    return (owner & ~(uintptr_t)(WEFT_CALL_PLACES - 1)) == (uintptr_t)&weft__self;
}

/* The calling thread begins to use the communicator, see order.c. */
static inline __attribute__((always_inline)) weft_status_t weft__call_begin(weft_comm_h comm,
                                                                            const char *who)
{
    weft_status_t status;
    uintptr_t owner = atomic_load_explicit(&comm->owner, memory_order_relaxed);
    if (__builtin_expect(!weft__is_mine(owner), 0)) {
        status = weft__comm_take_over(comm, (uintptr_t)&weft__self, who);
        owner = atomic_load_explicit(&comm->owner, memory_order_relaxed);
        if (status != WEFT_OK || !weft__is_mine(owner)) {
            return status != WEFT_OK ? status : weft__comm_crossed(comm, who);
        }
    }
    /* Partners: weft__comm_take_over, weft_comm_destroy and weft_comm_abort. */
    _Atomic(const char *) *calling = &comm->calling[owner % WEFT_CALL_PLACES];
    atomic_store_explicit(calling, who, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    bool mine = atomic_load_explicit(&comm->owner, memory_order_relaxed) == owner;
    status = __builtin_expect(mine, 1) ? weft__comm_check(comm, who)
                                       : weft__comm_crossed(comm, who);
    if (__builtin_expect(status != WEFT_OK, 0)) {
        atomic_store_explicit(calling, NULL, memory_order_release);
    }
    return status;
}

static inline __attribute__((always_inline)) weft_status_t weft__call_end(weft_comm_h comm,
                                                                          weft_status_t status)
{
    uintptr_t owner = atomic_load_explicit(&comm->owner, memory_order_relaxed);
    if (__builtin_expect(!weft__is_mine(owner), 0)) {
        return weft__comm_end_crossed(comm, (uintptr_t)&weft__self, status);
    }
    atomic_store_explicit(&comm->calling[owner % WEFT_CALL_PLACES], NULL, memory_order_release);
    return status;
}

#endif
