/* Buffers in host memory that GPUs do not reach: NCCL gets device memory of ours instead. */
#include <stdlib.h>

#include "base/log.h"
#include "comm/nccl/member.h"
#include "device/cuda.h"

/* [from, from + bytes) in the caller's memory. */
typedef struct range {
    char *from;
    size_t bytes;
} range_t;

static bool overlap(range_t a, range_t b)
{
    return a.bytes > 0 && b.bytes > 0 && a.from < b.from + b.bytes && b.from < a.from + a.bytes;
}

static range_t unite(range_t a, range_t b)
{
    char *from = a.from < b.from ? a.from : b.from;
    char *a_end = a.from + a.bytes, *b_end = b.from + b.bytes;
    return (range_t){from, (size_t)((a_end > b_end ? a_end : b_end) - from)};
}

static weft_status_t reaches(const weft_nccl_member_t *member, range_t range, bool *reached_p)
{
    weft_cuda_slab_t slab;
    int where = 0, end = 0;
    *reached_p = range.bytes == 0 || weft__cuda_find(range.from, range.bytes, &slab);
    if (*reached_p) {
        return WEFT_OK;
    }
    int error = member->binding.ops->where(range.from, &where);
    error = error ? error : member->binding.ops->where(range.from + range.bytes - 1, &end);
    *reached_p = where != -2 && end != -2;
    return weft__cuda_status(error, "asking where a buffer is");
}

/* Device memory in place of `range`, with its contents if asked. */
static weft_status_t replace(weft_nccl_member_t *member, range_t range, bool filled, void *stream,
                             weft_nccl_staging_t *staging, char **memory_p)
{
    void *memory;
    WEFT_TRY(weft__device_malloc(member->comm->device, &memory, range.bytes));
    staging->memory[staging->used++] = memory;
    *memory_p = memory;
    int error = filled ? member->binding.ops->copy(member->binding.gpu, memory, range.from,
                                                   range.bytes, stream)
                       : 0;
    return weft__cuda_status(error, "copying a buffer to the GPU");
}

static weft_status_t stage_call(weft_nccl_member_t *member, weft_call_t *call, void *stream,
                                weft_nccl_staging_t *staging)
{
    range_t src = {(char *)call->src, weft__call_extent(call, member->rank, member->size, false)};
    range_t dst = {call->dst, weft__call_extent(call, member->rank, member->size, true)};
    bool src_reached = true, dst_reached = true;
    char *memory;
    weft_status_t status = reaches(member, src, &src_reached);
    status = status == WEFT_OK ? reaches(member, dst, &dst_reached) : status;
    if (status != WEFT_OK || (src_reached && dst_reached)) {
        return status;
    }
    bool in_place = overlap(src, dst);
    if (!src_reached && !in_place) {
        status = replace(member, src, true, stream, staging, &memory);
        call->src = memory;
    }
    if (status == WEFT_OK && !dst_reached) {
        range_t all = in_place ? unite(src, dst) : dst;
        /* What an all-to-all of ragged blocks leaves out must come back as it was. */
        bool filled = in_place || call->coll == WEFT_COLL_ALLTOALLV;
        status = replace(member, all, filled, stream, staging, &memory);
        call->src = in_place ? memory + (src.from - all.from) : call->src;
        call->dst = memory + (dst.from - all.from);
        staging->back[staging->backs++] = (weft_nccl_copy_t){dst.from, call->dst, dst.bytes};
    }
    return status;
}

/* Does any of them need it? */
static weft_status_t look_over(weft_nccl_member_t *member, const weft_call_t *calls, int n,
                               bool *needed_p)
{
    weft_status_t status = WEFT_OK;
    *needed_p = false;
    for (int i = 0; i < n && status == WEFT_OK && !*needed_p; i++) {
        for (int dst = 0; dst < 2 && status == WEFT_OK && !*needed_p; dst++) {
            range_t range = {dst ? calls[i].dst : (char *)calls[i].src,
                             weft__call_extent(&calls[i], member->rank, member->size, dst)};
            bool reached = true;
            status = reaches(member, range, &reached);
            *needed_p = !reached;
        }
    }
    return status;
}

weft_status_t weft__nccl_staging_in(weft_nccl_member_t *member, const weft_call_t *calls, int n,
                                    void *stream, weft_nccl_staging_t **staging_p)
{
    bool needed;
    *staging_p = NULL;
    weft_status_t status = look_over(member, calls, n, &needed);
    if (status != WEFT_OK || !needed) {
        return status;
    }
    size_t room = (size_t)n;
    weft_nccl_staging_t *staging = calloc(1, sizeof(*staging));
    if (staging) {
        staging->calls = calloc(room, sizeof(*staging->calls));
        staging->memory = calloc(2 * room, sizeof(*staging->memory));
        staging->back = calloc(room, sizeof(*staging->back));
    }
    if (!staging || !staging->calls || !staging->memory || !staging->back) {
        weft__nccl_staging_free(staging);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to stage %d calls", n);
    }
    for (int i = 0; i < n && status == WEFT_OK; i++) {
        staging->calls[i] = calls[i];
        status = stage_call(member, &staging->calls[i], stream, staging);
    }
    if (status != WEFT_OK) {
        member->binding.ops->stream_sync(member->binding.gpu, stream); /* what was copied so far */
        weft__nccl_staging_free(staging);
        return status;
    }
    staging->member = member;
    staging->stream = stream;
    *staging_p = staging;
    return WEFT_OK;
}

weft_status_t weft__nccl_staging_out(const weft_nccl_staging_t *staging)
{
    const weft_nccl_binding_t *binding = &staging->member->binding;
    int error = 0;
    for (int i = 0; i < staging->backs && error == 0; i++) {
        const weft_nccl_copy_t *copy = &staging->back[i];
        error = binding->ops->copy(binding->gpu, copy->to, copy->from, copy->bytes,
                                   staging->stream);
    }
    return weft__cuda_status(error, "copying a result from the GPU");
}

void weft__nccl_staging_free(weft_nccl_staging_t *staging)
{
    if (!staging) {
        return;
    }
    for (int i = 0; i < staging->used; i++) {
        weft_free(staging->memory[i]);
    }
    free(staging->calls);
    free(staging->memory);
    free(staging->back);
    free(staging);
}
