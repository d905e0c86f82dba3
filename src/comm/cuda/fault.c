/* Errors of ranks on GPUs: what kernels and CUDA report, for the watch and for callers. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/cuda/cuda.h"
#include "comm/host/procs.h"
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

weft_seen_t weft__cuda_see(const weft_cuda_t *cuda, int rank)
{
    const weft_cuda_peer_info_t *info = cuda->infos[rank];
    const weft_peer_t *peer = &cuda->host->peers[rank];
    weft_seen_t seen = {.rank = rank, .state = weft__host_state(cuda->host, rank)};
    /* Once CUDA has failed here, the reason may be a process that is still being taken apart.
     * Partner: the store in weft__cuda_blamed. */
    if (seen.state == WEFT_SEEN_JOINED && !peer->near &&
        atomic_load_explicit(&cuda->failed, memory_order_relaxed) && weft__proc_dying(peer->pid)) {
        seen.state = WEFT_SEEN_ENDED;
    }
    seen.pid = seen.state == WEFT_SEEN_LEFT ? 0 : peer->pid;
    /* Partner: the store in note_issued. */
    seen.calls = atomic_load_explicit(&info->issued, memory_order_acquire);
    seen.sig = atomic_load_explicit(&info->sig, memory_order_relaxed);
    seen.count = atomic_load_explicit(&info->count, memory_order_relaxed);
    return seen;
}

int weft__cuda_see_all(const weft_cuda_t *cuda, weft_seen_t seen[WEFT_CUDA_RANKS])
{
    for (int p = 0; p < cuda->size; p++) {
        seen[p] = weft__cuda_see(cuda, p);
    }
    return cuda->size;
}

weft_waiting_t weft__cuda_waiting(const weft_cuda_t *cuda, int peer)
{
    const weft_cuda_peer_info_t *mine = cuda->infos[cuda->rank];
    uint64_t issued = atomic_load_explicit(&mine->issued, memory_order_acquire);
    return (weft_waiting_t){.rank = cuda->rank,
                            .peer = peer,
                            .timeout_ms = cuda->comm->timeout_ms,
                            .first = issued,
                            .last = issued,
                            .sig = atomic_load_explicit(&mine->sig, memory_order_relaxed),
                            .count = atomic_load_explicit(&mine->count, memory_order_relaxed)};
}

bool weft__cuda_judge(weft_cuda_t *cuda, const weft_waiting_t *waiting, const weft_seen_t *seen,
                      int n)
{
    weft_fault_t fault;
    bool found = weft__watch(waiting, seen, n, &fault);
    if (found) {
        weft__segment_break(cuda->host->segment, fault.status, fault.culprit, fault.text);
    }
    return found;
}

/* A kernel gave up: what it knows of the other ranks. Numbers of calls are of 32 bits there. */
static void blame_late(weft_cuda_t *cuda, weft_waiting_t *waiting, const weft_cuda_report_t *report)
{
    weft_seen_t seen[WEFT_CUDA_RANKS];
    for (int p = 0; p < cuda->size; p++) {
        int32_t ahead = (int32_t)(report->arrived[p] - (uint32_t)report->call);
        seen[p] = weft__cuda_see(cuda, p);
        seen[p].calls = report->arrived[p] ? report->call + (uint64_t)(int64_t)ahead : 0;
        seen[p].sig = report->last_sig[p];
        seen[p].count = report->last_count[p];
    }
    waiting->waited_ns = UINT64_MAX; /* so the kernel says */
    weft__cuda_judge(cuda, waiting, seen, cuda->size);
}

static void blame(weft_cuda_t *cuda, const weft_cuda_report_t *report)
{
    weft_waiting_t waiting = weft__cuda_waiting(cuda, (int)report->peer);
    weft_seen_t theirs = {.rank = (int)report->peer,
                          .state = WEFT_SEEN_JOINED,
                          .calls = report->call,
                          .sig = report->peer_sig,
                          .count = report->peer_count,
                          .differs = true};
    waiting.first = waiting.last = report->call;
    waiting.sig = report->sig;
    waiting.count = report->count;
    if (report->kind != WEFT_CUDA_MISMATCH) {
        blame_late(cuda, &waiting, report);
        return;
    }
    if ((report->sig & 0xff) == WEFT_COLL_ALLTOALLV && report->sig == report->peer_sig) {
        size_t element = weft_dtype_size((weft_dtype_t)(report->sig >> 8 & 0xff));
        waiting.count /= element; /* those are bytes */
        theirs.count /= element;
    }
    weft__cuda_judge(cuda, &waiting, &theirs, 1);
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
    /* Partner: the load in weft__cuda_see. */
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
            atomic_load_explicit(&cuda->infos[p]->launched, memory_order_acquire) < launched) {
            return p;
        }
    }
    return -1;
}

weft_status_t weft__cuda_keep_up(weft_cuda_t *cuda)
{
    uint64_t launched = atomic_load_explicit(&cuda->infos[cuda->rank]->launched,
                                             memory_order_relaxed);
    int late = laggard(cuda, launched);
    uint64_t start = late < 0 ? 0 : weft__now_ns();
    weft_idler_t idler = {0};
    for (unsigned i = 0; late >= 0; late = laggard(cuda, launched)) {
        weft__pause();
        if (++i % 64 != 0) {
            continue;
        }
        weft__wait_idle(&idler, false);
        if (weft__cuda_broken(cuda)) {
            return weft__cuda_check(cuda);
        }
        weft_waiting_t waiting = weft__cuda_waiting(cuda, late);
        weft_seen_t seen[WEFT_CUDA_RANKS];
        waiting.waited_ns = weft__now_ns() - start;
        if (waiting.timeout_ms > 0 && waiting.waited_ns / 1000000u > (uint64_t)waiting.timeout_ms) {
            weft__cuda_judge(cuda, &waiting, seen, weft__cuda_see_all(cuda, seen));
        }
    }
    return WEFT_OK;
}

#define SPIN_NS 200000u   /* then give the core away between looks */
#define LOOK_NS 20000000u /* between questions to the driver */

weft_status_t weft__cuda_await_idle(weft_cuda_t *cuda)
{
    weft_cuda_past_t own = weft__cuda_past(cuda->own);
    weft_idler_t idler = {0};
    while (!weft__cuda_idle(&own)) {
        if (weft__cuda_broken(cuda)) {
            return weft__cuda_check(cuda);
        }
        weft__wait_idle(&idler, false);
    }
    cuda->report->finished = cuda->marks; /* no kernel runs that might write it */
    return weft__cuda_engine_check(cuda);
}

weft_status_t weft__cuda_await(weft_cuda_t *cuda, uint64_t mark)
{
    const uint64_t *finished = &cuda->report->finished;
    uint64_t start = weft__now_ns(), looked = start;
    weft_idler_t idler = {0};
    /* Partner: the fence in finish(), after which `finished` is set. */
    while (__atomic_load_n(finished, __ATOMIC_ACQUIRE) < mark) {
        uint64_t now = weft__now_ns();
        if (now - start > SPIN_NS) {
            weft__wait_idle(&idler, false); /* a call of seconds needs no core for all of them */
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
