/* Calls: where the buffers are, which kernel, how many blocks, in which order. */
#include <string.h>

#include "base/log.h"
#include "base/settings.h"
#include "comm/cuda/cuda.h"

int weft__cuda_blocks(const weft_cuda_t *cuda, uint64_t threads)
{
    uint64_t blocks = (threads + WEFT_CUDA_THREADS - 1) / WEFT_CUDA_THREADS;
    return blocks < 1 ? 1 : blocks > (uint64_t)cuda->most_blocks ? cuda->most_blocks : (int)blocks;
}

/* ---- buffers ---------------------------------------------------------------------------- */

/* In one process every address that some GPU of ours can follow will do; it is only asked for where
 * the memory is not from weft_malloc. */
static bool near_ref(const weft_cuda_t *cuda, const void *ptr, size_t bytes)
{
    weft_cuda_slab_t slab;
    int gpu = -2;
    (void)cuda;
    return weft__cuda_find(ptr, bytes, &slab) ||
           (weft__cuda()->where(ptr, &gpu) == 0 && gpu != -2);
}

bool weft__cuda_ref(weft_cuda_t *cuda, const void *ptr, size_t bytes, weft_cuda_ref_t *ref_p,
                    weft_status_t *status_p)
{
    weft_cuda_slab_t slab;
    *ref_p = (uint64_t)(uintptr_t)ptr;
    if (bytes == 0) {
        *ref_p = 0;
        return true;
    }
    if (!cuda->far) {
        return near_ref(cuda, ptr, bytes);
    }
    if (!weft__cuda_find(ptr, bytes, &slab) || slab.device != cuda->device) {
        return false;
    }
    *ref_p = (uint64_t)(slab.number + 1) << 48 | (uint64_t)((const char *)ptr - slab.base);
    *status_p = weft__cuda_publish(cuda, slab.number);
    return true;
}

/* ---- order ------------------------------------------------------------------------------ */

/* The call before was on another stream: wait for it. */
static weft_status_t chain(weft_cuda_t *cuda, weft_stream_h stream)
{
    bool recorded = false;
    weft_status_t status = weft__cuda_keep_up(cuda);
    if (status != WEFT_OK) {
        return status;
    }
    int error = cuda->order ? 0 : weft__cuda()->event_create(cuda->gpu, &cuda->order);
    error = error ? error : weft__cuda_record(&cuda->last, cuda->order, &recorded);
    if (error == 0 && recorded) {
        error = weft__cuda()->stream_wait(cuda->gpu, weft__cuda_stream(stream), cuda->order);
    }
    return weft__cuda_status(error, "a call on another stream than the one before");
}

weft_status_t weft__cuda_in_order(weft_cuda_t *cuda, weft_stream_h stream, bool *capturing_p)
{
    *capturing_p = false;
    if (stream != cuda->own) {
        int error = weft__cuda()->stream_capturing(cuda->gpu, weft__cuda_stream(stream),
                                                   capturing_p);
        if (error != 0) {
            return weft__cuda_status(error, "a call on a stream");
        }
    }
    /* Inside a graph the order is the graph's. */
    weft_status_t status = WEFT_OK;
    if (*capturing_p) {
        cuda->captured = true;
    } else {
        if (cuda->loans) { /* asking for events is not allowed while a graph is captured */
            weft__cuda_reclaim(cuda, false);
        }
        weft_cuda_past_t now = weft__cuda_past(stream);
        if (cuda->last.stream != now.stream || cuda->last.life != now.life) {
            status = cuda->last.stream ? chain(cuda, stream) : WEFT_OK;
            pthread_mutex_lock(&cuda->lock);
            cuda->last = now;
            pthread_mutex_unlock(&cuda->lock);
        }
        status = status == WEFT_OK ? weft__cuda_copy_slabs(cuda, weft__cuda_stream(stream))
                                   : status;
    }
    return status;
}

/* ---- choosing --------------------------------------------------------------------------- */

/* Up to which size data travels in the lines: they cost a copy of everything for every peer, but save
 * a trip (docs/performance.md). */
static uint64_t lines_most(const weft_cuda_t *cuda, weft_coll_t coll)
{
    uint64_t most = weft__settings()->eager_max;
    most = most ? most : cuda->tune.lines_most[coll];
    if (most == 0) {
        /* A grid that leaves room for the call behind it; beyond that the other way is faster. */
        uint64_t blocks = cuda->most_blocks > 1 ? (uint64_t)cuda->most_blocks / 2 : 1;
        most = blocks * WEFT_CUDA_THREADS * 8;
    }
    uint64_t room = weft__cuda_line_bytes(cuda);
    return most < room ? most : room;
}

static bool goes_direct(const weft_cuda_t *cuda, const weft_call_t *call, uint64_t bytes)
{
    weft_algo_t forced = cuda->comm->tuner.forced[call->coll];
    if (call->coll == WEFT_COLL_BARRIER || bytes == 0) {
        return false;
    }
    if (forced == WEFT_ALGO_ONESHOT) {
        return bytes > weft__cuda_line_bytes(cuda);
    }
    return forced != WEFT_ALGO_AUTO || bytes > lines_most(cuda, call->coll);
}

weft_choice_t weft__cuda_choose(void *ctx, weft_coll_t coll, size_t bytes)
{
    weft_cuda_t *cuda = ctx;
    weft_call_t call = {.coll = coll};
    if (weft__cuda_engine_takes(cuda, coll, bytes)) {
        return (weft_choice_t){.algo = WEFT_ALGO_DIRECT,
                               .why = "large, on GPUs of their own: NCCL"};
    }
    bool direct = goes_direct(cuda, &call, bytes);
    weft_choice_t choice = {
        .algo = direct ? WEFT_ALGO_DIRECT : WEFT_ALGO_ONESHOT,
        .why = cuda->comm->tuner.forced[coll] != WEFT_ALGO_AUTO ? "forced"
               : direct ? "large: kernels read and write everybody's buffers"
                        : "small: data travels with its flags, in one trip"};
    return choice;
}

#define OVERLAP_MOST ((uint64_t)1 << 20)

/* Threads that have work: units of 8 bytes in the lines, else 16 bytes at a time, a few of them each. */
static int blocks_for(const weft_cuda_t *cuda, const weft_call_t *call, bool direct, uint64_t bytes)
{
    if (!direct) {
        return weft__cuda_blocks(cuda, (bytes + 7) / 8);
    }
    uint64_t moved = bytes;
    if (call->coll == WEFT_COLL_ALLREDUCE || call->coll == WEFT_COLL_REDUCE) {
        moved = bytes / (uint64_t)cuda->size;
    } else if (call->coll == WEFT_COLL_ALLGATHER || call->coll == WEFT_COLL_ALLTOALL) {
        moved = bytes * (uint64_t)cuda->size;
    }
    int blocks = weft__cuda_blocks(cuda, moved / 16 + 1);
    /* Up to here it gains more from overlapping than from all of the GPU. */
    bool half = cuda->overlaps && moved <= OVERLAP_MOST && 2 * blocks > cuda->most_blocks;
    return half && cuda->most_blocks > 1 ? cuda->most_blocks / 2 : blocks;
}

/* ---- launching -------------------------------------------------------------------------- */

static void note_issued(weft_cuda_t *cuda, uint64_t sig, uint64_t count)
{
    weft_cuda_card_t *card = cuda->cards[cuda->rank];
    atomic_store_explicit(&card->sig, sig, memory_order_relaxed);
    atomic_store_explicit(&card->count, count, memory_order_relaxed);
    /* Partner: the loads in look_at_rank of the watches. */
    atomic_store_explicit(&card->issued, ++cuda->issued, memory_order_release);
}

/* What the lines carry in a call. */
static weft_cuda_route_t find_route(const weft_cuda_t *cuda, const weft_call_t *call, uint64_t bytes)
{
    const weft_coll_info_t *info = &weft__coll_info[call->coll];
    bool root = call->root == cuda->rank;
    weft_cuda_route_t r = {.send_to = cuda->size, .recv_to = cuda->size};
    if (call->coll == WEFT_COLL_BARRIER) {
        r.send_to = r.recv_to = 0;
    } else if (info->src_where == 'r') { /* root has something for all */
        r.send_to = root ? cuda->size : 0;
        r.recv_from = call->root;
        r.recv_to = call->root + 1;
    } else if (info->dst_where == 'r') { /* all have something for root */
        r.send_from = call->root;
        r.send_to = call->root + 1;
        r.recv_to = root ? cuda->size : 0;
    }
    r.send_step = info->src_blocks == 'S' ? bytes : 0;
    r.recv_step = info->dst_blocks == 'S' ? bytes : 0;
    return r;
}

static void fill_ragged(const weft_cuda_t *cuda, const weft_call_t *call, weft_cuda_ragged_t *ragged)
{
    size_t element = weft_dtype_size(call->type);
    const weft_vectors_t *v = call->vectors;
    for (int p = 0; p < cuda->size; p++) {
        ragged->send_bytes[p] = v->sendcounts[p] * element;
        ragged->send_at[p] = v->sendoffsets[p] * element;
        ragged->recv_bytes[p] = v->recvcounts[p] * element;
        ragged->recv_at[p] = v->recvoffsets[p] * element;
    }
}

/* How a grid comes onto the GPU. Up to half of a share, it may wait there behind the call before: with
 * that, of two communicators at once, it all fits. A larger one has a gate to wait for others at, and
 * overlaps that. It also goes before all that computes: blocks are placed grid after grid, and one that
 * finds no place holds up all grids behind it that have its priority. Were that a product which waits for
 * whole multiprocessors, and behind it our grid that others wait for on those multiprocessors, none would
 * go on. */
static void place(const weft_cuda_t *cuda, weft_cuda_call_t *k, bool capturing)
{
    bool large = 2 * k->blocks > cuda->most_blocks;
    k->gate = k->direct && large && k->blocks > 1;
    k->overlap = cuda->overlaps && !capturing && (k->gate || !large);
}

/* Queue the kernel of a call whose buffers kernels can reach. */
static weft_status_t queue(weft_cuda_t *cuda, const weft_call_t *call, weft_cuda_call_t *k,
                           weft_stream_h stream, bool capturing)
{
    const weft_cuda_comm_ops_t *ops = weft__cuda_tables(NULL)->comm;
    void *native = weft__cuda_stream(stream);
    uint64_t bytes = call->count * weft_dtype_size(call->type);
    bool ragged = call->coll == WEFT_COLL_ALLTOALLV;
    k->coll = call->coll;
    k->type = call->type;
    k->op = call->op;
    k->root = call->root;
    k->src = call->src;
    k->dst = call->dst;
    k->count = ragged ? 0 : call->count;
    k->direct = ragged || goes_direct(cuda, call, bytes);
    k->sig = weft__sig_pack(call, k->direct ? WEFT_ALGO_DIRECT : WEFT_ALGO_ONESHOT);
    note_issued(cuda, k->sig, k->count);
    int error;
    if (ragged) {
        weft_cuda_ragged_t vectors;
        fill_ragged(cuda, call, &vectors);
        k->blocks = cuda->most_blocks; /* the same on all ranks, which may have nothing in common */
        place(cuda, k, capturing);
        error = ops->ragged(cuda->gpu, &cuda->world, k, &vectors, native);
    } else {
        k->blocks = blocks_for(cuda, call, k->direct, bytes);
        place(cuda, k, capturing);
        if (!k->direct) {
            k->route = find_route(cuda, call, bytes);
            k->even = cuda->size <= WEFT_CUDA_POLL_FAN &&
                      (((uintptr_t)k->src | (uintptr_t)k->dst | bytes) & 7) == 0;
        }
        error = ops->collective(cuda->gpu, &cuda->world, k, native);
    }
    if (error != 0) { /* the others are in this call already */
        return weft__cuda_failed(cuda, error, "a kernel cannot be launched");
    }
    /* Partner: the loads in weft__cuda_keep_up of the other ranks of this process. */
    atomic_store_explicit(&cuda->cards[cuda->rank]->launched, cuda->issued, memory_order_release);
    return WEFT_OK;
}

static weft_status_t check_alignment(const weft_call_t *call)
{
    size_t element = weft_dtype_size(call->type);
    if (weft__coll_info[call->coll].reduces &&
        (((uintptr_t)call->src | (uintptr_t)call->dst) & (element - 1)) != 0) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_%s: src %p or dst %p is not aligned to an element of %zu bytes, as "
                          "GPUs need it",
                          weft__coll_info[call->coll].name, call->src, call->dst, element);
    }
    return WEFT_OK;
}

static weft_status_t run_one(weft_cuda_t *cuda, const weft_call_t *call, weft_stream_h stream,
                             uint64_t mark)
{
    weft_call_t c = *call;
    weft_cuda_call_t k = {.mark = mark};
    weft_cuda_stage_t stage = {0};
    bool capturing = false;
    size_t src_bytes = weft__call_extent(call, cuda->rank, cuda->size, false);
    size_t dst_bytes = weft__call_extent(call, cuda->rank, cuda->size, true);
    weft_status_t status = check_alignment(call);
    status = status == WEFT_OK ? weft__cuda_in_order(cuda, stream, &capturing) : status;
    if (status != WEFT_OK) {
        return status;
    }
    bool src = weft__cuda_ref(cuda, c.src, src_bytes, &k.src_ref, &status);
    bool dst = weft__cuda_ref(cuda, c.dst, dst_bytes, &k.dst_ref, &status);
    if ((!src || !dst) && status == WEFT_OK) {
        status = weft__cuda_stage_in(cuda, &c, !src, !dst, stream, &stage);
        if (status == WEFT_ERR_NO_MEMORY) { /* the others are in this call, or will be */
            weft__cuda_break(cuda, status, cuda->rank,
                             "rank %d has no memory to stage a call whose buffers are not from "
                             "weft_malloc: %s",
                             cuda->rank, weft_last_error());
            status = weft__cuda_check(cuda);
        }
        if (status == WEFT_OK) {
            weft__cuda_ref(cuda, c.src, src_bytes, &k.src_ref, &status);
            weft__cuda_ref(cuda, c.dst, dst_bytes, &k.dst_ref, &status);
        }
        k.mark = 0; /* the result is only there after the copy back */
    }
    uint64_t block = c.count * weft_dtype_size(c.type);
    if (status == WEFT_OK && weft__cuda_engine_takes(cuda, c.coll, block)) {
        note_issued(cuda, weft__sig_pack(&c, WEFT_ALGO_DIRECT), c.count);
        status = weft__cuda_engine_launch(cuda, &c, stream, capturing);
        atomic_store_explicit(&cuda->cards[cuda->rank]->launched, cuda->issued,
                              memory_order_release);
        if (mark && status == WEFT_OK) {
            status = weft__cuda_await_idle(cuda);
        }
    } else if (status == WEFT_OK) {
        status = queue(cuda, &c, &k, stream, capturing);
    }
    if (stage.loan) {
        weft_status_t back = weft__cuda_stage_out(cuda, &c, &stage, stream);
        weft_status_t lent = weft__cuda_lend(cuda, stage.loan, stream, capturing);
        status = status != WEFT_OK ? status : back != WEFT_OK ? back : lent;
        if (mark && status == WEFT_OK) {
            status = weft_stream_synchronize(stream);
            cuda->report->finished = mark; /* no kernel runs that might write it */
        }
    }
    return status;
}

/* Not the first of a group: the others may already wait for the rest of it. */
weft_status_t weft__cuda_launch(void *ctx, const weft_call_t *calls, int n, weft_stream_h stream)
{
    weft_cuda_t *cuda = ctx;
    if (atomic_load_explicit(&cuda->shm->segment->head->broken, memory_order_acquire) != 0) {
        return weft__shm_refuse(cuda->shm);
    }
    weft_status_t status = stream || cuda->own ? WEFT_OK
                                               : weft__stream_create_on(cuda->device, &cuda->own);
    if (status != WEFT_OK) {
        return status;
    }
    weft_stream_h on = stream ? stream : cuda->own;
    uint64_t mark = 0;
    if (weft__is_message(calls->coll)) {
        mark = stream ? 0 : ++cuda->marks;
        status = weft__cuda_exchange(cuda, calls, n, on, mark);
    } else {
        for (int i = 0; i < n && status == WEFT_OK; i++) {
            mark = stream || i < n - 1 ? 0 : ++cuda->marks;
            status = run_one(cuda, &calls[i], on, mark);
        }
    }
    if (status == WEFT_ERR_SYSTEM) {
        return weft__cuda_failed(cuda, 0, NULL);
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (stream) {
        weft__cuda_remember(stream, weft__cuda_ask, cuda);
        return WEFT_OK;
    }
    return weft__cuda_await(cuda, mark);
}
