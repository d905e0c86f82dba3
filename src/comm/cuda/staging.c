/* Buffers that kernels have to reach and cannot, in memory of the device in their place. What is
 * copied is memory that GPUs reach: plain host memory has been replaced before (pinned.c). Copies
 * are made in stream order, and never hold up the caller, who may have to make the calls of other
 * ranks as well. */
#include <stdlib.h>

#include "base/log.h"
#include "comm/cuda/cuda.h"

/* Device memory of the size of a buffer, and with its contents if it is to be `filled`. */
static weft_status_t copy_of(const weft_cuda_t *cuda, const void *ptr, size_t bytes, bool filled,
                             weft_stream_h stream, void **memory_p)
{
    weft_status_t status = weft__device_malloc(cuda->device, memory_p, bytes);
    return status == WEFT_OK && filled ? weft_memcpy(*memory_p, ptr, bytes, stream) : status;
}

static weft_status_t stage_in(weft_cuda_t *cuda, weft_call_t *call, bool src, bool dst,
                              weft_stream_h stream, weft_cuda_staging_t *staging_p)
{
    size_t src_bytes = weft__call_extent(call, cuda->rank, cuda->size, false);
    size_t dst_bytes = weft__call_extent(call, cuda->rank, cuda->size, true);
    weft_status_t status = WEFT_OK;
    weft_cuda_loan_t *loan = calloc(1, sizeof(*loan));
    if (!loan) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to stage a call");
    }
    staging_p->loan = loan;
    cuda->queued += WEFT_CUDA_COPY_OPS;
    if (src) {
        status = copy_of(cuda, call->src, src_bytes, true, stream, &loan->device[0]);
        call->src = loan->device[0];
    }
    if (dst && status == WEFT_OK) {
        /* Blocks of the destination that nobody writes keep what they have. */
        bool filled = call->coll == WEFT_COLL_ALLTOALLV;
        status = copy_of(cuda, call->dst, dst_bytes, filled, stream, &loan->device[1]);
        staging_p->to = call->dst;
        staging_p->bytes = dst_bytes;
        call->dst = loan->device[1];
    }
    return status;
}

weft_status_t weft__cuda_staging_in(weft_cuda_t *cuda, weft_call_t *call, bool src, bool dst,
                                    weft_stream_h stream, weft_cuda_staging_t *staging_p)
{
    weft_status_t status = src || dst ? stage_in(cuda, call, src, dst, stream, staging_p) : WEFT_OK;
    return status == WEFT_ERR_NO_MEMORY ? weft__cuda_no_room(cuda) : status;
}

weft_status_t weft__cuda_no_room(weft_cuda_t *cuda)
{
    weft__cuda_break(
        cuda, WEFT_ERR_NO_MEMORY, cuda->rank,
        "rank %d has no memory to stage a call whose buffers are not from weft_malloc: "
        "%s",
        cuda->rank, weft_last_error());
    return weft__cuda_check(cuda);
}

weft_status_t weft__cuda_staging_end(weft_cuda_t *cuda, const weft_call_t *calls,
                                     const weft_cuda_staging_t *stages, int n, weft_stream_h stream,
                                     bool capturing, uint64_t mark, weft_status_t status)
{
    bool staged = false;
    for (int i = 0; i < n; i++) {
        const weft_cuda_staging_t *staging = &stages[i];
        if (!staging->loan) {
            continue;
        }
        if (status == WEFT_OK && staging->to) {
            status = weft_memcpy(staging->to, calls[i].dst, staging->bytes, stream);
        }
        weft_status_t lent = weft__cuda_lend(cuda, staging->loan, stream,
                                             capturing || status != WEFT_OK);
        status = status != WEFT_OK ? status : lent;
        staged = true;
    }
    if (mark && staged && status == WEFT_OK) {
        status = weft_stream_synchronize(stream);
        status = status == WEFT_OK ? weft__cuda_engine_check(cuda) : status;
        cuda->report->finished = mark; /* no kernel runs that might write it */
    }
    return status;
}

/* ---- loans ------------------------------------------------------------------------------ */

weft_status_t weft__cuda_lend(weft_cuda_t *cuda, weft_cuda_loan_t *loan, weft_stream_h stream,
                              bool for_good)
{
    int error = 0;
    loan->next = cuda->loans;
    cuda->loans = loan;
    if (!for_good) {
        error = weft__cuda()->event_create(cuda->gpu, &loan->event);
        error = error
                    ? error
                    : weft__cuda()->event_record(cuda->gpu, loan->event, weft__cuda_stream(stream));
    }
    return weft__cuda_status(error, "an event for staged memory");
}

void weft__cuda_take_back(weft_cuda_t *cuda, weft_cuda_loan_t *loan)
{
    weft_free(loan->device[0]);
    weft_free(loan->device[1]);
    weft_host_free(loan->host);
    if (loan->event) {
        weft__cuda()->event_destroy(cuda->gpu, loan->event);
    }
    free(loan);
}

void weft__cuda_reclaim(weft_cuda_t *cuda, bool all)
{
    for (weft_cuda_loan_t **at = &cuda->loans; *at;) {
        weft_cuda_loan_t *loan = *at;
        bool done = false;
        if (loan->event && weft__cuda()->event_done(cuda->gpu, loan->event, &done) != 0) {
            done = true;
        }
        if (!done && !all) {
            at = &loan->next;
            continue;
        }
        *at = loan->next;
        weft__cuda_take_back(cuda, loan);
    }
}
