/* A kernel gave up: name who is to blame, in the words of the shm backend. */
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/cuda/cuda.h"
#include "comm/shm/wait.h"

void weft__cuda_break(weft_cuda_t *cuda, weft_status_t status, int culprit, const char *format, ...)
{
    char text[WEFT_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    weft__segment_break(cuda->shm->segment, status, culprit, text);
}

static void break_mismatch(weft_cuda_t *cuda, const weft_cuda_report_t *report)
{
    char ours[160], theirs[160];
    int peer = (int)report->peer;
    weft__sig_describe(report->sig, report->count, ours, sizeof(ours));
    weft__sig_describe(report->peer_sig, report->peer_count, theirs, sizeof(theirs));
    weft_coll_t coll = (weft_coll_t)(report->sig & 0xff);
    if (report->call == 0) { /* messages have no numbers */
        weft__cuda_break(cuda, WEFT_ERR_MISMATCH, peer,
                               "ranks disagree: rank %d sends %llu %s to rank %d, which receives "
                               "%llu %s",
                               peer, (unsigned long long)report->peer_count,
                               weft_dtype_name((weft_dtype_t)(report->peer_sig >> 8 & 0xff)),
                               cuda->rank, (unsigned long long)report->count,
                               weft_dtype_name((weft_dtype_t)(report->sig >> 8 & 0xff)));
        return;
    }
    if (coll == WEFT_COLL_ALLTOALLV && report->sig == report->peer_sig) {
        weft__cuda_break(cuda, WEFT_ERR_MISMATCH, peer,
                               "ranks disagree in call %llu, alltoallv: rank %d sends %llu bytes to "
                               "rank %d, which expects %llu",
                               (unsigned long long)report->call, peer,
                               (unsigned long long)report->peer_count, cuda->rank,
                               (unsigned long long)report->count);
        return;
    }
    if (report->count == report->peer_count &&
        ((report->sig ^ report->peer_sig) & ~(0xffull << 24)) == 0) {
        weft__cuda_break(cuda, WEFT_ERR_MISMATCH, peer,
                               "ranks chose different algorithms for call %llu, %s: rank %d %s, "
                               "rank %d %s; give all ranks the same WEFT_* settings",
                               (unsigned long long)report->call, ours, cuda->rank,
                               weft__algo_name((weft_algo_t)(report->sig >> 24 & 0xff)), peer,
                               weft__algo_name((weft_algo_t)(report->peer_sig >> 24 & 0xff)));
        return;
    }
    weft__cuda_break(cuda, WEFT_ERR_MISMATCH, peer,
                     "ranks made different calls: call %llu is %s on rank %d, but %s on rank "
                     "%d%s; all ranks must make the same calls in the same order",
                     (unsigned long long)report->call, ours, cuda->rank, theirs, peer,
                     weft__sig_besides(ours, theirs));
}

/* "rank 2 (last seen in call 17, ...), rank 3 (made no call yet)", or "0 1" for those who came. */
static void list_ranks(const weft_cuda_t *cuda, const weft_cuda_report_t *report, bool came,
                       char *text, size_t room)
{
    size_t used = 0;
    text[0] = '\0';
    for (int p = 0; p < cuda->size && used < room; p++) {
        bool here = p == cuda->rank || (int32_t)(report->arrived[p] - (uint32_t)report->call) >= 0;
        char call[160];
        int n;
        if (here != came) {
            continue;
        }
        if (came) {
            n = snprintf(text + used, room - used, "%s%d", used ? " " : "", p);
        } else if (report->arrived[p] == 0) {
            n = snprintf(text + used, room - used, "%srank %d (made no call yet)", used ? ", " : "",
                         p);
        } else {
            weft__sig_describe(report->last_sig[p], report->last_count[p], call, sizeof(call));
            n = snprintf(text + used, room - used, "%srank %d (last seen in call %u, %s)",
                         used ? ", " : "", p, report->arrived[p], call);
        }
        used += n > 0 ? (size_t)n : 0;
    }
}

static void break_late(weft_cuda_t *cuda, const weft_cuda_report_t *report)
{
    char call[160], missing[400], there[200];
    double seconds = cuda->comm->timeout_ms / 1000.0;
    int peer = (int)report->peer;
    weft__sig_describe(report->sig, report->count, call, sizeof(call));
    if (report->call == 0) {
        weft__cuda_break(cuda, WEFT_ERR_TIMEOUT, peer,
                               "timed out after %.1f s on rank %d in %s: rank %d has not made the "
                               "matching call",
                               seconds, cuda->rank, call, peer);
        return;
    }
    list_ranks(cuda, report, false, missing, sizeof(missing));
    list_ranks(cuda, report, true, there, sizeof(there));
    if (missing[0] == '\0') {
        weft__cuda_break(cuda, WEFT_ERR_TIMEOUT, peer,
                               "timed out after %.1f s in call %llu, %s: all ranks arrived, but "
                               "rank %d does not go on",
                               seconds, (unsigned long long)report->call, call, peer);
        return;
    }
    weft__cuda_break(cuda, WEFT_ERR_TIMEOUT, peer,
                           "timed out after %.1f s in call %llu, %s: not arrived: %s; arrived: %s",
                           seconds, (unsigned long long)report->call, call, missing, there);
}

void weft__cuda_blame(weft_cuda_t *cuda, const weft_cuda_report_t *report)
{
    if (report->kind == WEFT_CUDA_MISMATCH) {
        break_mismatch(cuda, report);
    } else {
        break_late(cuda, report);
    }
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
        weft__cuda_blame(cuda, cuda->report);
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
    if (atomic_load_explicit(&cuda->shm->segment->head->broken, memory_order_acquire) == 0) {
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
    return weft__cuda_broken(cuda) ? weft__shm_broken(cuda->shm) : WEFT_OK;
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
        if (p != cuda->rank && cuda->shm->peers[p].near &&
            atomic_load_explicit(&cuda->cards[p]->launched, memory_order_acquire) < launched) {
            return p;
        }
    }
    return -1;
}

static void break_laggard(weft_cuda_t *cuda, int peer)
{
    const weft_cuda_card_t *mine = cuda->cards[cuda->rank], *theirs = cuda->cards[peer];
    char ours[160], last[160];
    uint64_t seen = atomic_load_explicit(&theirs->issued, memory_order_acquire);
    weft__sig_describe(atomic_load_explicit(&mine->sig, memory_order_relaxed),
                       atomic_load_explicit(&mine->count, memory_order_relaxed), ours,
                       sizeof(ours));
    weft__sig_describe(atomic_load_explicit(&theirs->sig, memory_order_relaxed),
                       atomic_load_explicit(&theirs->count, memory_order_relaxed), last,
                       sizeof(last));
    weft__cuda_break(cuda, WEFT_ERR_TIMEOUT, peer,
                     "timed out after %.1f s in call %llu, %s: not arrived: rank %d (%s%s)",
                     cuda->comm->timeout_ms / 1000.0, (unsigned long long)cuda->issued, ours, peer,
                     seen ? "last seen in an earlier call, " : "made no call yet",
                     seen ? last : "");
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
