/* Running calls: in the order they were made, in the caller or on a stream. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/backends.h"
#include "comm/group.h"
#include "comm/order.h"
#include "device/device.h"

/* Take a place in the order. Under the lock, as is weft_comm_abort when it takes the handle away:
 * either it waits for this call, or the call is refused. */
static weft_status_t issue(weft_comm_h comm, const char *who, uint64_t *ticket_p)
{
    pthread_mutex_lock(&comm->order_lock);
    weft_status_t status = weft__comm_check(comm, who);
    if (status == WEFT_OK) {
        *ticket_p = atomic_load_explicit(&comm->issued, memory_order_relaxed);
        /* Partner: destroy and abort, which wait until served has caught up. */
        atomic_store_explicit(&comm->issued, *ticket_p + 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&comm->order_lock);
    return status;
}

void weft__comm_await_order(weft_comm_h comm, uint64_t ticket)
{
    pthread_mutex_lock(&comm->order_lock);
    while (atomic_load_explicit(&comm->served, memory_order_acquire) < ticket) {
        pthread_cond_wait(&comm->order, &comm->order_lock);
    }
    pthread_mutex_unlock(&comm->order_lock);
}

static void pass_order(weft_comm_h comm, uint64_t ticket)
{
    pthread_mutex_lock(&comm->order_lock);
    atomic_store_explicit(&comm->served, ticket + 1, memory_order_release);
    pthread_cond_broadcast(&comm->order);
    pthread_mutex_unlock(&comm->order_lock);
}

/* Many small all-reduces as one: pack them into device memory, reduce that in place, unpack. */
static weft_status_t run_fused(weft_comm_h comm, const weft_call_t *calls, int n)
{
    size_t element = weft_dtype_size(calls[0].type), total = 0;
    if (!comm->fuse_buffer) {
        weft_status_t status = weft__heap_malloc(comm->device, &comm->fuse_buffer, WEFT_SLOT_BYTES);
        if (status != WEFT_OK) {
            comm->backend->abort(comm->ctx); /* the others are in this call already */
            return status;
        }
    }
    char *at = comm->fuse_buffer;
    for (int i = 0; i < n; i++) {
        if (calls[i].count > 0) { /* without elements, without an address */
            memcpy(at + total * element, calls[i].src, calls[i].count * element);
            total += calls[i].count;
        }
    }
    weft_call_t all = weft__call_fuse(calls, n);
    all.src = all.dst = at;
    weft_status_t status = comm->backend->collective(comm->ctx, &all);
    for (int i = 0; i < n && status == WEFT_OK; i++) {
        if (calls[i].count > 0) {
            memcpy(calls[i].dst, at, calls[i].count * element);
            at += calls[i].count * element;
        }
    }
    return status;
}

static weft_status_t run_calls(weft_comm_h comm, weft_call_t *calls, int n)
{
    if (weft__is_message(calls->coll)) {
        return comm->backend->exchange(comm->ctx, calls, n);
    }
    return n > 1 ? run_fused(comm, calls, n) : comm->backend->collective(comm->ctx, calls);
}

static weft_status_t run_in_turn(weft_call_t *calls, int n)
{
    weft_comm_h comm = calls->comm;
    weft__comm_await_order(comm, calls->ticket);
    weft_status_t status = run_calls(comm, calls, n);
    pass_order(comm, calls->ticket);
    return status;
}

_Thread_local _Alignas(WEFT_CALL_PLACES) char weft__self __attribute__((tls_model("initial-exec")));

#define NO_TICKET UINT64_MAX

static inline __attribute__((always_inline)) weft_status_t enter(weft_comm_h comm, const char *who,
                                                                 uint64_t *ticket_p)
{
    *ticket_p = NO_TICKET; /* without streams nothing can be in front of it */
    weft_status_t status = weft__call_begin(comm, who);
    if (status == WEFT_OK && atomic_load_explicit(&comm->has_streams, memory_order_relaxed)) {
        status = issue(comm, who, ticket_p);
        if (status != WEFT_OK) {
            return weft__call_end(comm, status);
        }
        weft__comm_await_order(comm, *ticket_p);
    }
    return status;
}

static inline __attribute__((always_inline)) weft_status_t leave(weft_comm_h comm, uint64_t ticket,
                                                                 weft_status_t status)
{
    if (__builtin_expect(ticket != NO_TICKET, 0)) {
        pass_order(comm, ticket);
    }
    return weft__call_end(comm, status);
}

weft_status_t weft__comm_enter(weft_comm_h comm, const char *who, uint64_t *ticket_p)
{
    return enter(comm, who, ticket_p);
}

weft_status_t weft__comm_leave(weft_comm_h comm, uint64_t ticket, weft_status_t status)
{
    return leave(comm, ticket, status);
}

static weft_status_t run_now(weft_call_t *calls, int n)
{
    weft_comm_h comm = calls->comm;
    uint64_t ticket;
    weft_status_t status = enter(comm, weft__coll_info[calls->coll].name, &ticket);
    if (status == WEFT_OK) {
        status = leave(comm, ticket, run_calls(comm, calls, n));
    }
    return status;
}

static void cleanup_all(weft_call_t *calls, int n)
{
    for (int i = 0; i < n; i++) {
        if (calls[i].vectors) {
            weft__call_cleanup(&calls[i]);
        }
    }
}

/* A batch on its way through a stream; owns the calls. */
typedef struct batch {
    int n;
    weft_call_t calls[];
} batch_t;

static void free_batch(batch_t *batch)
{
    cleanup_all(batch->calls, batch->n);
    free(batch);
}

static weft_status_t run_batch(void *arg)
{
    batch_t *batch = arg;
    weft_status_t status = run_in_turn(batch->calls, batch->n);
    free_batch(batch);
    return status;
}

/* The backend queues on streams itself: in the caller, one call after the other. */
static weft_status_t run_launch(weft_call_t *calls, int n, weft_stream_h stream)
{
    weft_comm_h comm = calls->comm;
    uint64_t ticket;
    weft_status_t status = weft__comm_enter(comm, weft__coll_info[calls->coll].name, &ticket);
    if (status == WEFT_OK) {
        status = comm->backend->launch(comm->ctx, calls, n, stream);
        status = weft__comm_leave(comm, ticket, status);
    }
    cleanup_all(calls, n);
    return status;
}

/* Give the batch a place in the order and queue it, or free it. */
static weft_status_t queue_batch(batch_t *batch, weft_stream_h stream, const char *who)
{
    weft_comm_h comm = batch->calls->comm;
    uint64_t ticket;
    atomic_store_explicit(&comm->has_streams, true, memory_order_relaxed);
    weft_status_t status = issue(comm, who, &ticket);
    if (status != WEFT_OK) {
        free_batch(batch);
        return status;
    }
    batch->calls->ticket = ticket;
    status = weft__stream_push(stream, run_batch, batch);
    if (status != WEFT_OK) {
        /* Its place in the order is taken: give it up in turn so that later calls do not wait. */
        weft__comm_await_order(comm, ticket);
        pass_order(comm, ticket);
        free_batch(batch);
    }
    return status;
}

weft_status_t weft__call_dispatch(weft_call_t *calls, int n, weft_stream_h stream)
{
    weft_comm_h comm = calls->comm;
    const char *who = weft__coll_info[calls->coll].name;
    if (comm->backend->launch) {
        return run_launch(calls, n, stream);
    }
    if (!stream) {
        weft_status_t status = run_now(calls, n);
        cleanup_all(calls, n);
        return status;
    }
    batch_t *batch = malloc(sizeof(*batch) + (size_t)n * sizeof(*calls));
    if (!batch) {
        cleanup_all(calls, n);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to queue %d calls on a stream", n);
    }
    batch->n = n;
    memcpy(batch->calls, calls, (size_t)n * sizeof(*calls));
    for (int i = 0; i < n; i++) {
        calls[i].vectors = NULL; /* the batch owns them now */
    }
    weft_status_t status = weft__call_begin(comm, who);
    if (status != WEFT_OK) {
        free_batch(batch);
        return status;
    }
    return weft__call_end(comm, queue_batch(batch, stream, who));
}

weft_status_t weft__call_submit(weft_call_t *call)
{
    if (weft__group_open()) {
        return weft__group_add(call);
    }
    if (weft__is_message(call->coll) && call->root == call->comm->rank) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_%s: rank %d sends to itself outside a group; put the send and the "
                          "receive between weft_group_start and weft_group_end",
                          weft__coll_info[call->coll].name, call->root);
    }
    return weft__call_dispatch(call, 1, call->stream);
}
