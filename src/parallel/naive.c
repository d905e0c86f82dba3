/* The baseline of data parallelism: one rank does it all.
 *
 * As where one process feeds all devices, rank 0 collects the gradients, has the only optimizer,
 * and hands out all weights in every step, after backward and on the compute stream: nothing
 * overlaps. It is there to be compared with (zero.h has the table that it fills in). */
#include "base/log.h"
#include "parallel/zero.h"

static weft_status_t collect(weft_zero_t *zero, int bucket, weft_stream_h comm_stream)
{
    const weft_bucket_t *b = &zero->layout.buckets[bucket];
    weft_dtype_t type = zero->model->grad_type;
    char *x = zero->all_grads + (size_t)b->first * weft_dtype_size(type);
    return weft_reduce(x, x, (size_t)b->count, type, WEFT_SUM, 0, weft__grads_comm(zero),
                       comm_stream);
}

static weft_status_t hand_out(weft_zero_t *zero, float *norm)
{
    weft_dtype_t type = zero->model->type;
    weft_comm_h comm = weft__grads_comm(zero);
    size_t count = (size_t)zero->layout.total;
    int64_t bytes = (int64_t)(count * weft_dtype_size(type));
    int stretch = weft__meter_begin(zero->meter, WEFT_STRETCH_EXCHANGE);
    int span = weft__timeline_begin(zero->timeline, WEFT_TRACK_WEIGHTS, "broadcast of weights",
                                    bytes, zero->stream);
    WEFT_TRY(weft_broadcast(zero->weights, zero->weights, count, type, 0, comm, zero->stream));
    WEFT_TRY(weft_broadcast(norm, norm, 2, WEFT_F32, 0, comm, zero->stream));
    weft__timeline_end(zero->timeline, span, zero->stream);
    weft__meter_end(zero->meter, stretch);
    return WEFT_OK;
}

const weft_exchange_ops_t weft__exchange_naive = {
    .name = "reduce", .gradients = collect, .updated = hand_out};
