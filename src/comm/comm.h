/* The communicator, and what a backend must offer. */
#ifndef WEFT_COMM_COMM_H
#define WEFT_COMM_COMM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "boot/job.h"
#include "comm/call.h"
#include "comm/tuner.h"
#include "device/device.h"

#define WEFT_COMM_MAGIC 0x574654434f4d4d31ull /* "WFTCOMM1" */
#define WEFT_ERROR_TEXT 1024
#define WEFT_CALL_PLACES 8
#define WEFT_KNOWN_BOUNDS 16

struct weft_backend_ops;

/* Structs of destroyed communicators are kept and reused, oldest first, so that a stale handle is
 * refused rather than followed into freed memory. */
struct weft_comm {
    _Atomic uint64_t magic; /* WEFT_COMM_MAGIC while alive */
    int rank, size, device;
    int timeout_ms;
    int concurrent_comms; /* of weft_comm_config_t */
    /* Who is in a call, see order.c. */
    _Atomic uintptr_t
        owner; /* the thread that called last: its address, plus its place in `calling` */
    _Atomic(const char *) calling[WEFT_CALL_PLACES]; /* NULL: in no call, else which, without weft_.
                                                      * Released by weft__comm_leave, acquired by
                                                      * destroy, abort and other threads */
    _Atomic int deferred;                            /* calls in a group that is open */
    _Atomic int holds;                               /* symmetric heaps that are open on it */
    /* While no call went to a stream, calls run in the caller one after the other. From the first
     * one on, every call takes a ticket. */
    _Atomic uint64_t issued;  /* calls made */
    _Atomic uint64_t served;  /* calls finished: released by the executor of a call, acquired by the
                               * executor of the next one (weft__comm_await_order) and by destroy */
    _Atomic bool has_streams; /* set by the first call on a stream */
    pthread_mutex_t order_lock;
    pthread_cond_t order;
    weft_tuner_t tuner;
    weft_bounds_t src_bounds,
        dst_bounds; /* of the last call; open if none are checked; see bounds.h */
    weft_bounds_t known[WEFT_KNOWN_BOUNDS]; /* of others, by a hash of their address */
    weft_stream_h helper; /* runs calls on NULL streams of a group that spans several ranks */
    void *fuse_buffer;    /* WEFT_SLOT_BYTES of device memory for fused calls; made when needed */
    int generation;       /* of the process that made it: forks do not inherit handles */
    char error_text[WEFT_ERROR_TEXT]; /* what weft_comm_error hands out; under order_lock */
    const struct weft_backend_ops *backend;
    void *ctx; /* the backend's */
    struct weft_host
        *host; /* its ranks, where all are on this host; else NULL. The backend's to make */
    struct weft_comm *next_free;
};

/* How a call with blocks of `bytes` is carried out on `comm`. */
weft_choice_t weft__comm_choose(weft_comm_h comm, weft_coll_t coll, size_t bytes);

/* WEFT_ERR_INVALID with a sentence unless `comm` is a live handle. `who` is the API call. */
weft_status_t weft__comm_refuse(weft_comm_h comm, const char *who);
extern int weft__comm_generation; /* how many forks this process is away from the first */
static inline weft_status_t weft__comm_check(weft_comm_h comm, const char *who)
{
    bool alive = comm &&
                 atomic_load_explicit(&comm->magic, memory_order_relaxed) == WEFT_COMM_MAGIC &&
                 comm->generation == weft__comm_generation;
    return __builtin_expect(alive, 1) ? WEFT_OK : weft__comm_refuse(comm, who);
}

/* This rank cannot go on, and this thread's error says why: break the communicator for all ranks,
 * unless it is broken already. Calls of the others return WEFT_ERR_ABORTED at once, with the
 * reason, and so does what this rank does to clean up. As weft_comm_abort, but the handle stays the
 * caller's, and this thread's error stays as it is. By the thread that uses `comm`; NULL and dead
 * handles are left alone. */
void weft__comm_break(weft_comm_h comm);

/* Run a checked call: now, on its stream, or at the end of the group. Takes over call->vectors. */
weft_status_t weft__call_submit(weft_call_t *call);

/* Run `n` calls of one communicator as one: a batch of sends and receives, or all-reduces to be
 * fused, or (n = 1) anything. On `stream`, or in the caller if NULL. Takes over their vectors. */
weft_status_t weft__call_dispatch(weft_call_t *calls, int n, weft_stream_h stream);

/* Wait until all calls before `ticket` are done. */
void weft__comm_await_order(weft_comm_h comm, uint64_t ticket);

/* A call in the calling thread begins, in its turn, and ends with `status`, which is returned
 * unless there is worse to tell. Refused if the handle is gone, or another thread is in a call;
 * between the two the handle stays. */
weft_status_t weft__comm_enter(weft_comm_h comm, const char *who, uint64_t *ticket_p);
weft_status_t weft__comm_leave(weft_comm_h comm, uint64_t ticket, weft_status_t status);

/* A symmetric heap is open on the communicator, and is no longer. Between the two destroy refuses,
 * and what abort leaves of the communicator stays. */
void weft__comm_hold(weft_comm_h comm);
void weft__comm_let_go(weft_comm_h comm);

/* The call that a thread is in, without weft_; NULL: none. */
const char *weft__comm_calling(weft_comm_h comm);

/* The rare ways of a call's begin and end; order.c. `thread` is a multiple of WEFT_CALL_PLACES. */
weft_status_t weft__comm_take_over(weft_comm_h comm, uintptr_t thread, const char *who);
weft_status_t weft__comm_crossed(weft_comm_h comm, const char *who);
weft_status_t weft__comm_end_crossed(weft_comm_h comm, uintptr_t thread, weft_status_t status);

/* Every core that runs a thread of this process passes a full fence. */
void weft__comm_fence_all(void);

#endif
