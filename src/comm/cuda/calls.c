/* Calls: which kernel, how many blocks, in which order. */
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/settings.h"
#include "comm/cuda/cuda.h"

int weft__cuda_blocks(const weft_cuda_t *cuda, uint64_t threads)
{
    uint64_t blocks = (threads + WEFT_CUDA_THREADS - 1) / WEFT_CUDA_THREADS;
    return blocks < 1 ? 1 : blocks > (uint64_t)cuda->most_blocks ? cuda->most_blocks : (int)blocks;
}

/* ---- order ------------------------------------------------------------------------------ */

/* The call before was on another stream: wait for it. */
static weft_status_t chain(weft_cuda_t *cuda, weft_stream_h stream)
{
    bool recorded = false;
    WEFT_TRY(weft__cuda_keep_up(cuda));
    int error = cuda->order ? 0 : weft__cuda()->event_create(cuda->gpu, &cuda->order);
    error = error ? error : weft__cuda_record(&cuda->last, cuda->order, &recorded);
    if (error == 0 && recorded) {
        error = weft__cuda()->stream_wait(cuda->gpu, weft__cuda_stream(stream), cuda->order);
    }
    return weft__cuda_status(error, "a call on another stream than the one before");
}

#define PACE_NAP_NS 20000

/* See WEFT_CUDA_PACE. The stream waits for the call before already, so the event passes after
 * it. */
static weft_status_t pace(weft_cuda_t *cuda, weft_stream_h stream)
{
    bool passed = cuda->pace == NULL;
    cuda->queued += 2;
    if (cuda->queued <= WEFT_CUDA_PACE) {
        return WEFT_OK;
    }
    int error = cuda->pace ? 0 : weft__cuda()->event_create(cuda->gpu, &cuda->pace);
    while (error == 0 && !passed) {
        error = weft__cuda()->event_done(cuda->gpu, cuda->pace, &passed);
        if (error == 0 && !passed) {
            if (weft__cuda_broken(cuda)) {
                return weft__cuda_check(cuda);
            }
            nanosleep(&(struct timespec){.tv_nsec = PACE_NAP_NS}, NULL);
        }
    }
    cuda->queued = 0;
    error = error ? error
                  : weft__cuda()->event_record(cuda->gpu, cuda->pace, weft__cuda_stream(stream));
    return weft__cuda_status(error, "an event for the pace of calls");
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
    /* Inside a graph the order is the graph's, and asking for events is not allowed. */
    if (*capturing_p) {
        cuda->captured = true;
        return WEFT_OK;
    }
    if (cuda->loans) {
        weft__cuda_reclaim(cuda, false);
    }
    weft_cuda_past_t now = weft__cuda_past(stream);
    if (cuda->last.stream != now.stream || cuda->last.life != now.life) {
        if (cuda->last.stream) {
            cuda->behind = true;
            /* If it fails, the old stream is what destroying the communicator has to wait for. */
            WEFT_TRY(chain(cuda, stream));
        }
        pthread_mutex_lock(&cuda->lock);
        cuda->last = now;
        pthread_mutex_unlock(&cuda->lock);
    }
    WEFT_TRY(pace(cuda, stream));
    return weft__cuda_copy_slabs(cuda, weft__cuda_stream(stream));
}

/* ---- choosing --------------------------------------------------------------------------- */

/* Up to which size data travels by the LL protocol: they cost a copy of everything for every peer,
 * but save a trip (docs/performance.md). */
static uint64_t ll_most(const weft_cuda_t *cuda, weft_coll_t coll)
{
    uint64_t most = weft__settings()->eager_max;
    most = most ? most : cuda->tune.ll_most[coll];
    if (most == 0) {
        /* A grid that leaves room for the call behind it; beyond that the other way is faster. */
        uint64_t blocks = cuda->most_blocks > 1 ? (uint64_t)cuda->most_blocks / 2 : 1;
        most = blocks * WEFT_CUDA_THREADS * 8;
    }
    uint64_t room = weft__cuda_ll_bytes(cuda);
    return most < room ? most : room;
}

bool weft__cuda_goes_direct(const weft_cuda_t *cuda, weft_coll_t coll, uint64_t bytes)
{
    weft_algo_t forced = cuda->comm->tuner.forced[coll];
    if (coll == WEFT_COLL_ALLTOALLV) {
        return true;
    }
    if (coll == WEFT_COLL_BARRIER || bytes == 0) {
        return false;
    }
    if (forced == WEFT_ALGO_ONESHOT) {
        return bytes > weft__cuda_ll_bytes(cuda);
    }
    return forced != WEFT_ALGO_AUTO || bytes > ll_most(cuda, coll);
}

weft_choice_t weft__cuda_choose(void *ctx, weft_coll_t coll, size_t bytes)
{
    weft_cuda_t *cuda = ctx;
    if (weft__cuda_engine_takes(cuda, coll, bytes)) {
        return (weft_choice_t){.algo = WEFT_ALGO_DIRECT,
                               .why = "large, on GPUs of their own: NCCL"};
    }
    bool direct = weft__cuda_goes_direct(cuda, coll, bytes);
    weft_choice_t choice = {.algo = direct ? WEFT_ALGO_DIRECT : WEFT_ALGO_ONESHOT,
                            .why = cuda->comm->tuner.forced[coll] != WEFT_ALGO_AUTO ? "forced"
                                   : direct ? "large: kernels read and write everybody's buffers"
                                            : "small: data travels with its flags, in one trip"};
    return choice;
}

#define OVERLAP_MOST ((uint64_t)1 << 20)

/* Threads that have work: units of 8 bytes with LL, else 16 bytes at a time, a few of them
 * each. */
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
    weft_cuda_peer_info_t *info = cuda->infos[cuda->rank];
    atomic_store_explicit(&info->sig, sig, memory_order_relaxed);
    atomic_store_explicit(&info->count, count, memory_order_relaxed);
    /* Partner: the loads in look_at_rank of the watches. */
    atomic_store_explicit(&info->issued, ++cuda->issued, memory_order_release);
}

/* What LL carries in a call. */
static weft_cuda_route_t find_route(const weft_cuda_t *cuda, const weft_call_t *call,
                                    uint64_t bytes)
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

static void fill_ragged(const weft_cuda_t *cuda, const weft_call_t *call,
                        weft_cuda_ragged_t *ragged)
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

/* How a grid comes onto the GPU. Up to half of a share, it may wait there behind the call before:
 * with that, of two communicators at once, it all fits. A larger one has a gate to wait for others
 * at, and overlaps that. It also goes before all that computes: blocks are placed grid after grid,
 * and one that finds no place holds up all grids behind it that have its priority. Were that a
 * product which waits for whole multiprocessors, and behind it our grid that others wait for on
 * those multiprocessors, none would go on. */
static void binding(const weft_cuda_t *cuda, weft_cuda_call_t *k, bool capturing)
{
    bool large = 2 * k->blocks > cuda->most_blocks;
    k->gate = k->direct && large && k->blocks > 1;
    k->overlap = cuda->overlaps && !capturing && (k->gate || !large);
}

weft_status_t weft__cuda_queue(weft_cuda_t *cuda, const weft_call_t *call, weft_cuda_call_t *k,
                               const weft_cuda_batch_t *batch, weft_stream_h stream, bool capturing)
{
    const weft_cuda_comm_ops_t *ops = weft__cuda_kernels();
    void *native = weft__cuda_stream(stream);
    uint64_t bytes = call->count * weft_dtype_size(call->type);
    bool ragged = call->coll == WEFT_COLL_ALLTOALLV;
    k->coll = call->coll;
    k->type = call->type;
    k->op = call->op;
    k->root = call->root;
    k->src = batch ? NULL : call->src;
    k->dst = batch ? NULL : call->dst;
    k->count = ragged ? 0 : call->count;
    k->direct = !batch && weft__cuda_goes_direct(cuda, call->coll, bytes);
    k->sig = weft__sig_pack(call, k->direct ? WEFT_ALGO_DIRECT : WEFT_ALGO_ONESHOT);
    note_issued(cuda, k->sig, k->count);
    k->blocks =
        ragged  ? cuda->most_blocks /* the same on all ranks, which may have nothing in common */
        : batch ? weft__cuda_blocks(cuda, batch->units)
                : blocks_for(cuda, call, k->direct, bytes);
    binding(cuda, k, capturing);
    if (!k->direct) {
        k->route = find_route(cuda, call, bytes);
        k->even = cuda->size <= WEFT_CUDA_POLL_FAN &&
                  (((uintptr_t)k->src | (uintptr_t)k->dst | bytes) & 7) == 0;
    }
    int error;
    if (ragged) {
        weft_cuda_ragged_t vectors;
        fill_ragged(cuda, call, &vectors);
        error = ops->ragged(cuda->gpu, &cuda->world, k, &vectors, native);
    } else {
        error = batch ? ops->batch(cuda->gpu, &cuda->world, k, batch, native)
                      : ops->collective(cuda->gpu, &cuda->world, k, native);
    }
    if (error != 0) { /* the others are in this call already */
        return weft__cuda_failed(cuda, error, "a kernel cannot be launched");
    }
    /* Partner: the loads in weft__cuda_keep_up of the other ranks of this process. */
    atomic_store_explicit(&cuda->infos[cuda->rank]->launched, cuda->issued, memory_order_release);
    return WEFT_OK;
}

weft_status_t weft__cuda_check_alignment(const weft_call_t *call)
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

/* By whom buffers are read and written: by other ranks' kernels as well, by this rank's alone
 * (calls that travel by the LL protocol), or by NCCL, which gets memory of the GPU. */
enum { BY_OTHERS, BY_US, BY_NCCL };

static weft_status_t reach(weft_cuda_t *cuda, const void *ptr, size_t bytes, int by,
                           weft_cuda_ref_t *ref_p, bool *reached_p)
{
    if (by == BY_OTHERS) {
        return weft__cuda_ref(cuda, ptr, bytes, ref_p, reached_p);
    }
    *reached_p = by == BY_US ? weft__cuda_reaches(cuda, ptr, bytes)
                             : bytes == 0 || weft__cuda_where(ptr, bytes) == cuda->gpu;
    return WEFT_OK;
}

/* The buffers of a call, or memory of ours in their place: pinned where they are plain host memory,
 * and of the device where that does not do, as where others would have to read and write it. */
static weft_status_t find_buffers(weft_cuda_t *cuda, weft_call_t *c, weft_cuda_call_t *k, int by,
                                  weft_stream_h stream, weft_cuda_staging_t *staging,
                                  weft_cuda_pinned_t *pinned)
{
    size_t src_bytes = weft__call_extent(c, cuda->rank, cuda->size, false);
    size_t dst_bytes = weft__call_extent(c, cuda->rank, cuda->size, true);
    const void *src_was = c->src, *dst_was = c->dst;
    bool src = false, dst = false;
    for (int round = 0; round < 3 && (!src || !dst); round++) {
        weft_status_t status = WEFT_OK;
        if (round == 1) {
            status = weft__cuda_pin_in(cuda, c, 1, stream, pinned);
        } else if (round == 2) {
            status = weft__cuda_staging_in(cuda, c, !src, !dst, stream, staging);
        }
        WEFT_TRY(status);
        bool replaced = round == 1 && by == BY_OTHERS; /* what was pinned does not do for others */
        WEFT_TRY(reach(cuda, c->src, src_bytes, by, &k->src_ref, &src));
        WEFT_TRY(reach(cuda, c->dst, dst_bytes, by, &k->dst_ref, &dst));
        src = src && !(replaced && c->src != src_was);
        dst = dst && !(replaced && c->dst != dst_was);
    }
    return src && dst ? WEFT_OK
                      : weft__fail(WEFT_ERR_SYSTEM, "memory to stage a call cannot be shared");
}

static weft_status_t run_engine(weft_cuda_t *cuda, const weft_call_t *call, weft_stream_h stream,
                                bool capturing, uint64_t mark)
{
    note_issued(cuda, weft__sig_pack(call, WEFT_ALGO_DIRECT), call->count);
    cuda->queued += WEFT_CUDA_ENGINE_OPS;
    weft_status_t status = weft__cuda_engine_launch(cuda, call, stream, capturing);
    atomic_store_explicit(&cuda->infos[cuda->rank]->launched, cuda->issued, memory_order_release);
    return mark && status == WEFT_OK ? weft__cuda_await_idle(cuda) : status;
}

static weft_status_t run_one(weft_cuda_t *cuda, const weft_call_t *call, weft_stream_h stream,
                             uint64_t mark)
{
    weft_call_t c = *call;
    weft_cuda_call_t k = {0};
    weft_cuda_staging_t staging = {0};
    weft_cuda_pinned_t pinned = {0};
    bool capturing = false;
    uint64_t block = c.count * weft_dtype_size(c.type);
    WEFT_TRY(weft__cuda_check_alignment(call));
    WEFT_TRY(weft__cuda_in_order(cuda, stream, &capturing));
    bool engine = weft__cuda_engine_takes_call(cuda, call);
    int by = engine ? BY_NCCL : weft__cuda_goes_direct(cuda, c.coll, block) ? BY_OTHERS : BY_US;
    weft_status_t status = find_buffers(cuda, &c, &k, by, stream, &staging, &pinned);
    k.mark = staging.loan ? 0
                          : mark; /* with a loan, the result is only there after the copy back */
    if (status == WEFT_OK) {
        status = engine ? run_engine(cuda, &c, stream, capturing, k.mark)
                        : weft__cuda_queue(cuda, &c, &k, NULL, stream, capturing);
    }
    status = weft__cuda_staging_end(cuda, &c, &staging, 1, stream, capturing, mark, status);
    return weft__cuda_pin_out(cuda, &pinned, stream, capturing, mark, status);
}

/* One call, or as many all-reduces of a group as one kernel has room for at a time; `mark` is the
 * last one's. */
static weft_status_t run_all(weft_cuda_t *cuda, const weft_call_t *calls, int n,
                             weft_stream_h stream, uint64_t mark)
{
    weft_status_t status = WEFT_OK;
    for (int i = 0, some; i < n && status == WEFT_OK; i += some) {
        int left = n - i;
        some = left > 1 ? weft__cuda_batch_size(cuda, calls + i, left) : 1;
        uint64_t its = some == left ? mark : 0;
        status = some > 1 ? weft__cuda_batch(cuda, calls + i, some, stream, its)
                          : run_one(cuda, calls + i, stream, its);
    }
    return status;
}

weft_status_t weft__cuda_launch(void *ctx, const weft_call_t *calls, int n, weft_stream_h stream)
{
    weft_cuda_t *cuda = ctx;
    if (weft__host_is_broken(cuda->host)) {
        return weft__host_refuse(cuda->host);
    }
    WEFT_TRY(stream || cuda->own ? WEFT_OK : weft__stream_create_on(cuda->device, &cuda->own));
    WEFT_TRY(stream ? weft__cuda_remember(stream, weft__cuda_ask, cuda) : WEFT_OK);
    weft_stream_h on = stream ? stream : cuda->own;
    uint64_t mark = stream ? 0 : ++cuda->marks;
    weft_status_t status = weft__is_message(calls->coll)
                               ? weft__cuda_exchange(cuda, calls, n, on, mark)
                               : run_all(cuda, calls, n, on, mark);
    if (status == WEFT_ERR_SYSTEM) {
        return weft__cuda_failed(cuda, 0, NULL);
    }
    if (status != WEFT_OK || stream) {
        return status;
    }
    WEFT_TRY(weft__cuda_await(cuda, mark));
    cuda->behind = false; /* all calls so far are done */
    cuda->queued = 0;
    return WEFT_OK;
}
