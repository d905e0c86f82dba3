/* The API edge of collectives: each function makes a call, checks it and submits it.
 *
 * Most calls are right, and made again and again by one thread on the same buffers. They go from
 * here to the backend in one step; every doubt, and every error, is left to the way of all
 * others. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/backends.h"
#include "comm/bounds.h"
#include "comm/group.h"
#include "comm/order.h"

static inline bool is_known(const weft_bounds_t *bounds, const void *ptr, size_t bytes)
{
    return bytes == 0 || (ptr && weft__bounds_hold(bounds, ptr, bytes));
}

/* Would every check let it pass, and can it run at once? */
static inline bool is_plain(const weft_call_t *call)
{
    weft_comm_h comm = call->comm;
    if (!comm || atomic_load_explicit(&comm->magic, memory_order_relaxed) != WEFT_COMM_MAGIC ||
        comm->generation != weft__comm_generation ||
        !weft__is_mine(atomic_load_explicit(&comm->owner, memory_order_relaxed)) || call->stream ||
        weft__group_open() || comm->backend->launch || call->vectors) {
        return false;
    }
    int rank = comm->rank, size = comm->size;
    if ((unsigned)call->type >= WEFT_DTYPE_COUNT || (unsigned)call->op >= WEFT_OP_COUNT ||
        (unsigned)call->root >= (unsigned)size || call->count >> 48 ||
        (weft__is_message(call->coll) && call->root == rank)) {
        return false;
    }
    size_t block = weft__call_bytes(call);
    size_t src_bytes = block * (size_t)weft__call_src_blocks(call, rank, size);
    size_t dst_bytes = block * (size_t)weft__call_dst_blocks(call, rank, size);
    uintptr_t src = (uintptr_t)call->src, dst = (uintptr_t)call->dst;
    bool apart = src + src_bytes <= dst || dst + dst_bytes <= src || !src_bytes || !dst_bytes;
    return is_known(&comm->src_bounds, call->src, src_bytes) &&
           is_known(&comm->dst_bounds, call->dst, dst_bytes) &&
           (apart || dst == weft__call_in_place(call, rank, block));
}

/* Straight to the backend; false: not this one. Another thread may have queued calls on streams
 * until this one has begun, and those come first: so that is asked afterwards. */
static inline bool run_plain(weft_call_t *call, weft_status_t *status_p)
{
    weft_comm_h comm = call->comm;
    const weft_backend_ops_t *backend = comm->backend;
    weft_status_t status = weft__call_begin(comm, weft__coll_info[call->coll].name);
    if (__builtin_expect(status != WEFT_OK, 0)) {
        *status_p = status;
        return true;
    }
    if (__builtin_expect(atomic_load_explicit(&comm->has_streams, memory_order_relaxed), 0)) {
        *status_p = weft__call_end(comm, WEFT_OK);
        return *status_p != WEFT_OK;
    }
    status = weft__call_bytes(call) < comm->tuner.small[call->coll]
                 ? backend->small(comm->ctx, call)
             : weft__is_message(call->coll) ? backend->exchange(comm->ctx, call, 1)
                                            : backend->collective(comm->ctx, call);
    *status_p = weft__call_end(comm, status);
    return true;
}

static weft_status_t submit(weft_call_t *call)
{
    weft_status_t status;
    if (__builtin_expect(is_plain(call), 1) && run_plain(call, &status)) {
        return status;
    }
    status = weft__call_check(call);
    if (status != WEFT_OK) {
        weft__group_fail(status);
        weft__call_cleanup(call);
        return status;
    }
    return weft__call_submit(call);
}

weft_status_t weft_allreduce(const void *src, void *dst, size_t count, weft_dtype_t type,
                             weft_op_t op, weft_comm_h comm, weft_stream_h stream)
{
    weft_call_t call = {.coll = WEFT_COLL_ALLREDUCE,
                        .src = src,
                        .dst = dst,
                        .count = count,
                        .type = type,
                        .op = op,
                        .comm = comm,
                        .stream = stream};
    return submit(&call);
}

weft_status_t weft_reduce(const void *src, void *dst, size_t count, weft_dtype_t type, weft_op_t op,
                          int root, weft_comm_h comm, weft_stream_h stream)
{
    weft_call_t call = {.coll = WEFT_COLL_REDUCE,
                        .src = src,
                        .dst = dst,
                        .count = count,
                        .type = type,
                        .op = op,
                        .root = root,
                        .comm = comm,
                        .stream = stream};
    return submit(&call);
}

weft_status_t weft_broadcast(const void *src, void *dst, size_t count, weft_dtype_t type, int root,
                             weft_comm_h comm, weft_stream_h stream)
{
    weft_call_t call = {.coll = WEFT_COLL_BROADCAST,
                        .src = src,
                        .dst = dst,
                        .count = count,
                        .type = type,
                        .root = root,
                        .comm = comm,
                        .stream = stream};
    return submit(&call);
}

weft_status_t weft_reduce_scatter(const void *src, void *dst, size_t count, weft_dtype_t type,
                                  weft_op_t op, weft_comm_h comm, weft_stream_h stream)
{
    weft_call_t call = {.coll = WEFT_COLL_REDUCE_SCATTER,
                        .src = src,
                        .dst = dst,
                        .count = count,
                        .type = type,
                        .op = op,
                        .comm = comm,
                        .stream = stream};
    return submit(&call);
}

weft_status_t weft_allgather(const void *src, void *dst, size_t count, weft_dtype_t type,
                             weft_comm_h comm, weft_stream_h stream)
{
    weft_call_t call = {.coll = WEFT_COLL_ALLGATHER,
                        .src = src,
                        .dst = dst,
                        .count = count,
                        .type = type,
                        .comm = comm,
                        .stream = stream};
    return submit(&call);
}

weft_status_t weft_gather(const void *src, void *dst, size_t count, weft_dtype_t type, int root,
                          weft_comm_h comm, weft_stream_h stream)
{
    weft_call_t call = {.coll = WEFT_COLL_GATHER,
                        .src = src,
                        .dst = dst,
                        .count = count,
                        .type = type,
                        .root = root,
                        .comm = comm,
                        .stream = stream};
    return submit(&call);
}

weft_status_t weft_scatter(const void *src, void *dst, size_t count, weft_dtype_t type, int root,
                           weft_comm_h comm, weft_stream_h stream)
{
    weft_call_t call = {.coll = WEFT_COLL_SCATTER,
                        .src = src,
                        .dst = dst,
                        .count = count,
                        .type = type,
                        .root = root,
                        .comm = comm,
                        .stream = stream};
    return submit(&call);
}

weft_status_t weft_alltoall(const void *src, void *dst, size_t count, weft_dtype_t type,
                            weft_comm_h comm, weft_stream_h stream)
{
    weft_call_t call = {.coll = WEFT_COLL_ALLTOALL,
                        .src = src,
                        .dst = dst,
                        .count = count,
                        .type = type,
                        .comm = comm,
                        .stream = stream};
    return submit(&call);
}

/* One block of memory for the four arrays. */
static weft_status_t copy_vectors(weft_call_t *call, const size_t *const from[4])
{
    size_t n = (size_t)call->comm->size;
    weft_vectors_t *v = malloc(sizeof(*v) + 4 * n * sizeof(size_t));
    if (!v) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "weft_alltoallv: no memory for %zu counts", 4 * n);
    }
    for (size_t i = 0; i < 4; i++) {
        memcpy(v->all + i * n, from[i], n * sizeof(size_t));
    }
    v->sendcounts = v->all;
    v->sendoffsets = v->all + n;
    v->recvcounts = v->all + 2 * n;
    v->recvoffsets = v->all + 3 * n;
    call->vectors = v;
    return WEFT_OK;
}

weft_status_t weft_alltoallv(const void *src, const size_t *sendcounts, const size_t *sendoffsets,
                             void *dst, const size_t *recvcounts, const size_t *recvoffsets,
                             weft_dtype_t type, weft_comm_h comm, weft_stream_h stream)
{
    weft_call_t call = {.coll = WEFT_COLL_ALLTOALLV,
                        .src = src,
                        .dst = dst,
                        .type = type,
                        .comm = comm,
                        .stream = stream};
    const size_t *const from[4] = {sendcounts, sendoffsets, recvcounts, recvoffsets};
    weft_status_t status = weft__comm_check(comm, "alltoallv");
    if (status == WEFT_OK && (!sendcounts || !sendoffsets || !recvcounts || !recvoffsets)) {
        status = weft__fail(WEFT_ERR_INVALID,
                            "weft_alltoallv: an array of counts or offsets is NULL");
    }
    if (status == WEFT_OK) {
        status = copy_vectors(&call, from);
    }
    if (status != WEFT_OK) {
        weft__group_fail(status);
        return status;
    }
    return submit(&call);
}

weft_status_t weft_barrier(weft_comm_h comm, weft_stream_h stream)
{
    weft_call_t call = {.coll = WEFT_COLL_BARRIER, .type = WEFT_U8, .comm = comm, .stream = stream};
    return submit(&call);
}

weft_status_t weft_send(const void *src, size_t count, weft_dtype_t type, int peer,
                        weft_comm_h comm, weft_stream_h stream)
{
    weft_call_t call = {.coll = WEFT_COLL_SEND,
                        .src = src,
                        .count = count,
                        .type = type,
                        .root = peer,
                        .comm = comm,
                        .stream = stream};
    return submit(&call);
}

weft_status_t weft_recv(void *dst, size_t count, weft_dtype_t type, int peer, weft_comm_h comm,
                        weft_stream_h stream)
{
    weft_call_t call = {.coll = WEFT_COLL_RECV,
                        .dst = dst,
                        .count = count,
                        .type = type,
                        .root = peer,
                        .comm = comm,
                        .stream = stream};
    return submit(&call);
}
