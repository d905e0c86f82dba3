/* One call of a collective, as a value: what the API edge checks, groups collect, streams carry and
 * backends execute. */
#ifndef WEFT_COMM_CALL_H
#define WEFT_COMM_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include <weft/comm.h>

/* The collectives. Columns: enum, name, then the shape of the call: how many blocks of `count`
 * elements the source and the destination have (S: one per rank, 1: one), who has a source and a
 * destination (a: all ranks, r: root only), does it reduce. Everything generic (argument checks,
 * staging, benchmarks) is driven by this table. */
#define WEFT_COLL_TABLE(X)                                                                         \
    X(ALLREDUCE, allreduce, '1', '1', 'a', 'a', true)                                              \
    X(REDUCE, reduce, '1', '1', 'a', 'r', true)                                                    \
    X(BROADCAST, broadcast, '1', '1', 'r', 'a', false)                                             \
    X(REDUCE_SCATTER, reduce_scatter, 'S', '1', 'a', 'a', true)                                    \
    X(ALLGATHER, allgather, '1', 'S', 'a', 'a', false)                                             \
    X(GATHER, gather, '1', 'S', 'a', 'r', false)                                                   \
    X(SCATTER, scatter, 'S', '1', 'r', 'a', false)                                                 \
    X(ALLTOALL, alltoall, 'S', 'S', 'a', 'a', false)                                               \
    X(ALLTOALLV, alltoallv, 'S', 'S', 'a', 'a', false)                                             \
    X(BARRIER, barrier, '1', '1', 'a', 'a', false)                                                 \
    X(SEND, send, '1', '1', 'a', 'a', false)                                                       \
    X(RECV, recv, '1', '1', 'a', 'a', false)

typedef enum weft_coll {
#define WEFT_COLL_ENUM(name, text, sb, db, sw, dw, red) WEFT_COLL_##name,
    WEFT_COLL_TABLE(WEFT_COLL_ENUM)
#undef WEFT_COLL_ENUM
        WEFT_COLL_COUNT
} weft_coll_t;

typedef struct weft_coll_info {
    const char *name;
    char src_blocks, dst_blocks; /* '1' or 'S' */
    char src_where, dst_where;   /* 'a' or 'r' */
    bool reduces;
} weft_coll_info_t;

extern const weft_coll_info_t weft__coll_info[WEFT_COLL_COUNT];

/* A send or a receive: between two ranks, and without a call number. */
static inline bool weft__is_message(weft_coll_t coll)
{
    return coll == WEFT_COLL_SEND || coll == WEFT_COLL_RECV;
}

/* How a call is carried out. ONESHOT: the data travels with the flag that announces the call;
 * the others work on the ranks' own buffers. docs/algorithms.md has steps and bytes of each. */
#define WEFT_ALGO_TABLE(X)                                                                         \
    X(AUTO, auto)                                                                                  \
    X(ONESHOT, oneshot)                                                                            \
    X(DIRECT, direct)                                                                              \
    X(RING, ring)                                                                                  \
    X(TREE, tree)                                                                                  \
    X(DOUBLING, doubling)

typedef enum weft_algo {
#define WEFT_ALGO_ENUM(name, text) WEFT_ALGO_##name,
    WEFT_ALGO_TABLE(WEFT_ALGO_ENUM)
#undef WEFT_ALGO_ENUM
        WEFT_ALGO_COUNT
} weft_algo_t;

const char *weft__algo_name(weft_algo_t algo);

/* Counts and offsets of an alltoallv; one allocation, freed by weft__call_cleanup. */
typedef struct weft_vectors {
    size_t *sendcounts, *sendoffsets, *recvcounts, *recvoffsets; /* inside `all` */
    size_t all[];
} weft_vectors_t;

/* Small enough to be set up by plain stores. A larger struct is cleared by a string instruction,
 * whose stores later loads must wait for, behind the flag of the call before: +120 ns a call. */
typedef struct weft_call {
    weft_coll_t coll;
    weft_dtype_t type;
    weft_op_t op;
    int root;  /* root, or the peer of a send or receive; 0 where there is none */
    int fused; /* how many grouped all-reduces this one stands for; 0: just itself */
    size_t count;
    const void *src;
    void *dst;
    weft_vectors_t *vectors; /* alltoallv only, else NULL */
    weft_comm_h comm;
    weft_stream_h stream;
    uint64_t ticket; /* order on the communicator */
} weft_call_t;

void weft__call_cleanup(weft_call_t *call);

/* "allreduce of 1024 f32, sum" / "broadcast of 7 u8 from 0" / "send of 3 f32 to 1". */
void weft__call_describe(const weft_call_t *call, char *text, size_t room);

/* The same of a call that others see by signature and count. */
void weft__sig_describe(uint64_t sig, uint64_t count, char *text, size_t room);

/* The call that `n` all-reduces of a group are, put together. Its signature, in place of a root,
 * holds a hash of their counts: groups must agree on every count, not only on the total. */
weft_call_t weft__call_fuse(const weft_call_t *calls, int n);

/* Check every argument of a call at the API edge. WEFT_ERR_INVALID with one sentence. */
weft_status_t weft__call_check(const weft_call_t *call);

/* Blocks of src and dst of this call on its communicator, 0 where this rank has none. */
static inline int weft__call_src_blocks(const weft_call_t *call, int rank, int size)
{
    const weft_coll_info_t *info = &weft__coll_info[call->coll];
    if (call->coll == WEFT_COLL_BARRIER || call->coll == WEFT_COLL_RECV ||
        (info->src_where == 'r' && rank != call->root)) {
        return 0;
    }
    return info->src_blocks == 'S' ? size : 1;
}

static inline int weft__call_dst_blocks(const weft_call_t *call, int rank, int size)
{
    const weft_coll_info_t *info = &weft__coll_info[call->coll];
    if (call->coll == WEFT_COLL_BARRIER || call->coll == WEFT_COLL_SEND ||
        (info->dst_where == 'r' && rank != call->root)) {
        return 0;
    }
    return info->dst_blocks == 'S' ? size : 1;
}

/* Bytes of a block. Inline, as all that every call passes several times: a small one takes some 150
 * ns. */
extern const unsigned char weft__dtype_sizes[WEFT_DTYPE_COUNT];
static inline size_t weft__call_bytes(const weft_call_t *call)
{
    return call->count * weft__dtype_sizes[call->type];
}

/* Where dst must be for `rank` to be in place; 0 where there is no such place. */
static inline uintptr_t weft__call_in_place(const weft_call_t *call, int rank, size_t block)
{
    uintptr_t src = (uintptr_t)call->src;
    size_t here = (size_t)rank * block;
    switch (call->coll) {
    case WEFT_COLL_ALLREDUCE:
    case WEFT_COLL_REDUCE:
    case WEFT_COLL_BROADCAST:
    case WEFT_COLL_ALLTOALL:
        return src;
    case WEFT_COLL_REDUCE_SCATTER:
    case WEFT_COLL_SCATTER:
        return src + here;
    case WEFT_COLL_ALLGATHER:
    case WEFT_COLL_GATHER:
        return src - here;
    default:
        return 0;
    }
}

/* What ranks compare, beside the count, to know that they make the same call. */
static inline uint64_t weft__sig_pack(const weft_call_t *call, weft_algo_t algo)
{
    uint64_t op = weft__coll_info[call->coll].reduces ? (uint64_t)call->op : 0;
    return (uint64_t)call->coll | (uint64_t)call->type << 8 | op << 16 | (uint64_t)algo << 24 |
           (uint64_t)call->root << 32 | (uint64_t)call->fused << 56;
}

/* Bytes from the start of a buffer to the end of the last block of it that the call uses. */
size_t weft__call_extent(const weft_call_t *call, int rank, int size, bool dst);

#endif
