/* Small all-reduces of a group as one kernel: one trip for all of them. */
#include "base/log.h"
#include "comm/cuda/cuda.h"

static uint64_t units_of(const weft_call_t *call)
{
    return (call->count * weft_dtype_size(call->type) + 7) / 8;
}

int weft__cuda_batch_size(void *ctx, const weft_call_t *calls, int n)
{
    weft_cuda_t *cuda = ctx;
    uint64_t units = 0;
    int some = 0;
    while (some < n && some < WEFT_CUDA_PIECES) {
        weft_coll_t coll = calls[some].coll;
        units += units_of(&calls[some]);
        if (weft__cuda_goes_direct(cuda, coll, 8 * units) ||
            weft__cuda_engine_takes_call(cuda, &calls[some])) {
            break;
        }
        some++;
    }
    return some > 0 ? some : 1;
}

static void add_piece(weft_cuda_batch_t *batch, const weft_call_t *call)
{
    if (call->count > 0) {
        batch->piece[batch->n++] = (weft_cuda_batched_t){
            .src = call->src,
            .dst = call->dst,
            .first = batch->units,
            .bytes = (uint32_t)(call->count * weft_dtype_size(call->type))};
        batch->units += (uint32_t)units_of(call);
    }
}

weft_status_t weft__cuda_batch(weft_cuda_t *cuda, const weft_call_t *calls, int n,
                               weft_stream_h stream, uint64_t mark)
{
    weft_cuda_batch_t batch = {0};
    weft_call_t copies[WEFT_CUDA_PIECES];
    weft_cuda_staging_t stages[WEFT_CUDA_PIECES] = {0};
    weft_cuda_pinned_t pinned = {0};
    bool capturing = false, staged = false;
    for (int i = 0; i < n; i++) {
        copies[i] = calls[i];
        WEFT_TRY(weft__cuda_check_alignment(&calls[i]));
    }
    WEFT_TRY(weft__cuda_in_order(cuda, stream, &capturing));
    weft_status_t status = weft__cuda_pin_in(cuda, copies, n, stream, &pinned);
    for (int i = 0; i < n && status == WEFT_OK; i++) {
        weft_call_t *c = &copies[i];
        size_t bytes = c->count * weft_dtype_size(c->type);
        status = weft__cuda_staging_in(cuda, c, !weft__cuda_reaches(cuda, c->src, bytes),
                                       !weft__cuda_reaches(cuda, c->dst, bytes), stream,
                                       &stages[i]);
        staged |= stages[i].loan != NULL;
        add_piece(&batch, c);
    }
    if (status == WEFT_OK) {
        weft_call_t all = weft__call_fuse(calls, n);
        weft_cuda_call_t k = {.mark = staged ? 0 : mark};
        status = weft__cuda_queue(cuda, &all, &k, &batch, stream, capturing);
    }
    status = weft__cuda_staging_end(cuda, copies, stages, n, stream, capturing, mark, status);
    return weft__cuda_pin_out(cuda, &pinned, stream, capturing, mark, status);
}
