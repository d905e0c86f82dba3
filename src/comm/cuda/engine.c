/* NCCL for large calls, where every rank has a GPU of its own. It comes beside our own kernels: the
 * first rank to get here makes NCCL's id, all of them enter, and only if all of them came in is it
 * used. If NCCL is missing or refuses, our kernels carry all sizes, and a warning says so once. */
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"
#include "comm/cuda/cuda.h"

_Static_assert(WEFT_CUDA_RANKS <= WEFT_JUDGED_RANKS, "the judge has room for all");

enum { NO_ID, ID_CLAIMED, ID_READY, ID_NONE };
enum { UNKNOWN, CAME_IN, STAYED_OUT };

/* The id that one of the ranks makes; false if there is none to be had. */
static bool agree_on_id(weft_cuda_t *cuda, weft_nccl_id_t *id_p)
{
    weft_cuda_peer_info_t *first = cuda->infos[0];
    uint32_t state = NO_ID;
    /* Of all ranks one wins; released as READY or NONE by it, acquired by the others below. */
    if (atomic_compare_exchange_strong(&first->id_state, &state, ID_CLAIMED)) {
        bool made = weft__nccl_id_create(&first->id) == WEFT_OK;
        atomic_store_explicit(&first->id_state, made ? ID_READY : ID_NONE, memory_order_release);
    }
    uint64_t end = weft__now_ns() + 10000000000u;
    while ((state = atomic_load_explicit(&first->id_state, memory_order_acquire)) == ID_CLAIMED &&
           weft__now_ns() < end) {
        sched_yield();
    }
    *id_p = first->id;
    return state == ID_READY;
}

static void stay_out(weft_cuda_t *cuda, const char *why)
{
    if (cuda->rank == 0) {
        weft__warn("NCCL is not used: %s; Weft's own kernels carry calls of all sizes", why);
    }
    atomic_store_explicit(&cuda->infos[cuda->rank]->came_in, STAYED_OUT, memory_order_release);
}

void weft__cuda_engine_enter(weft_cuda_t *cuda)
{
    weft_nccl_id_t id;
    const char *why = NULL;
    weft_nccl_binding_t binding = {cuda->device, cuda->gpu, weft__cuda()};
    bool wanted = strcmp(weft__settings()->engine, "weft") != 0 && cuda->size > 1;
    if (!wanted || weft__cuda_shares_gpu(cuda)) {
        atomic_store_explicit(&cuda->infos[cuda->rank]->came_in, STAYED_OUT, memory_order_release);
    } else if (!weft__nccl(&why)) {
        stay_out(cuda, why);
    } else if (!agree_on_id(cuda, &id) ||
               weft__nccl_enter(&id, cuda->rank, cuda->size, &binding, &cuda->nccl) != WEFT_OK) {
        stay_out(cuda, weft_last_error());
    }
}

void weft__cuda_engine_settle(weft_cuda_t *cuda)
{
    if (!cuda->nccl) {
        return;
    }
    int limit = cuda->comm->timeout_ms > 0 ? cuda->comm->timeout_ms : 300000;
    weft_status_t status = weft__nccl_meet(cuda->nccl, limit);
    if (status != WEFT_OK) {
        stay_out(cuda,
                 status == WEFT_PENDING ? "its ranks did not meet in time" : weft_last_error());
        return;
    }
    /* Partner: the loads in all_came_in. */
    atomic_store_explicit(&cuda->infos[cuda->rank]->came_in, CAME_IN, memory_order_release);
}

/* Known once all ranks have settled; the last of them may still be at it when the first call
 * comes. */
static bool all_came_in(weft_cuda_t *cuda)
{
    for (int p = 0; p < cuda->size; p++) {
        uint32_t state;
        while ((state = atomic_load_explicit(&cuda->infos[p]->came_in, memory_order_acquire)) ==
               UNKNOWN) {
            if (weft__cuda_broken(cuda)) {
                return false;
            }
            sched_yield();
        }
        if (state != CAME_IN) {
            return false;
        }
    }
    return true;
}

bool weft__cuda_engine_takes(weft_cuda_t *cuda, weft_coll_t coll, uint64_t bytes)
{
    if (!cuda->nccl || coll == WEFT_COLL_BARRIER || bytes < cuda->tune.nccl_min[coll]) {
        return false;
    }
    int known = atomic_load_explicit(&cuda->engine_known, memory_order_relaxed);
    if (known == 0) {
        known = all_came_in(cuda) ? 1 : -1;
        atomic_store_explicit(&cuda->engine_known, known, memory_order_relaxed);
    }
    return known > 0;
}

bool weft__cuda_engine_takes_call(weft_cuda_t *cuda, const weft_call_t *call)
{
    bool float8 = call->type == WEFT_F8E4M3 || call->type == WEFT_F8E5M2;
    return weft__cuda_engine_takes(cuda, call->coll, weft__call_bytes(call)) &&
           !(float8 && weft__coll_info[call->coll].reduces);
}

/* Events before and after a call, so that the watch knows whether it is that call which does not
 * end. */
static int mark(weft_cuda_t *cuda, void **event_p, weft_stream_h stream)
{
    int error = *event_p ? 0 : weft__cuda()->event_create(cuda->gpu, event_p);
    return error ? error
                 : weft__cuda()->event_record(cuda->gpu, *event_p, weft__cuda_stream(stream));
}

static int announce(weft_cuda_t *cuda, weft_stream_h stream)
{
    const weft_cuda_peer_info_t *mine = cuda->infos[cuda->rank];
    int error = mark(cuda, &cuda->engine_start, stream);
    atomic_store_explicit(&cuda->engine_sig, atomic_load_explicit(&mine->sig, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&cuda->engine_count,
                          atomic_load_explicit(&mine->count, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&cuda->engine_inside, true, memory_order_relaxed);
    /* Partner: the load in weft__cuda_engine_look. */
    atomic_store_explicit(&cuda->engine_call, cuda->issued, memory_order_release);
    return error;
}

weft_status_t weft__cuda_engine_launch(weft_cuda_t *cuda, const weft_call_t *call,
                                       weft_stream_h stream, bool capturing)
{
    int error = capturing ? 0 : announce(cuda, stream);
    weft_status_t status = error
                               ? weft__cuda_status(error, "an event before a call of NCCL's")
                               : weft__nccl_launch(cuda->nccl, call, 1, weft__cuda_stream(stream));
    if (status == WEFT_OK && !capturing) {
        error = mark(cuda, &cuda->engine_end, stream);
        status = weft__cuda_status(error, "an event after a call of NCCL's");
    }
    /* Partner: the load in is_waiting, which then finds the second event there. */
    atomic_store_explicit(&cuda->engine_inside, false, memory_order_release);
    if (status != WEFT_OK) {
        weft__cuda_break(cuda, status, cuda->rank, "rank %d: %s", cuda->rank, weft_last_error());
        status = weft__cuda_check(cuda);
    }
    return status;
}

void weft__cuda_engine_close(weft_cuda_t *cuda)
{
    void *events[] = {cuda->engine_start, cuda->engine_end};
    weft__nccl_close(cuda->nccl);
    for (int i = 0; i < 2; i++) {
        if (events[i]) {
            weft__cuda()->event_destroy(cuda->gpu, events[i]);
        }
    }
}

/* ---- for the watch ------------------------------------------------------------------------ */

/* What all have called, and what this rank waits in: its latest call of NCCL's. Messages since may
 * have changed our own peer info. */
static weft_waiting_t look_around(const weft_cuda_t *cuda, uint64_t call, weft_seen_t *seen)
{
    weft_waiting_t waiting = weft__cuda_waiting(cuda, -1);
    waiting.first = waiting.last = call;
    waiting.sig = atomic_load_explicit(&cuda->engine_sig, memory_order_relaxed);
    waiting.count = atomic_load_explicit(&cuda->engine_count, memory_order_relaxed);
    weft__cuda_see_all(cuda, seen);
    seen[cuda->rank].sig = waiting.sig;
    seen[cuda->rank].count = waiting.count;
    return waiting;
}

/* Does the stream stand in NCCL's latest call, or the caller in NCCL? */
static bool is_waiting(const weft_cuda_t *cuda)
{
    bool begun = false, ended = false;
    /* Partner: the store at the end of weft__cuda_engine_launch. */
    bool inside = atomic_load_explicit(&cuda->engine_inside, memory_order_acquire);
    int error = weft__cuda()->event_done(cuda->gpu, cuda->engine_start, &begun);
    if (!error && !inside) {
        error = weft__cuda()->event_done(cuda->gpu, cuda->engine_end, &ended);
    }
    return !error && begun && !ended; /* an error of the driver's: the caller will get it */
}

/* Has it failed? Since when is kept. */
static bool has_failed(weft_cuda_t *cuda, uint64_t now, weft_status_t *status_p,
                       const char **text_p)
{
    *status_p = weft__nccl_error(cuda->nccl, text_p);
    if (*status_p != WEFT_OK && cuda->engine_failed_ns == 0) {
        cuda->engine_failed_ns = now;
        atomic_store_explicit(&cuda->failed, true, memory_order_relaxed);
    }
    return *status_p != WEFT_OK;
}

/* A rank that died, or calls something else, is the likelier reason for an error of NCCL's: the
 * watch looks for the former first, as weft__cuda_failed does, and the latter is known sooner than
 * that. */
void weft__cuda_engine_look(weft_cuda_t *cuda, uint64_t now)
{
    weft_seen_t seen[WEFT_CUDA_RANKS];
    weft_status_t status;
    const char *text;
    /* Partner: the store in announce. */
    uint64_t call = atomic_load_explicit(&cuda->engine_call, memory_order_acquire);
    if (call == 0) {
        return;
    }
    bool failed = has_failed(cuda, now, &status, &text);
    if (!failed && !is_waiting(cuda)) {
        cuda->arrivals = (weft_arrivals_t){0};
        return;
    }
    weft_waiting_t waiting = look_around(cuda, call, seen);
    waiting.arrivals = &cuda->arrivals;
    waiting.now_ns = now;
    waiting.compare = true;
    waiting.failed = failed;
    if (weft__cuda_judge(cuda, &waiting, seen, cuda->size)) {
        return;
    }
    if (failed && now - cuda->engine_failed_ns > WEFT_CUDA_BLAME_NS) {
        weft__cuda_break(cuda, status, cuda->rank, "rank %d: %s", cuda->rank, text);
    }
}

weft_status_t weft__cuda_engine_check(weft_cuda_t *cuda)
{
    const char *text;
    /* Partner: the store in weft__cuda_engine_takes. NCCL that not all could join is of no
     * interest. */
    bool used = atomic_load_explicit(&cuda->engine_known, memory_order_relaxed) > 0;
    weft_status_t status = used ? weft__nccl_error(cuda->nccl, &text) : WEFT_OK;
    if (status == WEFT_OK) {
        return WEFT_OK;
    }
    if (!weft__cuda_blamed(cuda)) {
        weft__cuda_break(cuda, status, cuda->rank, "rank %d: %s", cuda->rank, text);
    }
    return weft__cuda_check(cuda);
}
