/* Buffers that kernels of other ranks have to reach and cannot: plain host memory, or memory that another
 * library took from the GPU. Copies go through memory of ours, in stream order, and never hold up
 * the caller, who may have to make the calls of other ranks as well: between host memory and the GPU
 * they pass pinned memory, filled and emptied by functions on the stream. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/cuda/cuda.h"

typedef struct host_copy {
    void *dst;
    const void *src;
    size_t bytes;
} host_copy_t;

static void run_host_copy(void *arg)
{
    host_copy_t *copy = arg;
    memcpy(copy->dst, copy->src, copy->bytes);
}

/* Pinned memory of `bytes`, with room for the description of a copy in front. */
static weft_status_t take_pinned(weft_cuda_loan_t *loan, int which, size_t bytes, char **data_p)
{
    void *host;
    weft_status_t status = weft_host_malloc(&host, bytes + 256);
    if (status == WEFT_OK) {
        loan->host[which] = host;
        *data_p = (char *)host + 256;
    }
    return status;
}

static weft_status_t on_host(weft_cuda_loan_t *loan, int which, void *dst, const void *src,
                             size_t bytes, weft_stream_h stream)
{
    host_copy_t *copy = loan->host[which];
    *copy = (host_copy_t){dst, src, bytes};
    return weft_stream_call(stream, run_host_copy, copy);
}


static weft_status_t bring_in(weft_cuda_t *cuda, weft_cuda_loan_t *loan, const void *src,
                              size_t bytes, weft_stream_h stream)
{
    char *pinned;
    void *device;
    weft_status_t status = weft__device_malloc(cuda->device, &device, bytes);
    if (status != WEFT_OK) {
        return status;
    }
    loan->device[0] = device;
    if (weft__cuda_where(src, bytes) != -2) {
        return weft_memcpy(device, src, bytes, stream);
    }
    status = take_pinned(loan, 0, bytes, &pinned);
    status = status == WEFT_OK ? on_host(loan, 0, pinned, src, bytes, stream) : status;
    return status == WEFT_OK ? weft_memcpy(device, pinned, bytes, stream) : status;
}

static weft_status_t stage_in(weft_cuda_t *cuda, weft_call_t *call, bool src, bool dst,
                              weft_stream_h stream, weft_cuda_stage_t *stage_p)
{
    size_t src_bytes = weft__call_extent(call, cuda->rank, cuda->size, false);
    size_t dst_bytes = weft__call_extent(call, cuda->rank, cuda->size, true);
    weft_status_t status = WEFT_OK;
    weft_cuda_loan_t *loan = calloc(1, sizeof(*loan));
    if (!loan) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to stage a call");
    }
    stage_p->loan = loan;
    cuda->queued += WEFT_CUDA_STAGE_OPS;
    if (src) {
        status = bring_in(cuda, loan, call->src, src_bytes, stream);
        call->src = loan->device[0];
    }
    if (dst && status == WEFT_OK) {
        void *device;
        status = weft__device_malloc(cuda->device, &device, dst_bytes);
        if (status == WEFT_OK) {
            loan->device[1] = device;
            stage_p->to = call->dst;
            stage_p->bytes = dst_bytes;
            call->dst = device;
        }
    }
    /* Blocks of the destination that nobody writes keep what they have. */
    if (dst && status == WEFT_OK && call->coll == WEFT_COLL_ALLTOALLV) {
        weft_cuda_loan_t *kept = loan;
        void *first = loan->device[0], *pinned = loan->host[0];
        loan->device[0] = loan->host[0] = NULL;
        status = bring_in(cuda, kept, stage_p->to, dst_bytes, stream);
        if (status == WEFT_OK) {
            weft_free(call->dst);
            call->dst = loan->device[1] = loan->device[0];
            loan->host[1] = loan->host[0];
        }
        loan->device[0] = first;
        loan->host[0] = pinned;
    }
    return status;
}

weft_status_t weft__cuda_stage_in(weft_cuda_t *cuda, weft_call_t *call, bool src, bool dst,
                                  weft_stream_h stream, weft_cuda_stage_t *stage_p)
{
    weft_status_t status = src || dst ? stage_in(cuda, call, src, dst, stream, stage_p) : WEFT_OK;
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

static weft_status_t stage_out(const weft_call_t *call, const weft_cuda_stage_t *stage,
                               weft_stream_h stream)
{
    if (!stage->to) {
        return WEFT_OK;
    }
    if (weft__cuda_where(stage->to, stage->bytes) != -2) {
        return weft_memcpy(stage->to, call->dst, stage->bytes, stream);
    }
    weft_cuda_loan_t *loan = stage->loan;
    char *pinned;
    /* Memory pinned for bringing in is still in use: this one is a second description and buffer. */
    weft_status_t status = take_pinned(loan, 2, stage->bytes, &pinned);
    status = status == WEFT_OK ? weft_memcpy(pinned, call->dst, stage->bytes, stream) : status;
    return status == WEFT_OK ? on_host(loan, 2, stage->to, pinned, stage->bytes, stream) : status;
}

weft_status_t weft__cuda_stage_end(weft_cuda_t *cuda, const weft_call_t *calls,
                                   const weft_cuda_stage_t *stages, int n, weft_stream_h stream,
                                   bool capturing, uint64_t mark, weft_status_t status)
{
    bool staged = false;
    for (int i = 0; i < n; i++) {
        if (stages[i].loan) {
            weft_status_t back = status == WEFT_OK ? stage_out(&calls[i], &stages[i], stream)
                                                   : WEFT_OK;
            weft_status_t lent = weft__cuda_lend(cuda, stages[i].loan, stream,
                                                 capturing || status != WEFT_OK);
            status = status != WEFT_OK ? status : back != WEFT_OK ? back : lent;
            staged = true;
        }
    }
    if (mark && staged && status == WEFT_OK) {
        status = weft_stream_synchronize(stream);
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
        error = error ? error : weft__cuda()->event_record(cuda->gpu, loan->event,
                                                           weft__cuda_stream(stream));
    }
    return weft__cuda_status(error, "an event for staged memory");
}

void weft__cuda_take_back(weft_cuda_t *cuda, weft_cuda_loan_t *loan)
{
    for (int i = 0; i < 2; i++) {
        weft_free(loan->device[i]);
    }
    for (int i = 0; i < 3; i++) {
        weft_host_free(loan->host[i]);
    }
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
