/* The engine's life: joining, breaking, aborting, splitting, leaving. */
#include "comm/nccl/engine.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/watch.h"
#include "device/device.h"

/* How long an abort lets a call inside NCCL come back by itself, and after it was told to. */
#define ABORT_GRACE_MS 100
#define ABORT_MOST_MS 10000

/* ---- results and sentences -------------------------------------------------------------- */

static weft_status_t status_of(weft_nccl_result_t result)
{
    switch (result) {
    case WEFT_NCCL_SUCCESS:
    case WEFT_NCCL_IN_PROGRESS:
        return WEFT_OK;
    case WEFT_NCCL_INVALID_ARGUMENT:
        return WEFT_ERR_INVALID;
    case WEFT_NCCL_INVALID_USAGE:
        return WEFT_ERR_UNSUPPORTED;
    case WEFT_NCCL_REMOTE_ERROR: /* a peer's connection ended, which is how NCCL sees a death */
        return WEFT_ERR_RANK_DEAD;
    case WEFT_NCCL_TIMEOUT:
        return WEFT_ERR_TIMEOUT;
    default:
        return WEFT_ERR_SYSTEM;
    }
}

/* "; NCCL says: ..." on one line, or nothing. */
static void quote(const char *said, char *text, size_t room)
{
    size_t n = said ? strcspn(said, "\r\n") : 0;
    if (n == 0) {
        text[0] = '\0';
    } else {
        snprintf(text, room, "; NCCL says: %.*s", (int)(n < 400 ? n : 400), said);
    }
}

/* What NCCL refuses when ranks join is, mostly, a GPU that two of them have. */
static const char *advice(const weft_nccl_t *nccl, weft_nccl_result_t result)
{
    if (result == WEFT_NCCL_INVALID_USAGE && !nccl->comm) {
        return "; where ranks share a GPU, use Weft's own kernels (WEFT_ENGINE=weft), or NCCL 2.30 "
               "or later with NCCL_MULTI_RANK_GPU_ENABLE=1";
    }
    return "";
}

static weft_status_t say(weft_nccl_t *nccl, weft_nccl_result_t result, const char *what,
                         const char *said)
{
    char quoted[512];
    quote(said, quoted, sizeof(quoted));
    return weft__fail(status_of(result), "%s failed on rank %d of %d (GPU %d): %s%s%s", what,
                      nccl->rank, nccl->size, nccl->binding.gpu, nccl->api->GetErrorString(result),
                      quoted, advice(nccl, result));
}

void weft__nccl_keep_error(weft_nccl_t *nccl, weft_status_t status)
{
    pthread_mutex_lock(&nccl->lock);
    if (nccl->status == WEFT_OK) {
        nccl->status = status;
        snprintf(nccl->text, sizeof(nccl->text), "%s", weft_last_error());
    }
    pthread_mutex_unlock(&nccl->lock);
}

weft_status_t weft__nccl_break(weft_nccl_t *nccl, weft_nccl_result_t result, const char *what)
{
    weft_status_t status = say(nccl, result, what, nccl->api->GetLastError(NULL));
    weft__nccl_keep_error(nccl, status);
    return status;
}

/* Under the lock. */
static weft_status_t refuse(weft_nccl_t *nccl)
{
    if (nccl->status != WEFT_OK) {
        return weft__fail(nccl->status, "%s", nccl->text);
    }
    return weft__fail(WEFT_ERR_ABORTED, "NCCL was aborted on rank %d of %d", nccl->rank,
                      nccl->size);
}

/* ---- inside NCCL ------------------------------------------------------------------------ */

weft_status_t weft__nccl_begin(weft_nccl_t *nccl)
{
    pthread_mutex_lock(&nccl->lock);
    weft_status_t status = nccl->aborted || nccl->status != WEFT_OK ? refuse(nccl) : WEFT_OK;
    if (status == WEFT_OK) {
        nccl->inside = true;
    }
    pthread_mutex_unlock(&nccl->lock);
    return status;
}

void weft__nccl_end(weft_nccl_t *nccl)
{
    pthread_mutex_lock(&nccl->lock);
    nccl->inside = false;
    pthread_cond_broadcast(&nccl->outside);
    pthread_mutex_unlock(&nccl->lock);
}

static bool is_aborted(weft_nccl_t *nccl)
{
    pthread_mutex_lock(&nccl->lock);
    bool aborted = nccl->aborted;
    pthread_mutex_unlock(&nccl->lock);
    return aborted;
}

weft_nccl_result_t weft__nccl_settle(weft_nccl_t *nccl, weft_nccl_result_t result)
{
    while (result == WEFT_NCCL_IN_PROGRESS && !is_aborted(nccl)) {
        nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
        weft_nccl_result_t asked = nccl->api->CommGetAsyncError(nccl->comm, &result);
        result = asked != WEFT_NCCL_SUCCESS ? asked : result;
    }
    return result;
}

weft_status_t weft__nccl_error(weft_nccl_t *nccl, const char **text_p)
{
    weft_nccl_result_t result = WEFT_NCCL_SUCCESS;
    pthread_mutex_lock(&nccl->lock);
    if (nccl->status == WEFT_OK && nccl->comm && !nccl->aborted) {
        weft_nccl_result_t asked = nccl->api->CommGetAsyncError(nccl->comm, &result);
        result = asked != WEFT_NCCL_SUCCESS ? asked : result;
    }
    pthread_mutex_unlock(&nccl->lock);
    if (status_of(result) != WEFT_OK) {
        weft__nccl_break(nccl, result, "a call of NCCL's");
    }
    pthread_mutex_lock(&nccl->lock);
    weft_status_t status = nccl->status;
    pthread_mutex_unlock(&nccl->lock);
    if (text_p) {
        *text_p = status == WEFT_OK ? "" : nccl->text;
    }
    return status;
}

/* Under the lock: wait until nobody is inside; false after `ms`. */
static bool wait_outside(weft_nccl_t *nccl, int ms)
{
    uint64_t end = weft__now_ns() + (uint64_t)ms * 1000000u;
    const struct timespec until = {.tv_sec = (time_t)(end / 1000000000u),
                                   .tv_nsec = (long)(end % 1000000000u)};
    while (nccl->inside) {
        if (pthread_cond_timedwait(&nccl->outside, &nccl->lock, &until) == ETIMEDOUT) {
            return !nccl->inside;
        }
    }
    return true;
}

/* Aborting frees NCCL's communicator, so whoever is inside has to leave first. If it is stuck
 * (while connecting to a peer that does not come) it is told to: by ncclCommRevoke, which frees
 * nothing. NCCL before 2.28 does not have that; there ncclCommAbort itself must do, as other users
 * of NCCL rely on: it raises the flag that stuck calls look at long before it frees anything. */
void weft__nccl_abort(weft_nccl_t *nccl)
{
    pthread_mutex_lock(&nccl->lock);
    if (nccl->aborted) {
        pthread_mutex_unlock(&nccl->lock);
        return;
    }
    nccl->aborted = true;
    bool outside = wait_outside(nccl, ABORT_GRACE_MS);
    weft_nccl_comm_h comm = nccl->comm;
    if (!outside && comm && nccl->api->CommRevoke) {
        pthread_mutex_unlock(&nccl->lock);
        nccl->api->CommRevoke(comm, 0);
        pthread_mutex_lock(&nccl->lock);
        if (!wait_outside(nccl, ABORT_MOST_MS)) {
            weft__warn("a call inside NCCL did not end when rank %d of %d aborted; its resources "
                       "stay taken",
                       nccl->rank, nccl->size);
            comm = NULL;
        }
    }
    nccl->comm = NULL;
    pthread_mutex_unlock(&nccl->lock);
    if (comm) {
        nccl->api->CommAbort(comm);
    }
}

/* ---- joining ---------------------------------------------------------------------------- */

static const weft_nccl_api_t *require(weft_status_t *status_p)
{
    const char *why;
    const weft_nccl_api_t *api = weft__nccl(&why);
    *status_p = api ? WEFT_OK : weft__fail(WEFT_ERR_UNSUPPORTED, "%s", why);
    return api;
}

weft_status_t weft__nccl_id_create(weft_nccl_id_t *id_p)
{
    weft_status_t status;
    const weft_nccl_api_t *api = require(&status);
    if (!api) {
        return status;
    }
    weft_nccl_result_t result = api->GetUniqueId(id_p);
    if (result == WEFT_NCCL_SUCCESS) {
        return WEFT_OK;
    }
    char quoted[512];
    quote(api->GetLastError(NULL), quoted, sizeof(quoted));
    return weft__fail(status_of(result), "ncclGetUniqueId failed: %s%s",
                      api->GetErrorString(result), quoted);
}

static weft_nccl_t *alloc_engine(const weft_nccl_api_t *api, const weft_nccl_binding_t *binding)
{
    weft_cuda_props_t props;
    weft_nccl_t *nccl = calloc(1, sizeof(*nccl));
    if (!nccl) {
        return NULL;
    }
    nccl->api = api;
    nccl->binding = *binding;
    nccl->adds_float8 = binding->ops->props(binding->gpu, &props) == 0 && props.major >= 9;
    nccl->refs = 1;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&nccl->lock, NULL);
    pthread_cond_init(&nccl->outside, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return nccl;
}

static void free_engine(weft_nccl_t *nccl)
{
    pthread_mutex_destroy(&nccl->lock);
    pthread_cond_destroy(&nccl->outside);
    free(nccl);
}

static weft_status_t no_memory(void)
{
    return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for an engine of NCCL's");
}

weft_status_t weft__nccl_enter(const weft_nccl_id_t *id, int rank, int size,
                               const weft_nccl_binding_t *binding, weft_nccl_t **nccl_p)
{
    weft_status_t status;
    const weft_nccl_api_t *api = require(&status);
    if (!api) {
        return status;
    }
    weft_nccl_t *nccl = alloc_engine(api, binding);
    if (!nccl) {
        return no_memory();
    }
    nccl->rank = rank;
    nccl->size = size;
    const weft_nccl_request_t request = {
        .api = api, .binding = *binding, .id = *id, .rank = rank, .size = size};
    status = weft__nccl_join_start(&request, &nccl->join);
    if (status != WEFT_OK) {
        free_engine(nccl);
        return status;
    }
    *nccl_p = nccl;
    return WEFT_OK;
}

/* Make what a join brought the engine's own. */
static weft_status_t take_over(weft_nccl_t *nccl, const weft_nccl_joined_t *joined,
                               const char *what)
{
    weft_status_t status = WEFT_OK;
    nccl->word = joined->word;
    if (joined->status != WEFT_OK) {
        status = weft__fail(joined->status, "%s", joined->text);
    } else if (joined->result != WEFT_NCCL_SUCCESS) {
        status = say(nccl, joined->result, what, joined->text);
    }
    if (status != WEFT_OK) {
        weft__nccl_keep_error(nccl, status);
        return status;
    }
    pthread_mutex_lock(&nccl->lock);
    nccl->comm = joined->comm;
    pthread_mutex_unlock(&nccl->lock);
    return WEFT_OK;
}

weft_status_t weft__nccl_meet(weft_nccl_t *nccl, int timeout_ms)
{
    weft_nccl_joined_t joined;
    if (!nccl->join) {
        return nccl->status == WEFT_OK ? WEFT_OK : weft__fail(nccl->status, "%s", nccl->text);
    }
    if (!weft__nccl_join_wait(nccl->join, timeout_ms, &joined)) {
        return WEFT_PENDING;
    }
    nccl->join = NULL;
    return take_over(nccl, &joined, "ncclCommInitRank");
}

static weft_status_t say_late(const weft_nccl_t *nccl, const char *in, int timeout_ms)
{
    const weft_waiting_t waiting = {.rank = nccl->rank,
                                    .peer = -1,
                                    .in = in,
                                    .timeout_ms = timeout_ms,
                                    .waited_ns = UINT64_MAX};
    weft_fault_t fault;
    weft__watch(&waiting, NULL, 0, &fault);
    return weft__fail(fault.status, "%s", fault.text);
}

static int patience(int timeout_ms)
{
    return timeout_ms > 0 ? timeout_ms : INT_MAX;
}

weft_status_t weft__nccl_open(const weft_nccl_id_t *id, int rank, int size,
                              const weft_nccl_binding_t *binding, int timeout_ms,
                              weft_nccl_t **nccl_p)
{
    weft_nccl_t *nccl;
    weft_status_t status = weft__nccl_enter(id, rank, size, binding, &nccl);
    if (status != WEFT_OK) {
        return status;
    }
    do {
        status = weft__nccl_meet(nccl, patience(timeout_ms));
    } while (status == WEFT_PENDING && timeout_ms <= 0);
    if (status == WEFT_PENDING) {
        status = say_late(nccl, "ncclCommInitRank", timeout_ms);
    }
    if (status != WEFT_OK) {
        weft__nccl_close(nccl);
        return status;
    }
    *nccl_p = nccl;
    return WEFT_OK;
}

int weft__nccl_rank(const weft_nccl_t *nccl)
{
    return nccl->rank;
}

int weft__nccl_size(const weft_nccl_t *nccl)
{
    return nccl->size;
}

/* ---- splitting -------------------------------------------------------------------------- */

/* Start ncclCommSplit; the thread that waits in it holds the parent. */
static weft_status_t start_split(weft_nccl_t *nccl, int color, int key, weft_nccl_join_t **join_p)
{
    const weft_nccl_request_t request = {.api = nccl->api,
                                         .binding = nccl->binding,
                                         .parent = nccl,
                                         .color = color < 0 ? WEFT_NCCL_NO_COLOR : color,
                                         .key = key};
    WEFT_TRY(weft__nccl_begin(nccl));
    pthread_mutex_lock(&nccl->lock);
    nccl->refs++;
    pthread_mutex_unlock(&nccl->lock);
    weft_status_t status = weft__nccl_join_start(&request, join_p);
    if (status != WEFT_OK) {
        weft__nccl_end(nccl);
        weft__nccl_release(nccl);
    }
    return status;
}

/* A child from what a split brought; *child_p stays NULL if this rank gave no color. */
static weft_status_t make_child(weft_nccl_t *nccl, weft_nccl_joined_t *joined,
                                weft_nccl_t **child_p)
{
    weft_nccl_t *child = alloc_engine(nccl->api, &nccl->binding);
    if (!child) {
        return no_memory();
    }
    child->rank = nccl->rank;
    child->size = nccl->size;
    weft_status_t status = take_over(child, joined, "ncclCommSplit");
    if (status != WEFT_OK) {
        weft__nccl_keep_error(nccl, status); /* the parent's state is not known any more */
    }
    if (status == WEFT_OK && child->comm) {
        weft_nccl_result_t result = child->api->CommUserRank(child->comm, &child->rank);
        if (result == WEFT_NCCL_SUCCESS) {
            result = child->api->CommCount(child->comm, &child->size);
        }
        if (result != WEFT_NCCL_SUCCESS) {
            status = weft__nccl_break(child, result, "asking a new communicator who we are");
        }
    }
    if (status != WEFT_OK || !child->comm) {
        weft__nccl_close(child);
        child = NULL;
    }
    *child_p = child;
    return status;
}

weft_status_t weft__nccl_split(weft_nccl_t *nccl, int color, int key, int timeout_ms,
                               weft_nccl_t **child_p)
{
    weft_nccl_join_t *join;
    weft_nccl_joined_t joined;
    *child_p = NULL;
    weft_status_t status = start_split(nccl, color, key, &join);
    if (status != WEFT_OK) {
        return status;
    }
    bool done;
    do {
        done = weft__nccl_join_wait(join, patience(timeout_ms), &joined);
    } while (!done && timeout_ms <= 0);
    if (!done) {
        status = say_late(nccl, "ncclCommSplit", timeout_ms);
        weft__nccl_keep_error(nccl, status);
        weft__nccl_join_leave(join);
        return status;
    }
    return make_child(nccl, &joined, child_p);
}

/* ---- leaving ---------------------------------------------------------------------------- */

void weft__nccl_release(weft_nccl_t *nccl)
{
    pthread_mutex_lock(&nccl->lock);
    bool last = --nccl->refs == 0;
    weft_nccl_comm_h comm = last ? nccl->comm : NULL;
    bool broken = nccl->status != WEFT_OK;
    pthread_mutex_unlock(&nccl->lock);
    if (!last) {
        return;
    }
    if (comm) {
        weft_nccl_result_t result = broken ? nccl->api->CommAbort(comm)
                                           : nccl->api->CommDestroy(comm);
        if (result != WEFT_NCCL_SUCCESS && !broken) {
            weft__warn("NCCL could not free the communicator of rank %d of %d: %s", nccl->rank,
                       nccl->size, nccl->api->GetErrorString(result));
        }
    }
    weft_free(nccl->word);
    weft__nccl_free_scratch(nccl);
    weft__nccl_forget(nccl);
    free_engine(nccl);
}

void weft__nccl_close(weft_nccl_t *nccl)
{
    if (!nccl) {
        return;
    }
    if (nccl->join) {
        weft__nccl_join_leave(nccl->join);
    }
    weft__nccl_release(nccl);
}
