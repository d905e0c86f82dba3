/* Errors of ranks on GPUs: what kernels and CUDA report, for the watch and for callers. */
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/cuda/cuda.h"
#include "comm/host/wait.h"

void weft__cuda_break(weft_cuda_t *cuda, weft_status_t status, int culprit, const char *format, ...)
{
    char text[WEFT_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    weft__segment_break(cuda->host->segment, status, culprit, text);
}

void weft__cuda_break_with(weft_cuda_t *cuda, const weft_fault_t *fault)
{
    weft__segment_break(cuda->host->segment, fault->status, fault->culprit, fault->text);
}

weft_seen_t weft__cuda_see(const weft_cuda_t *cuda, int rank)
{
    const weft_cuda_card_t *card = cuda->cards[rank];
    weft_seen_t seen = {.pid = cuda->host->peers[rank].pid};
    /* Partner: the store in note_issued. */
    seen.calls = atomic_load_explicit(&card->issued, memory_order_acquire);
    seen.sig = atomic_load_explicit(&card->sig, memory_order_relaxed);
    seen.count = atomic_load_explicit(&card->count, memory_order_relaxed);
    return seen;
}

weft_waiting_t weft__cuda_waiting(const weft_cuda_t *cuda, int peer)
{
    const weft_seen_t mine = weft__cuda_see(cuda, cuda->rank);
    return (weft_waiting_t){.rank = cuda->rank,
                            .size = cuda->size,
                            .peer = peer,
                            .timeout_ms = cuda->comm->timeout_ms,
                            .first = mine.calls,
                            .last = mine.calls,
                            .sig = mine.sig,
                            .count = mine.count};
}

/* A kernel gave up. Numbers of calls are of 32 bits there, and counts of an alltoallv are bytes. */
static void blame(weft_cuda_t *cuda, const weft_cuda_report_t *report)
{
    weft_seen_t seen[WEFT_CUDA_RANKS],
        theirs = {.sig = report->peer_sig, .count = report->peer_count};
    weft_waiting_t waiting = weft__cuda_waiting(cuda, (int)report->peer);
    weft_fault_t fault;
    waiting.first = waiting.last = report->call;
    waiting.sig = report->sig;
    waiting.count = report->count;
    for (int p = 0; p < cuda->size; p++) {
        int32_t ahead = (int32_t)(report->arrived[p] - (uint32_t)report->call);
        seen[p] = (weft_seen_t){
            .calls = report->arrived[p] ? report->call + (uint64_t)(int64_t)ahead : 0,
            .sig = report->last_sig[p],
            .count = report->last_count[p]};
    }
    if (report->kind != WEFT_CUDA_MISMATCH) {
        weft__watch_late(&waiting, seen, "", &fault);
    } else {
        if ((report->sig & 0xff) == WEFT_COLL_ALLTOALLV && report->sig == report->peer_sig) {
            size_t element = weft_dtype_size((weft_dtype_t)(report->sig >> 8 & 0xff));
            waiting.count /= element;
            theirs.count /= element;
        }
        weft__watch_differs(&waiting, &theirs, &fault);
    }
    weft__cuda_break_with(cuda, &fault);
}

/* Turn a report into the communicator's error, once. */
static void read_report(weft_cuda_t *cuda)
{
    /* Partner: the fence in send_report, after which `ready` is set. */
    if (__atomic_load_n(&cuda->report->ready, __ATOMIC_ACQUIRE) == 0) {
        return;
    }
    pthread_mutex_lock(&cuda->lock); /* whoever comes second finds the communicator broken */
    if (!cuda->told) {
        blame(cuda, cuda->report);
    }
    cuda->told = true;
    pthread_mutex_unlock(&cuda->lock);
}

bool weft__cuda_stopped(const weft_cuda_t *cuda)
{
    /* Partners: weft__cuda_broken; the fence in send_report, after which `ready` is set. */
    return __atomic_load_n(cuda->stop, __ATOMIC_RELAXED) != 0 ||
           __atomic_load_n(&cuda->report->ready, __ATOMIC_ACQUIRE) != 0;
}

bool weft__cuda_broken(weft_cuda_t *cuda)
{
    read_report(cuda);
    if (!weft__host_is_broken(cuda->host)) {
        return false;
    }
    /* Our kernels wait in vain. Partners: stop_now in the kernels, weft__cuda_stopped. */
    __atomic_store_n(cuda->stop, 1, __ATOMIC_RELAXED);
    if (cuda->nccl) {
        weft__nccl_abort(cuda->nccl); /* so do NCCL's */
    }
    return true;
}

weft_status_t weft__cuda_check(weft_cuda_t *cuda)
{
    return weft__cuda_broken(cuda) ? weft__host_broken(cuda->host) : WEFT_OK;
}

bool weft__cuda_blamed(weft_cuda_t *cuda)
{
    uint64_t start = weft__now_ns();
    /* Partner: the load in look_at_rank. */
    atomic_store_explicit(&cuda->failed, true, memory_order_relaxed);
    while (!weft__cuda_broken(cuda) && weft__now_ns() - start < WEFT_CUDA_BLAME_NS) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return weft__cuda_broken(cuda);
}

weft_status_t weft__cuda_failed(weft_cuda_t *cuda, int error, const char *what)
{
    if (!weft__cuda_blamed(cuda)) {
        if (error != 0) {
            weft__cuda_status(error, what);
        }
        weft__cuda_break(cuda, WEFT_ERR_SYSTEM, cuda->rank, "rank %d: %s", cuda->rank,
                         weft_last_error());
    }
    return weft__cuda_check(cuda);
}

weft_status_t weft__cuda_ask(void *ctx, int error)
{
    weft_cuda_t *cuda = ctx;
    if (error != 0) {
        return weft__cuda_failed(cuda, error, "waiting for a stream");
    }
    return weft__cuda_broken(cuda) ? weft__cuda_check(cuda) : weft__cuda_engine_check(cuda);
}

/* A rank of this process that has launched fewer calls than this one; -1: there is none. */
static int laggard(const weft_cuda_t *cuda, uint64_t launched)
{
    for (int p = 0; p < cuda->size; p++) {
        if (p != cuda->rank && cuda->host->peers[p].near &&
            atomic_load_explicit(&cuda->cards[p]->launched, memory_order_acquire) < launched) {
            return p;
        }
    }
    return -1;
}

static void break_laggard(weft_cuda_t *cuda, int peer)
{
    const weft_waiting_t waiting = weft__cuda_waiting(cuda, peer);
    weft_seen_t seen[WEFT_CUDA_RANKS];
    weft_fault_t fault;
    for (int p = 0; p < cuda->size; p++) {
        seen[p] = weft__cuda_see(cuda, p);
    }
    weft__watch_late(&waiting, seen, "", &fault);
    weft__cuda_break_with(cuda, &fault);
}

weft_status_t weft__cuda_keep_up(weft_cuda_t *cuda)
{
    uint64_t launched = atomic_load_explicit(&cuda->cards[cuda->rank]->launched,
                                             memory_order_relaxed);
    int late = laggard(cuda, launched);
    uint64_t start = late < 0 ? 0 : weft__now_ns();
    uint64_t limit = (uint64_t)cuda->comm->timeout_ms * 1000000u;
    for (unsigned i = 0; late >= 0; late = laggard(cuda, launched)) {
        weft__pause();
        if (++i % 64 != 0) {
            continue;
        }
        sched_yield();
        if (weft__cuda_broken(cuda)) {
            return weft__cuda_check(cuda);
        }
        if (limit != 0 && weft__now_ns() - start > limit) {
            break_laggard(cuda, late);
        }
    }
    return WEFT_OK;
}

#define SPIN_NS 200000u       /* then give the core away between looks */
#define LOOK_NS 20000000u     /* between questions to the driver */

weft_status_t weft__cuda_await_idle(weft_cuda_t *cuda)
{
    weft_cuda_past_t own = weft__cuda_past(cuda->own);
    while (!weft__cuda_idle(&own)) {
        if (weft__cuda_broken(cuda)) {
            return weft__cuda_check(cuda);
        }
        sched_yield();
    }
    cuda->report->finished = cuda->marks; /* no kernel runs that might write it */
    return weft__cuda_engine_check(cuda);
}

weft_status_t weft__cuda_await(weft_cuda_t *cuda, uint64_t mark)
{
    const uint64_t *finished = &cuda->report->finished;
    uint64_t start = weft__now_ns(), looked = start;
    /* Partner: the fence in finish(), after which `finished` is set. */
    while (__atomic_load_n(finished, __ATOMIC_ACQUIRE) < mark) {
        uint64_t now = weft__now_ns();
        if (now - start > SPIN_NS) {
            sched_yield();
        } else {
            weft__pause();
        }
        if (now - looked > LOOK_NS) {
            bool idle = false;
            looked = now;
            int error = weft__cuda()->stream_idle(cuda->gpu, weft__cuda_stream(cuda->own), &idle);
            if (error != 0) {
                return weft__cuda_failed(cuda, error, "a kernel of a collective");
            }
            if (idle) {
                break;
            }
        }
    }
    return weft__cuda_stopped(cuda) ? weft__cuda_check(cuda) : WEFT_OK;
}
