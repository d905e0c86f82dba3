/* Sends and receives of a group as one kernel: messages are sorted into lanes. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/cuda/cuda.h"

typedef struct batch {
    weft_cuda_exchange_t exchange;
    weft_cuda_message_t *messages;
    int last[2 * WEFT_CUDA_RANKS]; /* message of each lane, so far */
    int lane_of[2][WEFT_CUDA_RANKS];
    uint64_t most; /* bytes of the longest message */
} batch_t;

/* A message is compared by type and count, whichever side it is seen from. */
static uint64_t message_sig(const weft_call_t *call)
{
    return (uint64_t)WEFT_COLL_SEND | (uint64_t)call->type << 8;
}

static void add_message(batch_t *b, int i, const weft_call_t *call, weft_cuda_ref_t ref)
{
    bool sends = call->coll == WEFT_COLL_SEND;
    weft_cuda_message_t *m = &b->messages[i];
    *m = (weft_cuda_message_t){.sig = message_sig(call),
                               .call_sig = weft__sig_pack(call, WEFT_ALGO_DIRECT),
                               .count = call->count,
                               .bytes = call->count * weft_dtype_size(call->type),
                               .at = call->dst,
                               .ref = ref,
                               .peer = call->root,
                               .sends = sends,
                               .next = -1};
    int *lane = &b->lane_of[sends][call->root];
    if (*lane < 0) {
        *lane = b->exchange.lanes++;
        b->exchange.first[*lane] = i;
    } else {
        b->messages[b->last[*lane]].next = i;
    }
    b->last[*lane] = i;
    m->lane = *lane;
    b->most = m->bytes > b->most ? m->bytes : b->most;
}

/* Replace a buffer that cannot be reached: of a send by others, of a receive by our own GPU. */
static weft_status_t staging(weft_cuda_t *cuda, weft_call_t *call, weft_stream_h stream,
                             weft_cuda_staging_t *staging_p, weft_cuda_ref_t *ref_p)
{
    bool sends = call->coll == WEFT_COLL_SEND, reached = true;
    size_t bytes = call->count * weft_dtype_size(call->type);
    if (!sends) {
        return weft__cuda_reaches(cuda, call->dst, bytes)
                   ? WEFT_OK
                   : weft__cuda_staging_in(cuda, call, false, true, stream, staging_p);
    }
    WEFT_TRY(weft__cuda_ref(cuda, call->src, bytes, ref_p, &reached));
    if (!reached) {
        WEFT_TRY(weft__cuda_staging_in(cuda, call, true, false, stream, staging_p));
        WEFT_TRY(weft__cuda_ref(cuda, call->src, bytes, ref_p, &reached));
    }
    return reached ? WEFT_OK
                   : weft__fail(WEFT_ERR_SYSTEM, "memory to stage a message cannot be shared");
}

static void count_messages(weft_cuda_t *cuda, const weft_call_t *calls, int n)
{
    weft_cuda_peer_info_t *info = cuda->infos[cuda->rank];
    for (int i = 0; i < n; i++) {
        _Atomic uint32_t *count = calls[i].coll == WEFT_COLL_SEND ? &info->sends[calls[i].root]
                                                                  : &info->recvs[calls[i].root];
        atomic_store_explicit(&info->sig, weft__sig_pack(&calls[i], WEFT_ALGO_DIRECT),
                              memory_order_relaxed);
        atomic_store_explicit(&info->count, calls[i].count, memory_order_relaxed);
        /* Partner: the loads in misses_messages of the watches. */
        atomic_fetch_add_explicit(count, 1, memory_order_release);
    }
}

static weft_status_t launch(weft_cuda_t *cuda, batch_t *b, weft_stream_h stream)
{
    int share = cuda->most_blocks / b->exchange.lanes;
    int wanted = weft__cuda_blocks(cuda, b->most / 64 + 1);
    b->exchange.lane_blocks = share < 1 ? 1 : wanted < share ? wanted : share;
    int error = weft__cuda_kernels()->exchange(cuda->gpu, &cuda->world, &b->exchange,
                                               weft__cuda_stream(stream));
    if (error != 0) {
        return weft__cuda_failed(cuda, error, "a kernel cannot be launched");
    }
    return WEFT_OK;
}

/* More messages than travel with a launch lie in pinned memory meanwhile. */
static weft_status_t make_room(batch_t *b, int n, weft_cuda_loan_t **loan_p)
{
    void *host;
    *loan_p = NULL;
    b->messages = b->exchange.few;
    if (n <= WEFT_CUDA_FEW) {
        return WEFT_OK;
    }
    weft_cuda_loan_t *loan = calloc(1, sizeof(*loan));
    if (!loan) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %d messages", n);
    }
    weft_status_t status = weft_host_malloc(&host, (size_t)n * sizeof(*b->messages));
    if (status != WEFT_OK) {
        free(loan);
        return status;
    }
    loan->host = host;
    b->messages = host;
    b->exchange.messages = host;
    *loan_p = loan;
    return WEFT_OK;
}

static weft_status_t run(weft_cuda_t *cuda, const weft_call_t *calls, int n, batch_t *b,
                         weft_cuda_staging_t *stages, weft_call_t *copies, weft_stream_h stream,
                         uint64_t mark)
{
    weft_status_t status = WEFT_OK;
    for (int i = 0; i < n && status == WEFT_OK; i++) {
        weft_cuda_ref_t ref = 0;
        status = staging(cuda, &copies[i], stream, &stages[i], &ref);
        if (status == WEFT_OK) {
            add_message(b, i, &copies[i], ref);
        }
    }
    b->exchange.mark = mark;
    count_messages(cuda, calls, n);
    return status == WEFT_OK ? launch(cuda, b, stream) : status;
}

weft_status_t weft__cuda_exchange(weft_cuda_t *cuda, const weft_call_t *calls, int n,
                                  weft_stream_h stream, uint64_t mark)
{
    batch_t b = {0};
    weft_cuda_loan_t *loan = NULL;
    weft_cuda_pinned_t pinned = {0};
    bool capturing = false;
    memset(b.lane_of, -1, sizeof(b.lane_of));
    weft_cuda_staging_t *stages = calloc((size_t)n, sizeof(*stages));
    weft_call_t *copies = calloc((size_t)n, sizeof(*copies));
    weft_status_t status = stages && copies
                               ? weft__cuda_in_order(cuda, stream, &capturing)
                               : weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %d messages", n);
    status = status == WEFT_OK ? make_room(&b, n, &loan) : status;
    if (status == WEFT_OK) {
        memcpy(copies, calls, (size_t)n * sizeof(*copies));
        status = weft__cuda_pin_in(cuda, copies, n, stream, &pinned);
    }
    status = status == WEFT_OK ? run(cuda, calls, n, &b, stages, copies, stream, mark) : status;
    if (stages && copies) {
        status = weft__cuda_staging_end(cuda, copies, stages, n, stream, capturing, mark, status);
        status = weft__cuda_pin_out(cuda, &pinned, stream, capturing, mark, status);
    }
    if (loan) {
        weft_status_t lent = weft__cuda_lend(cuda, loan, stream, capturing || status != WEFT_OK);
        status = status != WEFT_OK ? status : lent;
    }
    free(stages);
    free(copies);
    return status;
}
