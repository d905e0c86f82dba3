/* Calls: names, argument checks, descriptions. */
#include "comm/call.h"

#include <stdio.h>
#include <stdlib.h>

#include <weft/device.h>

#include "base/log.h"
#include "comm/bounds.h"
#include "comm/comm.h"
#include "device/device.h"

const weft_coll_info_t weft__coll_info[WEFT_COLL_COUNT] = {
#define COLL_INFO(name, text, sb, db, sw, dw, red)                                                 \
    [WEFT_COLL_##name] = {#text, sb, db, sw, dw, red},
    WEFT_COLL_TABLE(COLL_INFO)
#undef COLL_INFO
};

const char *weft__algo_name(weft_algo_t algo)
{
    static const char *const names[] = {
#define ALGO_NAME(name, text) [WEFT_ALGO_##name] = #text,
        WEFT_ALGO_TABLE(ALGO_NAME)
#undef ALGO_NAME
    };
    return (unsigned)algo < WEFT_ALGO_COUNT ? names[algo] : "?";
}

void weft__call_cleanup(weft_call_t *call)
{
    free(call->vectors);
    call->vectors = NULL;
}

static bool is_rooted(weft_coll_t coll)
{
    const weft_coll_info_t *info = &weft__coll_info[coll];
    return info->src_where == 'r' || info->dst_where == 'r';
}

void weft__call_describe(const weft_call_t *call, char *text, size_t room)
{
    const weft_coll_info_t *info = &weft__coll_info[call->coll];
    const char *type = weft_dtype_name(call->type);
    if (call->coll == WEFT_COLL_BARRIER) {
        snprintf(text, room, "barrier");
    } else if (call->coll == WEFT_COLL_ALLTOALLV) {
        snprintf(text, room, "alltoallv of %s", type);
    } else if (weft__is_message(call->coll)) {
        snprintf(text, room, "%s of %zu %s %s %d", info->name, call->count, type,
                 call->coll == WEFT_COLL_SEND ? "to" : "from", call->root);
    } else if (call->fused > 0) {
        snprintf(text, room, "group of %d allreduces of together %zu %s, %s", call->fused,
                 call->count, type, weft_op_name(call->op));
    } else {
        int n = snprintf(text, room, "%s of %zu %s", info->name, call->count, type);
        if (info->reduces && n >= 0 && (size_t)n < room) {
            n += snprintf(text + n, room - (size_t)n, ", %s", weft_op_name(call->op));
        }
        if (is_rooted(call->coll) && n >= 0 && (size_t)n < room) {
            snprintf(text + n, room - (size_t)n, ", root %d", call->root);
        }
    }
}

void weft__sig_describe(uint64_t sig, uint64_t count, char *text, size_t room)
{
    weft_call_t call = {.coll = (weft_coll_t)(sig & 0xff),
                        .type = (weft_dtype_t)(sig >> 8 & 0xff),
                        .op = (weft_op_t)(sig >> 16 & 0xff),
                        .root = (int)(sig >> 32 & 0xffffff),
                        .fused = (int)(sig >> 56),
                        .count = count};
    if ((unsigned)call.coll >= WEFT_COLL_COUNT) {
        snprintf(text, room, "an unknown call");
        return;
    }
    weft__call_describe(&call, text, room);
}

weft_call_t weft__call_fuse(const weft_call_t *calls, int n)
{
    weft_call_t all = calls[0];
    uint32_t hash = 2166136261u;
    all.count = 0;
    for (int i = 0; i < n; i++) {
        hash = (hash ^ (uint32_t)calls[i].count) * 16777619u;
        all.count += calls[i].count;
    }
    all.fused = n;
    all.root = (int)((hash ^ hash >> 24) & 0xffffff);
    return all;
}

size_t weft__call_extent(const weft_call_t *call, int rank, int size, bool dst)
{
    size_t element = weft_dtype_size(call->type), end = 0;
    if (call->coll != WEFT_COLL_ALLTOALLV) {
        int blocks = dst ? weft__call_dst_blocks(call, rank, size)
                         : weft__call_src_blocks(call, rank, size);
        return call->count * element * (size_t)blocks;
    }
    const size_t *counts = dst ? call->vectors->recvcounts : call->vectors->sendcounts;
    const size_t *offsets = dst ? call->vectors->recvoffsets : call->vectors->sendoffsets;
    for (int p = 0; p < size; p++) {
        if (counts[p] > 0 && offsets[p] + counts[p] > end) {
            end = offsets[p] + counts[p];
        }
    }
    return end * element;
}

static weft_status_t check_values(const weft_call_t *call, const char *name)
{
    const weft_comm_h comm = call->comm;
    if ((unsigned)call->type >= WEFT_DTYPE_COUNT) {
        return weft__fail(WEFT_ERR_INVALID, "weft_%s: unknown element type %d", name,
                          (int)call->type);
    }
    if ((unsigned)call->op >= WEFT_OP_COUNT) {
        return weft__fail(WEFT_ERR_INVALID, "weft_%s: unknown operation %d", name, (int)call->op);
    }
    if (call->root < 0 || call->root >= comm->size) {
        return weft__fail(
            WEFT_ERR_INVALID, "weft_%s: %s %d is not a rank of this communicator (0 to %d)", name,
            weft__is_message(call->coll) ? "peer" : "root", call->root, comm->size - 1);
    }
    /* Elements have at most 8 bytes and ranks are at most 2^10: below 2^48 nothing overflows. */
    if (call->count >> 48) {
        return weft__fail(WEFT_ERR_INVALID, "weft_%s: count %zu is beyond the address space", name,
                          call->count);
    }
    return WEFT_OK;
}

static weft_status_t check_buffers(const weft_call_t *call, const char *name)
{
    size_t block = weft__call_bytes(call);
    int rank = call->comm->rank, size = call->comm->size;
    size_t src_bytes = block * (size_t)weft__call_src_blocks(call, rank, size);
    size_t dst_bytes = block * (size_t)weft__call_dst_blocks(call, rank, size);
    if ((src_bytes && !call->src) || (dst_bytes && !call->dst)) {
        return weft__fail(WEFT_ERR_INVALID, "weft_%s: %s is NULL but count is %zu", name,
                          src_bytes && !call->src ? "src" : "dst", call->count);
    }
    uintptr_t src = (uintptr_t)call->src, dst = (uintptr_t)call->dst;
    WEFT_TRY(weft__bounds_check(call->comm, name, false, call->src, src_bytes));
    WEFT_TRY(weft__bounds_check(call->comm, name, true, call->dst, dst_bytes));
    bool overlap = src_bytes && dst_bytes && src < dst + dst_bytes && dst < src + src_bytes;
    if (overlap && dst != weft__call_in_place(call, rank, block)) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_%s: src %p (%zu bytes) and dst %p (%zu bytes) overlap, and not in "
                          "the way that this call allows in place",
                          name, call->src, src_bytes, call->dst, dst_bytes);
    }
    return WEFT_OK;
}

static bool intersect(uintptr_t a, size_t a_bytes, uintptr_t b, size_t b_bytes)
{
    return a_bytes && b_bytes && a < b + b_bytes && b < a + a_bytes;
}

/* Does some block that is sent overlap one that is received? Blocks may lie between each other. */
static bool vectors_overlap(const weft_call_t *call)
{
    const weft_vectors_t *v = call->vectors;
    size_t element = weft_dtype_size(call->type), sent = 0, got = 0;
    uintptr_t src = (uintptr_t)call->src, dst = (uintptr_t)call->dst;
    int size = call->comm->size;
    for (int p = 0; p < size; p++) {
        size_t s = v->sendcounts[p] ? (v->sendoffsets[p] + v->sendcounts[p]) * element : 0;
        size_t g = v->recvcounts[p] ? (v->recvoffsets[p] + v->recvcounts[p]) * element : 0;
        sent = s > sent ? s : sent;
        got = g > got ? g : got;
    }
    if (!intersect(src, sent, dst, got)) {
        return false; /* nearly always: the whole buffers are apart */
    }
    for (int p = 0; p < size; p++) {
        for (int q = 0; q < size; q++) {
            if (intersect(src + v->sendoffsets[p] * element, v->sendcounts[p] * element,
                          dst + v->recvoffsets[q] * element, v->recvcounts[q] * element)) {
                return true;
            }
        }
    }
    return false;
}

static weft_status_t check_vectors(const weft_call_t *call, const char *name)
{
    const weft_vectors_t *v = call->vectors;
    size_t most = SIZE_MAX / 4 / weft_dtype_size(call->type);
    size_t sent = 0, got = 0;
    for (int p = 0; p < call->comm->size; p++) {
        if (v->sendcounts[p] > most || v->recvcounts[p] > most || v->sendoffsets[p] > most ||
            v->recvoffsets[p] > most) {
            return weft__fail(WEFT_ERR_INVALID,
                              "weft_%s: a count or offset for rank %d is beyond the address space",
                              name, p);
        }
        sent |= v->sendcounts[p];
        got |= v->recvcounts[p];
    }
    if ((sent && !call->src) || (got && !call->dst)) {
        return weft__fail(WEFT_ERR_INVALID, "weft_%s: %s is NULL but not all counts are 0", name,
                          sent && !call->src ? "src" : "dst");
    }
    if (sent && got && call->src == call->dst) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_%s: src and dst are the same; it has no in-place form", name);
    }
    if (vectors_overlap(call)) {
        return weft__fail(WEFT_ERR_INVALID, "weft_%s: blocks of src and dst overlap", name);
    }
    weft_comm_h comm = call->comm;
    WEFT_TRY(weft__bounds_check(comm, name, false, call->src,
                                weft__call_extent(call, comm->rank, comm->size, false)));
    return weft__bounds_check(comm, name, true, call->dst,
                              weft__call_extent(call, comm->rank, comm->size, true));
}

weft_status_t weft__call_check(const weft_call_t *call)
{
    const char *name = weft__coll_info[call->coll].name;
    WEFT_TRY(weft__comm_check(call->comm, name));
    WEFT_TRY(check_values(call, name));
    if (call->stream && !weft__stream_exists(call->stream)) {
        return weft__fail(WEFT_ERR_INVALID, "weft_%s: " WEFT_STREAM_GONE, name);
    }
    if (call->coll == WEFT_COLL_ALLTOALLV) {
        return check_vectors(call, name);
    }
    return call->count ? check_buffers(call, name) : WEFT_OK;
}

_Static_assert(sizeof(weft_call_t) <= 88, "see the comment at weft_call_t");
