/* Calls in chunks.
 *
 * Some calls cannot run in one go: a rank's buffers are out of the others' reach (plain malloc in
 * another process), or a one-shot is larger than a slot. They are cut along `count`: chunk i holds
 * elements [i x c, (i+1) x c) of every block, and is a call of its own on contiguous buffers.
 * Pieces go through bounce buffers in the rank's device memory where that is needed. All ranks cut
 * alike, because c depends only on what they share. */
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

typedef struct chunk {
    size_t offset, count; /* in elements of a block */
    size_t element;       /* bytes */
    int src_blocks, dst_blocks;
    bool src_direct, dst_direct; /* the user's own buffer serves */
} piece_t;

static void pack(const weft_call_t *call, const piece_t *chunk, char *to)
{
    size_t bytes = chunk->count * chunk->element;
    for (size_t b = 0; b < (size_t)chunk->src_blocks; b++) {
        const char *from = (const char *)call->src +
                           (b * call->count + chunk->offset) * chunk->element;
        weft__kernels()->copy(to + b * bytes, from, bytes, WEFT_STORE_CACHED);
    }
}

static void unpack(const weft_call_t *call, const piece_t *chunk, const char *from)
{
    size_t bytes = chunk->count * chunk->element;
    for (size_t b = 0; b < (size_t)chunk->dst_blocks; b++) {
        char *to = (char *)call->dst + (b * call->count + chunk->offset) * chunk->element;
        weft__kernels()->copy(to, from + b * bytes, bytes, WEFT_STORE_CACHED);
    }
}

static weft_status_t run_piece(weft_shm_t *shm, const weft_call_t *call, const piece_t *chunk,
                               weft_algo_t algo)
{
    weft_call_t part = *call;
    part.count = chunk->count;
    if (chunk->src_direct) {
        part.src = call->src ? (const char *)call->src + chunk->offset * chunk->element : NULL;
    } else {
        pack(call, chunk, shm->bounce);
        part.src = shm->bounce;
    }
    if (chunk->dst_direct) {
        part.dst = call->dst ? (char *)call->dst + chunk->offset * chunk->element : NULL;
    } else {
        part.dst = shm->bounce + shm->bounce_bytes;
    }
    weft_status_t status = weft__shm_run_chunk(shm, &part, algo);
    if (status == WEFT_OK && !chunk->dst_direct) {
        unpack(call, chunk, shm->bounce + shm->bounce_bytes);
    }
    return status;
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

weft_status_t weft__shm_chunks(weft_shm_t *shm, const weft_call_t *call, weft_algo_t algo)
{
    const weft_coll_info_t *info = &weft__coll_info[call->coll];
    bool oneshot = algo == WEFT_ALGO_ONESHOT;
    size_t element = weft_dtype_size(call->type);
    size_t blocks = table_blocks(shm, call);
    size_t room = oneshot ? WEFT_SLOT_BYTES : shm->chunk;
    size_t most = room / element / blocks;
    piece_t chunk = {.element = element,
                     .src_blocks = weft__call_src_blocks(call, shm->rank, shm->size),
                     .dst_blocks = weft__call_dst_blocks(call, shm->rank, shm->size)};
    most = most ? most : 1;
    size_t src_bytes = call->count * element * (size_t)chunk.src_blocks;
    size_t dst_bytes = call->count * element * (size_t)chunk.dst_blocks;
    chunk.src_direct = info->src_blocks == '1' &&
                       (oneshot || weft__shm_shared(shm, call->src, src_bytes));
    chunk.dst_direct = info->dst_blocks == '1' &&
                       (oneshot || weft__shm_shared(shm, call->dst, dst_bytes));
    mark_whole(shm, call);
    weft_status_t status = bounce_ready(shm, most * element * blocks);
    while (status == WEFT_OK && chunk.offset < call->count) {
        size_t left = call->count - chunk.offset;
        chunk.count = left < most ? left : most;
        status = run_piece(shm, call, &chunk, algo);
        chunk.offset += chunk.count;
    }
    return status;
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
        status = weft__shm_run_chunk(shm, &round, WEFT_ALGO_DIRECT);
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
