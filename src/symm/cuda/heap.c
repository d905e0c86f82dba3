/* Calls on symmetric heaps of GPUs: copies by the driver, everything else by kernels that the
 * communicator's watch can end. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/watch.h"
#include "device/device.h"
#include "symm/cuda/cuda.h"

/* ---- errors ----------------------------------------------------------------------------- */

/* A kernel waited in vain: make that everybody's error. Called by the watch, and before errors are
 * told. */
static void look(void *arg)
{
    static const char *const signs[] = {"==", "!=", ">", ">=", "<", "<="};
    weft_symm_h symm = arg;
    weft_symm_gpu_t *gpu = symm->kind;
    const weft_symm_report_t *report = gpu->report;
    /* Partner: the fence in weft__symm_give_up, after which `ready` is set. */
    if (__atomic_load_n(&report->ready, __ATOMIC_ACQUIRE) == 0 ||
        atomic_exchange_explicit(&gpu->told, true, memory_order_relaxed)) {
        return;
    }
    char doing[200];
    weft_fault_t fault;
    snprintf(doing, sizeof(doing),
             "waiting in a kernel for a signal (the word at offset %" PRIu64
             " of its heap %s %" PRIu64 ", it is %" PRIu64 ")",
             report->offset, signs[report->cmp % 6], report->wanted, report->found);
    const weft_waiting_t waiting = {.rank = symm->rank,
                                    .peer = symm->rank,
                                    .timeout_ms = symm->comm->timeout_ms,
                                    .waited_ns = UINT64_MAX, /* so the kernel says */
                                    .doing = doing};
    weft__watch(&waiting, NULL, 0, &fault);
    weft__reach_fail(symm->comm, fault.status, symm->rank, "%s", fault.text);
}

static weft_status_t gpu_error(weft_symm_h symm)
{
    look(symm);
    return weft__reach_broken(symm->comm);
}

/* Kernels of the user's own are not followed. If CUDA has failed under one, a rank may have
 * died. */
static weft_status_t gpu_asked_error(weft_symm_h symm)
{
    bool idle;
    int error = weft__cuda()->stream_idle(weft__symm_on(symm), weft__cuda_stream(NULL), &idle);
    return error == 0 ? gpu_error(symm)
                      : weft__reach_failed(symm->comm, error, "a kernel of this process");
}

static weft_status_t check_stream_work(void *ctx, int error)
{
    weft_symm_h symm = ctx;
    return error == 0 ? gpu_error(symm)
                      : weft__reach_failed(symm->comm, error, "waiting for a stream");
}

/* ---- opening ---------------------------------------------------------------------------- */

static weft_status_t gpu_open(weft_symm_h symm)
{
    const weft_reach_gpu_t on = weft__reach_gpu(symm->comm);
    weft_symm_gpu_t *gpu = calloc(1, sizeof(*gpu));
    void *pinned = NULL;
    weft_status_t status = gpu ? weft_host_malloc(&pinned, sizeof(weft_symm_report_t) + 64)
                               : weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a symmetric heap");
    if (status == WEFT_OK) {
        memset(pinned, 0, sizeof(weft_symm_report_t) + 64);
        status = weft__cuda_status(weft__symm_kernels()->load(on.gpu),
                                   "kernels of symmetric heaps cannot be loaded");
    }
    if (status != WEFT_OK) {
        weft_host_free(pinned);
        free(gpu);
        return status;
    }
    gpu->report = pinned;
    gpu->word = (uint64_t *)((char *)pinned + sizeof(weft_symm_report_t));
    pthread_mutex_init(&gpu->lock, NULL);
    gpu->view = (weft_symm_view_t){.rank = symm->rank,
                                   .size = symm->size,
                                   .wide = on.wide,
                                   .bytes = symm->bytes,
                                   .timeout_ns = on.timeout_ns,
                                   .stop = on.stop,
                                   .report = gpu->report};
    for (int p = 0; p < symm->size; p++) {
        gpu->view.base[p] = symm->at[p];
    }
    gpu->on = on;
    gpu->observer = (weft_reach_observer_t){.look = look, .arg = symm};
    symm->kind = gpu;
    weft__reach_enter(symm->comm, &gpu->observer);
    return WEFT_OK;
}

static void gpu_close(weft_symm_h symm)
{
    weft_symm_gpu_t *gpu = symm->kind;
    weft__reach_leave(symm->comm, &gpu->observer);
    weft__cuda_forget(symm);
    weft_host_free(gpu->report);
    pthread_mutex_destroy(&gpu->lock);
    free(gpu);
    symm->kind = NULL;
}

static weft_status_t gpu_view(weft_symm_h symm, weft_symm_view_t *view)
{
    *view = ((weft_symm_gpu_t *)symm->kind)->view;
    return WEFT_OK;
}

/* ---- calls ------------------------------------------------------------------------------ */

weft_status_t weft__symm_stream(weft_symm_h symm, weft_stream_h stream, bool waits, void **native_p)
{
    if (stream && !weft__stream_exists(stream)) {
        return weft__fail(WEFT_ERR_INVALID, "a call on a symmetric heap: " WEFT_STREAM_GONE);
    }
    *native_p = weft__cuda_stream(stream);
    return stream && waits ? weft__cuda_remember(stream, check_stream_work, symm) : WEFT_OK;
}

weft_status_t weft__symm_launched(weft_symm_h symm, int error, bool waits, weft_stream_h stream)
{
    if (error != 0) {
        return weft__cuda_status(error, "a call on a symmetric heap");
    }
    if (stream) {
        return WEFT_OK;
    }
    error = weft__cuda()->stream_sync(weft__symm_on(symm), weft__cuda_stream(NULL));
    if (error !=
        0) { /* also what was queued before may have failed, as memory of the dead is gone */
        return weft__reach_failed(symm->comm, error, "a call on a symmetric heap");
    }
    return waits ? gpu_error(symm) : WEFT_OK;
}

bool weft__symm_reachable(const void *ptr)
{
    int where = -2;
    return weft__cuda()->where(ptr, &where) == 0 && where != -2;
}

static int launch_signal(weft_symm_gpu_t *gpu, int on, const weft_symm_call_t *call, void *native)
{
    if (call->bytes == 0 || weft__symm_reachable(call->src)) {
        return weft__symm_kernels()->call(on, &gpu->view, call, native);
    }
    weft_symm_call_t alone = *call;
    alone.bytes = 0;
    int error = weft__cuda()->copy(on, call->dst, call->src, call->bytes, native);
    return error ? error : weft__symm_kernels()->call(on, &gpu->view, &alone, native);
}

/* In the calling thread the old value may go anywhere, so it goes through a word of ours. */
static weft_status_t atomic_now(weft_symm_gpu_t *gpu, int on, const weft_symm_call_t *call)
{
    weft_symm_call_t through = *call;
    through.old_p = gpu->word;
    pthread_mutex_lock(&gpu->lock);
    int error = weft__symm_kernels()->call(on, &gpu->view, &through, weft__cuda_stream(NULL));
    weft_status_t status = weft__symm_launched(call->symm, error, false, NULL);
    uint64_t old = *gpu->word;
    pthread_mutex_unlock(&gpu->lock);
    if (status == WEFT_OK && call->old_p) {
        *call->old_p = old;
    }
    return status;
}

static weft_status_t gpu_call(const weft_symm_call_t *call, weft_stream_h stream)
{
    weft_symm_gpu_t *gpu = call->symm->kind;
    int on = weft__symm_on(call->symm), error = 0;
    void *native = NULL;
    weft_status_t status = weft__symm_stream(call->symm, stream, call->kind == WEFT_SYMM_WAIT,
                                             &native);
    if (status != WEFT_OK || call->kind == WEFT_SYMM_FENCE) {
        return status; /* work on a stream is complete before what comes after it begins */
    }
    if (call->kind == WEFT_SYMM_ATOMIC && !stream) {
        return atomic_now(gpu, on, call);
    }
    if (call->kind == WEFT_SYMM_COPY) {
        error = weft__cuda()->copy(on, call->dst, call->src, call->bytes, native);
    } else if (call->kind == WEFT_SYMM_SIGNAL) {
        error = launch_signal(gpu, on, call, native);
    } else {
        error = weft__symm_kernels()->call(on, &gpu->view, call, native);
    }
    return weft__symm_launched(call->symm, error, call->kind == WEFT_SYMM_WAIT, stream);
}

const weft_symm_ops_t weft__symm_cuda = {.open = gpu_open,
                                         .close = gpu_close,
                                         .call = gpu_call,
                                         .view = gpu_view,
                                         .error = gpu_asked_error};
