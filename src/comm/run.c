/* Running calls: in the order they were made, in the caller or on a stream. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/comm.h"
#include "comm/group.h"
#include "device/device.h"

static void issue(weft_call_t *call)
{
    weft_comm_h comm = call->comm;
    /* Partner: destroy and abort, which wait until served has caught up. */
    call->ticket = atomic_fetch_add_explicit(&comm->issued, 1, memory_order_relaxed);
    if (call->stream) {
        atomic_store_explicit(&comm->has_streams, true, memory_order_relaxed);
    }
}

void weft__comm_turn(weft_comm_h comm, uint64_t ticket)
{
    if (__builtin_expect(atomic_load_explicit(&comm->served, memory_order_acquire) == ticket, 1)) {
        return;
    }
    pthread_mutex_lock(&comm->turn_lock);
    while (atomic_load_explicit(&comm->served, memory_order_acquire) != ticket) {
        pthread_cond_wait(&comm->turn, &comm->turn_lock);
    }
    pthread_mutex_unlock(&comm->turn_lock);
}

static void turn_over(weft_comm_h comm)
{
    /* With streams somebody may be about to sleep in weft__comm_turn: change it under the lock. */
    if (atomic_load_explicit(&comm->has_streams, memory_order_relaxed)) {
        pthread_mutex_lock(&comm->turn_lock);
        atomic_fetch_add_explicit(&comm->served, 1, memory_order_release);
        pthread_cond_broadcast(&comm->turn);
        pthread_mutex_unlock(&comm->turn_lock);
    } else {
        atomic_fetch_add_explicit(&comm->served, 1, memory_order_release);
    }
}

/* Many small all-reduces as one: pack them into device memory, reduce that in place, unpack. */
static weft_status_t run_fused(weft_comm_h comm, const weft_call_t *calls, int n)
{
    size_t element = weft_dtype_size(calls[0].type), total = 0;
    if (!comm->fuse_buffer) {
        weft_status_t status = weft__device_malloc(comm->device, &comm->fuse_buffer,
                                                   WEFT_SLOT_BYTES);
        if (status != WEFT_OK) {
            comm->backend->abort(comm->ctx); /* the others are in this call already */
            return status;
        }
    }
    char *at = comm->fuse_buffer;
    for (int i = 0; i < n; i++) {
        memcpy(at + total * element, calls[i].src, calls[i].count * element);
        total += calls[i].count;
    }
    weft_call_t all = calls[0];
    all.src = all.dst = at;
    all.count = total;
    all.fused = n;
    weft_status_t status = comm->backend->collective(comm->ctx, &all);
    for (int i = 0; i < n && status == WEFT_OK; i++) {
        memcpy(calls[i].dst, at, calls[i].count * element);
        at += calls[i].count * element;
    }
    return status;
}

static weft_status_t execute(weft_call_t *calls, int n)
{
    weft_comm_h comm = calls->comm;
    weft_status_t status;
    weft__comm_turn(comm, calls->ticket);
    if (calls->coll == WEFT_COLL_SEND || calls->coll == WEFT_COLL_RECV) {
        status = comm->backend->exchange(comm->ctx, calls, n);
    } else if (n > 1) {
        status = run_fused(comm, calls, n);
    } else {
        status = comm->backend->collective(comm->ctx, calls);
    }
    turn_over(comm);
    return status;
}

/* A batch on its way through a stream; owns the calls. */
typedef struct batch {
    int n;
    weft_call_t calls[];
} batch_t;

static void free_batch(batch_t *batch)
{
    for (int i = 0; i < batch->n; i++) {
        weft__call_cleanup(&batch->calls[i]);
    }
    free(batch);
}

static weft_status_t run_batch(void *arg)
{
    batch_t *batch = arg;
    weft_status_t status = execute(batch->calls, batch->n);
    free_batch(batch);
    return status;
}

weft_status_t weft__call_dispatch(weft_call_t *calls, int n, weft_stream_h stream)
{
    if (!stream) {
        issue(calls);
        weft_status_t status = execute(calls, n);
        for (int i = 0; i < n; i++) {
            weft__call_cleanup(&calls[i]);
        }
        return status;
    }
    batch_t *batch = malloc(sizeof(*batch) + (size_t)n * sizeof(*calls));
    if (!batch) {
        for (int i = 0; i < n; i++) {
            weft__call_cleanup(&calls[i]);
        }
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to queue %d calls on a stream", n);
    }
    batch->n = n;
    memcpy(batch->calls, calls, (size_t)n * sizeof(*calls));
    for (int i = 0; i < n; i++) {
        calls[i].vectors = (weft_vectors_t){0}; /* the batch owns them now */
    }
    batch->calls[0].stream = stream;
    issue(batch->calls);
    weft_status_t status = weft__stream_push(stream, run_batch, batch);
    if (status != WEFT_OK) {
        /* Its place in the order is taken: give it up in turn so that later calls do not wait. */
        weft__comm_turn(batch->calls->comm, batch->calls->ticket);
        turn_over(batch->calls->comm);
        free_batch(batch);
    }
    return status;
}

weft_status_t weft__call_submit(weft_call_t *call)
{
    if (weft__group_open()) {
        return weft__group_add(call);
    }
    if ((call->coll == WEFT_COLL_SEND || call->coll == WEFT_COLL_RECV) &&
        call->root == call->comm->rank) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_%s: rank %d sends to itself outside a group; put the send and the "
                          "receive between weft_group_start and weft_group_end",
                          weft__coll_info[call->coll].name, call->root);
    }
    return weft__call_dispatch(call, 1, call->stream);
}
