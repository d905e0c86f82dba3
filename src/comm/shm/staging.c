/* Calls in chunks.
 *
 * Some calls cannot run in one go: a rank's buffers are out of the others' reach (plain malloc in
 * another process), or a one-shot is larger than a slot. They are cut along `count`: chunk i holds
 * elements [i x c, (i+1) x c) of every block, and is a call of its own on contiguous buffers.
 * Chunks go through bounce buffers in the rank's device memory where that is needed. All ranks cut
 * alike, because c depends only on what they share.
 *
 * Through the bounce buffers goes only what others touch. Rank r of a direct all-reduce reads slice
 * r of all sources and writes it to all destinations, so its own slice stays where it is:
 *
 *     rank 0   src |own    |rest   | -> bounce |       |rest   | <- rank 1 reads
 *              dst |own    |rest   | <- bounce |       |rest   | <- rank 1 writes
 */
#include "base/log.h"
#include "comm/shm/shm.h"

/* Room for one chunk of src and one of dst, `bytes` each. */
static weft_status_t bounce_ready(weft_shm_t *shm, size_t bytes)
{
    bytes = (bytes + 255) / 256 * 256; /* the second half must be aligned for every type */
    if (shm->bounce_bytes >= bytes) {
        return WEFT_OK;
    }
    if (shm->bounce) {
        weft__heap_free(shm->bounce);
    }
    shm->bounce = NULL;
    shm->bounce_bytes = 0;
    void *memory;
    weft_status_t status = weft__heap_malloc(shm->device, &memory, 2 * bytes);
    if (status != WEFT_OK) {
        return weft__host_break(shm->host, status, shm->rank,
                                "rank %d has no memory to stage a call whose buffers are not from "
                                "weft_malloc: %s",
                                shm->rank, weft_last_error());
    }
    shm->bounce = memory;
    shm->bounce_bytes = bytes;
    return WEFT_OK;
}

/* Blocks of a call in the collective's table, for ranks that have them or not: all cut alike. */
static size_t table_blocks(const weft_shm_t *shm, const weft_call_t *call)
{
    const weft_coll_info_t *info = &weft__coll_info[call->coll];
    bool many = info->src_blocks == 'S' || info->dst_blocks == 'S';
    return many ? (size_t)shm->size : 1;
}

/* What others read of a rank's source, or write of its destination: all of it, all but the rank's
 * own slice (of a buffer with one block) or block, or none of it. */
typedef enum touch { ALL, REST, NONE } touch_t;

/* By weft__direct. Of all-to-all a rank reads all its blocks, whose distance is another one here
 * than in the bounce buffer: it goes there whole. */
static const struct {
    touch_t src, dst;
} direct_touches[WEFT_COLL_COUNT] = {
    [WEFT_COLL_ALLREDUCE] = {REST, REST},      [WEFT_COLL_REDUCE] = {REST, REST},
    [WEFT_COLL_REDUCE_SCATTER] = {REST, NONE}, [WEFT_COLL_BROADCAST] = {REST, REST},
    [WEFT_COLL_ALLGATHER] = {NONE, REST},      [WEFT_COLL_GATHER] = {NONE, REST},
    [WEFT_COLL_SCATTER] = {REST, NONE},
};

/* One buffer of the user's on its way through its bounce buffer. */
typedef struct side {
    char *user; /* NULL: this rank has none */
    char *bounce;
    int blocks;
    bool direct; /* others reach the user's own */
    touch_t touch;
    weft_store_t store; /* into the user's own */
} side_t;

typedef struct chunk {
    size_t offset, count; /* in elements of a block */
    size_t whole;         /* elements of a block of the user's */
    size_t element;       /* bytes */
    side_t src, dst;
} chunk_t;

static char *user_block(const chunk_t *chunk, const side_t *side, size_t block)
{
    return side->user + (block * chunk->whole + chunk->offset) * chunk->element;
}

static void move(const chunk_t *chunk, const side_t *side, size_t block, size_t lo, size_t hi)
{
    size_t bytes = (hi - lo) * chunk->element;
    char *user = user_block(chunk, side, block) + lo * chunk->element;
    char *bounce = side->bounce + (block * chunk->count + lo) * chunk->element;
    bool in = side == &chunk->src;
    if (bytes > 0) {
        weft__kernels()->copy(in ? bounce : user, in ? user : bounce, bytes,
                              in ? WEFT_STORE_CACHED : side->store);
    }
}

/* Copy what others touch of a chunk: of the source into its bounce buffer, of the destination out
 * of it. */
static void move_touched(const weft_shm_t *shm, const chunk_t *chunk, const side_t *side)
{
    size_t lo, hi;
    weft__slice(chunk->count, chunk->element, shm->size, shm->rank, &lo, &hi);
    for (int b = 0; b < side->blocks && side->touch != NONE; b++) {
        if (side->touch == REST && side->blocks == 1) {
            move(chunk, side, 0, 0, lo);
            move(chunk, side, 0, hi, chunk->count);
        } else if (side->touch == ALL || b != shm->rank) {
            move(chunk, side, (size_t)b, 0, chunk->count);
        }
    }
}

/* Where this rank itself finds its own slice or block, as if blocks lay as in the bounce buffer. */
static char *own_part(const weft_shm_t *shm, const chunk_t *chunk, const side_t *side)
{
    size_t block = side->blocks > 1 ? (size_t)shm->rank : 0;
    return side->direct || side->touch == ALL || side->blocks == 0
               ? NULL
               : user_block(chunk, side, block) - block * chunk->count * chunk->element;
}

static char *of_chunk(const chunk_t *chunk, const side_t *side)
{
    return !side->direct ? side->bounce : side->user ? user_block(chunk, side, 0) : NULL;
}

static weft_status_t run_chunk(weft_shm_t *shm, const weft_call_t *call, const chunk_t *chunk,
                               weft_algo_t algo)
{
    weft_call_t part = *call;
    weft_shm_own_t own = {own_part(shm, chunk, &chunk->src), own_part(shm, chunk, &chunk->dst)};
    part.count = chunk->count;
    part.src = of_chunk(chunk, &chunk->src);
    part.dst = of_chunk(chunk, &chunk->dst);
    if (!chunk->src.direct) {
        move_touched(shm, chunk, &chunk->src);
    }
    WEFT_TRY(weft__shm_run_chunk(shm, &part, algo, &own));
    if (!chunk->dst.direct) {
        move_touched(shm, chunk, &chunk->dst);
    }
    return WEFT_OK;
}

/* This call goes in chunks: others that name it in an error mean the whole. */
static void mark_whole(weft_shm_t *shm, const weft_call_t *call)
{
    weft_rank_block_t *me = shm->host->me;
    atomic_store_explicit(&me->whole_count, call->count, memory_order_relaxed);
    atomic_store_explicit(&me->whole_sig, weft__sig_pack(call, WEFT_ALGO_AUTO),
                          memory_order_relaxed);
    atomic_store_explicit(&me->whole_call, shm->host->calls, memory_order_relaxed);
}

static side_t side_of(const weft_shm_t *shm, const weft_call_t *call, weft_choice_t choice,
                      bool dst)
{
    const weft_coll_info_t *info = &weft__coll_info[call->coll];
    const void *user = dst ? call->dst : call->src;
    side_t side = {.user = (char *)(uintptr_t)user,
                   .blocks = dst ? weft__call_dst_blocks(call, shm->rank, shm->size)
                                 : weft__call_src_blocks(call, shm->rank, shm->size)};
    size_t bytes = weft__call_bytes(call) * (size_t)side.blocks;
    side.direct = (dst ? info->dst_blocks : info->src_blocks) == '1' &&
                  (choice.algo == WEFT_ALGO_ONESHOT || weft__shm_shared(shm, user, bytes));
    if (choice.algo == WEFT_ALGO_DIRECT) {
        side.touch = dst ? direct_touches[call->coll].dst : direct_touches[call->coll].src;
    }
    /* In place, lines are in the cache since they were read. */
    side.store = call->src == call->dst ? WEFT_STORE_CACHED : choice.store;
    return side;
}

weft_status_t weft__shm_chunks(weft_shm_t *shm, const weft_call_t *call, weft_choice_t choice)
{
    size_t element = weft_dtype_size(call->type), blocks = table_blocks(shm, call);
    size_t room = choice.algo == WEFT_ALGO_ONESHOT ? WEFT_SLOT_BYTES : shm->chunk;
    size_t most = room / element / blocks;
    chunk_t chunk = {.element = element,
                     .whole = call->count,
                     .src = side_of(shm, call, choice, false),
                     .dst = side_of(shm, call, choice, true)};
    most = most ? most : 1;
    mark_whole(shm, call);
    WEFT_TRY(bounce_ready(shm, most * element * blocks));
    chunk.src.bounce = shm->bounce;
    chunk.dst.bounce = shm->bounce + shm->bounce_bytes;
    while (chunk.offset < call->count) {
        size_t left = call->count - chunk.offset;
        chunk.count = left < most ? left : most;
        WEFT_TRY(run_chunk(shm, call, &chunk, choice.algo));
        chunk.offset += chunk.count;
    }
    return WEFT_OK;
}

/* ---- alltoallv -------------------------------------------------------------------------- */

/* What a rank sends to each other, in the payload of its slot. */
typedef struct send_entry {
    uint64_t count, offset;
} send_entry_t;

static const send_entry_t *entries(weft_shm_t *shm, int peer)
{
    return (const send_entry_t *)weft__host_slot(shm->host, peer)->payload;
}

static weft_status_t check_counts(weft_shm_t *shm, const weft_call_t *call)
{
    for (int p = 0; p < shm->size; p++) {
        uint64_t sent = entries(shm, p)[shm->rank].count;
        if (sent != call->vectors->recvcounts[p]) {
            return weft__host_differs(shm->host, p, weft__sig_pack(call, WEFT_ALGO_AUTO), sent,
                                      call->vectors->recvcounts[p]);
        }
    }
    return WEFT_OK;
}

/* Pull every block from its sender, starting with a different one on each rank. */
static weft_status_t pull_blocks(weft_window_t *window)
{
    weft_shm_t *shm = window->ctx;
    const weft_vectors_t *v = window->call->vectors;
    size_t element = weft_dtype_size(window->call->type);
    for (int i = 0; i < shm->size; i++) {
        int p = (shm->rank + i) % shm->size;
        const char *from = window->src[p] + entries(shm, p)[shm->rank].offset * element;
        char *to = (char *)window->call->dst + v->recvoffsets[p] * element;
        if (v->recvcounts[p] > 0) {
            window->kernels->copy(to, from, v->recvcounts[p] * element, WEFT_STORE_CACHED);
        }
    }
    return WEFT_OK;
}

static size_t part_of(size_t count, size_t offset, size_t most)
{
    size_t left = count > offset ? count - offset : 0;
    return left < most ? left : most;
}

/* Out of reach: rounds of plain alltoalls through the bounce buffers. */
static weft_status_t staged_blocks(weft_shm_t *shm, const weft_call_t *call, size_t longest)
{
    const weft_vectors_t *v = call->vectors;
    size_t element = weft_dtype_size(call->type), size = (size_t)shm->size;
    size_t most = shm->chunk / element / size;
    most = most ? most : 1;
    mark_whole(shm, call);
    weft_status_t status = bounce_ready(shm, most * element * size);
    for (size_t at = 0; status == WEFT_OK && at < longest; at += most) {
        char *in = shm->bounce, *out = shm->bounce + shm->bounce_bytes;
        for (size_t p = 0; p < size; p++) {
            size_t n = part_of(v->sendcounts[p], at, most) * element;
            const char *from = (const char *)call->src + (v->sendoffsets[p] + at) * element;
            weft__kernels()->copy(in + p * most * element, n ? from : NULL, n, WEFT_STORE_CACHED);
        }
        weft_call_t round = {.coll = WEFT_COLL_ALLTOALL,
                             .type = call->type,
                             .count = most,
                             .src = in,
                             .dst = out,
                             .comm = call->comm};
        status = weft__shm_run_chunk(shm, &round, WEFT_ALGO_DIRECT, &(weft_shm_own_t){NULL, NULL});
        for (size_t p = 0; status == WEFT_OK && p < size; p++) {
            size_t n = part_of(v->recvcounts[p], at, most) * element;
            char *to = (char *)call->dst + (v->recvoffsets[p] + at) * element;
            weft__kernels()->copy(n ? to : NULL, out + p * most * element, n, WEFT_STORE_CACHED);
        }
    }
    return status;
}

weft_status_t weft__shm_alltoallv(weft_shm_t *shm, const weft_call_t *call)
{
    send_entry_t *mine = (send_entry_t *)weft__host_slot(shm->host, shm->rank)->payload;
    for (int p = 0; p < shm->size; p++) {
        mine[p] = (send_entry_t){call->vectors->sendcounts[p], call->vectors->sendoffsets[p]};
    }
    WEFT_TRY(weft__shm_announce(shm, call, WEFT_ALGO_DIRECT));
    WEFT_TRY(check_counts(shm, call));
    bool shared = shm->shared & WEFT_SLOT_SRC_SHARED;
    uint64_t longest = 0;
    for (int p = 0; p < shm->size; p++) {
        for (int q = 0; q < shm->size; q++) {
            uint64_t count = entries(shm, p)[q].count;
            longest = count > longest ? count : longest;
        }
    }
    if (shared) {
        return weft__shm_in_window(shm, call, WEFT_STORE_CACHED, longest ? pull_blocks : NULL);
    }
    shm->host->seq++;
    return staged_blocks(shm, call, longest);
}
