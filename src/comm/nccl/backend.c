/* The nccl backend: a rank's calls, from Weft's words to the engine and back. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/nccl/member.h"
#include "device/cuda.h"

/* How long to poll, and to give way in between, before sleeping between looks. */
#define POLL_NS 100000u
#define YIELD_NS 5000000u
#define NAP_NS 50000

/* What an abort should have ended may hold the GPU for this long. */
#define DRAIN_NS 10000000000u

/* ---- waiting ---------------------------------------------------------------------------- */

static void relax(uint64_t start)
{
    uint64_t waited = weft__now_ns() - start;
    if (waited > YIELD_NS) {
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    } else if (waited > POLL_NS) {
        sched_yield();
    }
}

/* Until the stream is idle. The watcher ends what would never be. */
static weft_status_t wait_stream(weft_nccl_member_t *member, void *stream)
{
    const weft_cuda_device_ops_t *ops = member->binding.ops;
    uint64_t start = weft__now_ns(), broken_at = 0;
    for (bool idle = false; !idle;) {
        int error = ops->stream_idle(member->binding.gpu, stream, &idle);
        if (error != 0) {
            return weft__cuda_status(error, "waiting for NCCL");
        }
        if (!idle && atomic_load_explicit(&member->broken, memory_order_acquire)) {
            broken_at = broken_at ? broken_at : weft__now_ns();
            if (weft__now_ns() - broken_at > DRAIN_NS) {
                weft__warn("rank %d: NCCL was aborted, but still holds the GPU", member->rank);
                return WEFT_OK;
            }
        }
        if (!idle) {
            relax(start);
        }
    }
    return WEFT_OK;
}

/* A call of a thread of this rank begins; NULL: it is over, or the events tell how it goes. */
static void set_current(weft_nccl_member_t *member, const weft_call_t *call)
{
    pthread_mutex_lock(&member->lock);
    member->since = call ? weft__now_ns() : 0;
    if (call) {
        member->current = *call;
        member->current.vectors = NULL; /* not ours */
    }
    pthread_mutex_unlock(&member->lock);
}

/* ---- one thread, several ranks ---------------------------------------------------------- */

/* What a thread launches on several communicators in one group of NCCL's really starts at its
 * end. */
static _Thread_local struct {
    bool open;
    weft_nccl_member_t *members; /* linked by next_pending */
    weft_nccl_staging_t *stages; /* of calls on host memory */
} group;

static weft_status_t nccl_group_start(void)
{
    weft_status_t status = weft__nccl_group_start();
    group.open = status == WEFT_OK;
    return status;
}

/* Mark where each launch of the group ends. */
static weft_status_t arrive_all(weft_nccl_member_t *member)
{
    int error = 0;
    for (int i = 1; i <= WEFT_NCCL_INFLIGHT; i++) {
        weft_nccl_inflight_t *record = &member->inflight[(member->newest + i) % WEFT_NCCL_INFLIGHT];
        int e = record->open ? weft__nccl_arrive(member, record) : 0;
        error = error ? error : e;
    }
    return error ? weft__cuda_status(error, "recording an event after a group of calls") : WEFT_OK;
}

/* Bring back the results of a call on host memory, and wait for them. */
static weft_status_t finish_stage(weft_nccl_staging_t *staging, weft_status_t status)
{
    if (status == WEFT_OK) {
        status = weft__nccl_staging_out(staging);
    }
    weft_status_t waited = wait_stream(staging->member, staging->stream);
    weft__nccl_staging_free(staging);
    return status != WEFT_OK ? status : waited;
}

static weft_status_t nccl_group_end(void)
{
    weft_nccl_member_t *members = group.members;
    weft_nccl_staging_t *stages = group.stages;
    for (weft_nccl_member_t *member = members; member; member = member->next_pending) {
        set_current(member, &member->last);
    }
    weft_status_t ended = weft__nccl_group_end(), status = ended;
    memset(&group, 0, sizeof(group));
    for (weft_nccl_member_t *member = members, *next; member; member = next) {
        next = member->next_pending;
        member->pending = false;
        set_current(member, NULL);
        weft_status_t mine = ended == WEFT_OK ? arrive_all(member) : ended;
        if (mine != WEFT_OK) {
            status = weft__nccl_claim(member, mine);
        }
    }
    for (weft_nccl_staging_t *staging = stages, *next; staging; staging = next) {
        next = staging->next;
        weft_nccl_member_t *member = staging->member;
        weft_status_t mine = finish_stage(staging, status);
        if (mine != WEFT_OK && status == WEFT_OK) {
            status = weft__nccl_claim(member, mine);
        }
    }
    return status;
}

/* ---- calls ------------------------------------------------------------------------------ */

static void defer(weft_nccl_member_t *member)
{
    if (!member->pending) {
        member->pending = true;
        member->next_pending = group.members;
        group.members = member;
    }
}

/* Queue the calls on `cuda`, with marks before and after, or none if they may trail on `handle`.
 * What a group launches comes later, so marks of the watcher's could come too early. */
static weft_status_t start_calls(weft_nccl_member_t *member, const weft_call_t *calls, int n,
                                 void *cuda, weft_stream_h handle, bool *watched_p)
{
    weft_nccl_inflight_t *record;
    int error = weft__nccl_depart(member, calls, cuda, group.open ? NULL : handle, &record);
    if (error != 0) {
        return weft__cuda_status(error, "recording an event before a call");
    }
    *watched_p = record != NULL;
    weft_status_t status = weft__nccl_launch(member->engine, calls, n, cuda);
    if (group.open) {
        defer(member);
        return status;
    }
    error = weft__nccl_arrive(member, record);
    if (status == WEFT_OK && error != 0) {
        status = weft__cuda_status(error, "recording an event after a call");
    }
    return status;
}

/* What weft_stream_synchronize asks. */
static weft_status_t check_member(void *ctx, int error)
{
    weft_nccl_member_t *member = ctx;
    (void)error; /* the watcher finds out who is gone, if anybody is */
    if (!atomic_load_explicit(&member->broken, memory_order_acquire)) {
        return WEFT_OK;
    }
    atomic_store_explicit(&member->told, true, memory_order_relaxed);
    return weft__fail((weft_status_t)member->verdict.status, "%s", member->verdict.text);
}

/* Queue the calls, and wait for them unless they are on `stream`. The program may end a stream of
 * its own without telling us, so there nothing is left to be marked later. */
static weft_status_t run_calls(weft_nccl_member_t *member, const weft_call_t *calls, int n,
                               void *cuda, weft_stream_h stream, bool wait)
{
    bool watched = false;
    set_current(member, calls);
    weft_stream_h handle = stream && !weft__cuda_wrapped(stream) ? stream : NULL;
    weft_status_t status = start_calls(member, calls, n, cuda, handle, &watched);
    if (status == WEFT_OK && wait) {
        if (watched) {
            set_current(member, NULL); /* the events say when it begins */
        }
        status = wait_stream(member, cuda);
    }
    set_current(member, NULL);
    return status;
}

/* Calls on host memory: the stream is waited for, whichever it is; in a group, at its end. */
static weft_status_t run_staged(weft_nccl_member_t *member, weft_nccl_staging_t *staging, int n)
{
    weft_status_t status = run_calls(member, staging->calls, n, staging->stream, NULL, !group.open);
    if (!group.open) {
        return finish_stage(staging, status);
    }
    staging->next = group.stages;
    group.stages = staging;
    return status;
}

static weft_status_t nccl_launch(void *ctx, const weft_call_t *calls, int n, weft_stream_h stream)
{
    weft_nccl_member_t *member = ctx;
    void *cuda = stream ? weft__cuda_stream(stream) : member->stream;
    weft_nccl_staging_t *staging;
    if (atomic_load_explicit(&member->broken, memory_order_acquire)) {
        return weft__nccl_refuse(member);
    }
    weft_status_t status = stream ? weft__cuda_remember(stream, check_member, member) : WEFT_OK;
    if (status == WEFT_OK) {
        status = weft__nccl_staging_in(member, calls, n, cuda, &staging);
    }
    if (status != WEFT_OK) {
        return weft__nccl_claim(member, status); /* the others are in this call already */
    }
    status = staging ? run_staged(member, staging, n)
                     : run_calls(member, calls, n, cuda, stream, !stream);
    if (!stream) {
        weft__nccl_landed(member);
    }
    if (status != WEFT_OK ||
        (!stream && atomic_load_explicit(&member->broken, memory_order_acquire))) {
        return weft__nccl_claim(member, status);
    }
    return WEFT_OK;
}

/* ---- the rest of the table -------------------------------------------------------------- */

static void nccl_about(char *text, size_t room)
{
    const char *why = "";
    const weft_nccl_api_t *nccl = weft__nccl(&why);
    int v = nccl ? nccl->version : 0;
    if (nccl) {
        snprintf(text, room, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    } else {
        snprintf(text, room, "not used: %s", why);
    }
}

static weft_probe_t nccl_probe(const weft_members_t *members)
{
    (void)members; /* wherever they are */
    return weft__device_is_cuda() ? WEFT_PROBE_YES : WEFT_PROBE_NO;
}

static weft_status_t nccl_error(void *ctx, const char **text_p)
{
    weft_nccl_member_t *member = ctx;
    const char *text;
    if (!atomic_load_explicit(&member->broken, memory_order_acquire)) {
        weft_status_t status = weft__nccl_error(member->engine, &text);
        if (status == WEFT_OK) {
            *text_p = "";
            return WEFT_OK;
        }
        weft__nccl_claim(member, weft__fail(status, "%s", text));
    }
    *text_p = member->verdict.text;
    return (weft_status_t)member->verdict.status;
}

static weft_status_t nccl_told(void *ctx)
{
    return check_member(ctx, 0);
}

static void nccl_fail(void *ctx, weft_status_t status, int culprit, const char *text)
{
    (void)culprit;
    weft__nccl_claim(ctx, weft__fail(status, "%s", text));
}

static void nccl_abort(void *ctx)
{
    weft_nccl_member_t *member = ctx;
    weft__nccl_claim(
        member, weft__fail(WEFT_ERR_ABORTED, "rank %d aborted the communicator", member->rank));
    /* Whoever is just entering a call has not been told yet. */
    atomic_store_explicit(&member->told, false, memory_order_relaxed);
}

/* Let what was queued run; if it never ends, the watcher ends it. */
static void drain(weft_nccl_member_t *member)
{
    uint64_t start = weft__now_ns();
    while (member->watching && !weft__nccl_idle(member) &&
           !atomic_load_explicit(&member->broken, memory_order_acquire)) {
        relax(start);
    }
}

static void nccl_close(void *ctx)
{
    weft_nccl_member_t *member = ctx;
    char said[WEFT_ERROR_TEXT]; /* perhaps the reason for closing: kept, whatever fails below */
    snprintf(said, sizeof(said), "%s", weft_last_error());
    drain(member);
    weft__nccl_watch_stop(member);
    weft__cuda_forget(member);
    weft__nccl_close(member->engine);
    weft__nccl_say_left(member);
    weft__store_close(member->store);
    weft__nccl_free_inflight(member);
    weft__cuda_unhold();
    if (member->stream) {
        member->binding.ops->stream_destroy(member->binding.gpu, member->stream);
    }
    pthread_mutex_destroy(&member->lock);
    pthread_cond_destroy(&member->wake);
    pthread_cond_destroy(&member->settled);
    free(member);
    weft__error_restore(said);
}

const weft_backend_ops_t weft__backend_nccl = {
    .abi = WEFT_BACKEND_ABI,
    .name = "nccl",
    .engine = "nccl",
    .by_store = true,
    .about = nccl_about,
    .probe = nccl_probe,
    .enter = weft__nccl_comm_enter,
    .meet = weft__nccl_comm_meet,
    .launch = nccl_launch,
    .group_start = nccl_group_start,
    .group_end = nccl_group_end,
    .split = weft__nccl_comm_split,
    .error = nccl_error,
    .told = nccl_told,
    .fail = nccl_fail,
    .abort = nccl_abort,
    .close = nccl_close,
};
