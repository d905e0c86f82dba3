/* The API edge of collectives: each function makes a call, checks it and submits it. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/comm.h"
#include "comm/group.h"

static weft_status_t submit(weft_call_t *call)
{
    weft_status_t status = weft__call_check(call);
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
