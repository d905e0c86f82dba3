#include "comm/any_call.h"

#include <stdlib.h>

void any_open(any_buffers_t *b, const team_t *team, size_t count, bool plain)
{
    size_t bytes = count * 8 * (size_t)team->size;
    b->plain = plain;
    if (plain) {
        b->src = malloc(bytes + 1);
        b->dst = malloc(bytes + 1);
        CHECK(b->src && b->dst);
        memset(b->src, 0, bytes);
    } else {
        CHECK_OK(weft_malloc(&b->src, bytes));
        CHECK_OK(weft_malloc(&b->dst, bytes));
        CHECK_OK(weft_memset(b->src, 0, bytes, NULL));
    }
    for (int p = 0; p < team->size; p++) {
        b->counts[p] = count;
        b->offsets[p] = (size_t)p * count;
    }
}

void any_close(any_buffers_t *b)
{
    if (b->plain) {
        free(b->src);
        free(b->dst);
    } else {
        CHECK_OK(weft_free(b->src));
        CHECK_OK(weft_free(b->dst));
    }
}

static weft_status_t exchange(any_buffers_t *b, const team_t *team, size_t count, weft_comm_h comm)
{
    int right = (team->rank + 1) % team->size, left = (team->rank + team->size - 1) % team->size;
    weft_group_start();
    weft_send(b->src, count, WEFT_F32, right, comm, NULL);
    weft_recv(b->dst, count, WEFT_F32, left, comm, NULL);
    return weft_group_end();
}

static weft_status_t ping_pong(any_buffers_t *b, const team_t *team, size_t count, weft_comm_h comm)
{
    int peer = team->rank ^ 1;
    weft_status_t status = WEFT_OK;
    for (int turn = 0; turn < 2 && status == WEFT_OK && peer < team->size; turn++) {
        status = (team->rank & 1) == turn ? weft_send(b->src, count, WEFT_F32, peer, comm, NULL)
                                          : weft_recv(b->dst, count, WEFT_F32, peer, comm, NULL);
    }
    return status;
}

weft_status_t any_call(weft_coll_t coll, any_buffers_t *b, const team_t *team, size_t n, int root,
                       weft_comm_h comm)
{
    switch (coll) {
    case WEFT_COLL_ALLREDUCE:
        return weft_allreduce(b->src, b->dst, n, WEFT_F32, WEFT_SUM, comm, NULL);
    case WEFT_COLL_REDUCE:
        return weft_reduce(b->src, b->dst, n, WEFT_F32, WEFT_SUM, root, comm, NULL);
    case WEFT_COLL_BROADCAST:
        return weft_broadcast(b->src, b->dst, n, WEFT_F32, root, comm, NULL);
    case WEFT_COLL_REDUCE_SCATTER:
        return weft_reduce_scatter(b->src, b->dst, n, WEFT_F32, WEFT_SUM, comm, NULL);
    case WEFT_COLL_ALLGATHER:
        return weft_allgather(b->src, b->dst, n, WEFT_F32, comm, NULL);
    case WEFT_COLL_GATHER:
        return weft_gather(b->src, b->dst, n, WEFT_F32, root, comm, NULL);
    case WEFT_COLL_SCATTER:
        return weft_scatter(b->src, b->dst, n, WEFT_F32, root, comm, NULL);
    case WEFT_COLL_ALLTOALL:
        return weft_alltoall(b->src, b->dst, n, WEFT_F32, comm, NULL);
    case WEFT_COLL_ALLTOALLV:
        return weft_alltoallv(b->src, b->counts, b->offsets, b->dst, b->counts, b->offsets,
                              WEFT_F32, comm, NULL);
    case WEFT_COLL_SEND:
        return exchange(b, team, n, comm);
    case WEFT_COLL_RECV:
        return ping_pong(b, team, n, comm);
    default:
        return weft_barrier(comm, NULL);
    }
}
