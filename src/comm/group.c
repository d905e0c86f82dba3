/* Groups: calls are collected per thread and run together at the outermost end.
 *
 * Per communicator, all sends and receives form one batch that progresses in any order, and runs
 * first; collectives follow in their order, neighbouring small all-reduces fused into one. If the
 * group spans several communicators (several ranks driven by one thread), calls on NULL streams run
 * on helper streams, one per communicator, so that they do not wait for each other in a row. */
#include "comm/group.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/backends.h"
#include "comm/init.h"
#include "device/device.h"

#define FUSE_MOST 255

typedef struct group {
    weft_status_t failed;
    char *why; /* allocated; NULL: no memory for it */
    weft_call_t *calls;
    int n, room;
    weft_joiner_t *joiners;
    int njoiners, joiner_room;
} group_t;

/* There is little room for the initial-exec model where the library is loaded late: the rest is
 * ordinary. */
_Thread_local int weft__group_depth __attribute__((tls_model("initial-exec")));
static _Thread_local group_t group;

void weft__group_fail(weft_status_t status)
{
    if (weft__group_depth > 0 && group.failed == WEFT_OK) {
        group.failed = status;
        group.why = strdup(weft_last_error());
    }
}

/* Grow *list_p of *room_p items to hold one more than `n`. */
static weft_status_t grow(void **list_p, int n, int *room_p, size_t item)
{
    if (n < *room_p) {
        return WEFT_OK;
    }
    int room = *room_p ? 2 * *room_p : 16;
    void *list = realloc(*list_p, (size_t)room * item);
    if (!list) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a group of %d calls", room);
    }
    *list_p = list;
    *room_p = room;
    return WEFT_OK;
}

weft_status_t weft__group_add(weft_call_t *call)
{
    void *list = group.calls;
    weft_status_t status = grow(&list, group.n, &group.room, sizeof(*call));
    group.calls = list;
    if (status != WEFT_OK) {
        weft__group_fail(status);
        weft__call_cleanup(call);
        return status;
    }
    group.calls[group.n++] = *call;
    /* One thread at a time uses it: no sum of several. Partner: weft_comm_destroy. */
    int deferred = atomic_load_explicit(&call->comm->deferred, memory_order_relaxed);
    atomic_store_explicit(&call->comm->deferred, deferred + 1, memory_order_relaxed);
    return WEFT_OK;
}

weft_status_t weft__group_add_joiner(const weft_joiner_t *joiner)
{
    void *list = group.joiners;
    weft_status_t status = grow(&list, group.njoiners, &group.joiner_room, sizeof(*joiner));
    group.joiners = list;
    if (status != WEFT_OK) {
        weft__group_fail(status);
        weft__comm_release(joiner->comm);
        return status;
    }
    group.joiners[group.njoiners++] = *joiner;
    return WEFT_OK;
}

weft_status_t weft_group_start(void)
{
    weft__group_depth++;
    return WEFT_OK;
}

static weft_status_t first_of(weft_status_t a, weft_status_t b)
{
    return a != WEFT_OK ? a : b;
}

/* Make `later` wait for what `earlier` has queued so far. */
static weft_status_t chain(weft_stream_h earlier, weft_stream_h later)
{
    weft_event_h event;
    WEFT_TRY(weft_event_create(&event));
    weft_status_t status = weft_event_record(event, earlier);
    if (status == WEFT_OK) {
        status = weft_stream_wait(later, event);
    }
    weft_event_destroy(event);
    return status;
}

/* ---- one thread, several ranks ---------------------------------------------------------- */

typedef struct tie {
    weft_stream_h earlier, later;
} tie_t;

/* One thread launches for several communicators, and a backend wants to know: then what it launches
 * starts at the end, and streams that are to wait for it are tied to it after that. Of the backends
 * in a group at most one has such an interest. */
static _Thread_local struct {
    const weft_backend_ops_t *backend; /* NULL: none */
    tie_t *ties;
    int n, room;
} together;

static weft_status_t start_together(const weft_call_t *calls, int n)
{
    for (int i = 0; i < n; i++) {
        const weft_backend_ops_t *backend = calls[i].comm->backend;
        if (backend->group_start) {
            weft_status_t status = backend->group_start();
            together.backend = status == WEFT_OK ? backend : NULL;
            return status;
        }
    }
    return WEFT_OK;
}

static weft_status_t end_together(void)
{
    weft_status_t status = together.backend ? together.backend->group_end() : WEFT_OK;
    for (int i = 0; i < together.n && status == WEFT_OK; i++) {
        status = chain(together.ties[i].earlier, together.ties[i].later);
    }
    free(together.ties);
    memset(&together, 0, sizeof(together));
    return status;
}

/* As chain, after a launch. */
static weft_status_t chain_after(weft_stream_h earlier, weft_stream_h later)
{
    if (!together.backend) {
        return chain(earlier, later);
    }
    void *ties = together.ties;
    weft_status_t status = grow(&ties, together.n, &together.room, sizeof(tie_t));
    together.ties = ties;
    if (status == WEFT_OK) {
        together.ties[together.n++] = (tie_t){earlier, later};
    }
    return status;
}

/* A batch runs on one stream; the other streams of its calls are tied in before and after. */
static weft_status_t dispatch(weft_call_t *calls, int n, weft_stream_h stream)
{
    weft_status_t status = WEFT_OK;
    weft_stream_h *others = n > 1 && stream ? malloc((size_t)n * sizeof(*others)) : NULL;
    int k = 0;
    if (n > 1 && stream && !others) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to queue %d calls on a stream", n);
    }
    for (int i = 0; i < n && others && status == WEFT_OK; i++) {
        weft_stream_h other = calls[i].stream;
        if (other && other != stream && (k == 0 || other != others[k - 1])) {
            others[k++] = other;
            status = chain(other, stream);
        }
    }
    if (status == WEFT_OK) {
        status = weft__call_dispatch(calls, n, stream);
    }
    for (int i = 0; i < k && status == WEFT_OK; i++) {
        status = chain_after(stream, others[i]);
    }
    free(others);
    return status;
}

/* How many calls from calls[0] on can be fused: same type, op and stream, small together. */
static int fusible(const weft_call_t *calls, int n)
{
    const weft_call_t *a = &calls[0];
    size_t element = weft_dtype_size(a->type), total = 0;
    int i = 0;
    while (i < n && i < FUSE_MOST) {
        const weft_call_t *b = &calls[i];
        if (b->coll != WEFT_COLL_ALLREDUCE || b->type != a->type || b->op != a->op ||
            b->stream != a->stream || b->count > WEFT_SLOT_BYTES / element) {
            break;
        }
        total += b->count * element;
        if (total > WEFT_SLOT_BYTES) {
            break;
        }
        i++;
    }
    return i;
}

static weft_status_t helper_of(weft_comm_h comm, weft_stream_h *stream_p)
{
    weft_status_t status = comm->helper ? WEFT_OK
                                        : weft__stream_create_on(comm->device, &comm->helper);
    *stream_p = comm->helper;
    return status;
}

/* The stream for a call: its own; the helper's for a NULL one in a group of several ranks. */
static weft_status_t stream_for(weft_call_t *call, bool several, weft_stream_h *stream_p)
{
    *stream_p = call->stream;
    return call->stream || !several ? WEFT_OK : helper_of(call->comm, stream_p);
}

/* Sends and receives of one communicator run as one. If only some of them have a stream, it is one
 * of theirs, and the helper waits for it: the end of the group waits for the helper. */
static weft_status_t run_messages(weft_call_t *calls, int n, bool several)
{
    weft_comm_h comm = calls->comm;
    weft_stream_h stream = NULL, helper;
    bool some_without = false;
    for (int i = 0; i < n; i++) {
        stream = stream ? stream : calls[i].stream;
        some_without = some_without || !calls[i].stream;
    }
    if (!stream) {
        WEFT_TRY(stream_for(calls, several, &stream));
        return dispatch(calls, n, stream);
    }
    weft_status_t status = dispatch(calls, n, stream);
    if (status == WEFT_OK && some_without) {
        status = helper_of(comm, &helper);
        status = status == WEFT_OK ? chain_after(stream, helper) : status;
    }
    return status;
}

/* The next calls of one communicator that run as one; `calls` holds all of them together, sends and
 * receives first. Returns how many there were. */
static int run_next(weft_call_t *calls, int n, bool several, weft_status_t *status_p)
{
    int together = 0;
    while (together < n && weft__is_message(calls[together].coll)) {
        together++;
    }
    if (together > 0) {
        *status_p = run_messages(calls, together, several);
        return together;
    }
    weft_stream_h stream;
    const weft_backend_ops_t *backend = calls->comm->backend;
    together = fusible(calls, n);
    /* One thread that drives several ranks must not launch twice for one before it did for the
     * others. */
    if (together > 1 && several && backend->fuses) {
        together = backend->fuses(calls->comm->ctx, calls, together);
    }
    together = together > 1 ? together : 1;
    *status_p = stream_for(calls, several, &stream);
    *status_p = *status_p == WEFT_OK ? dispatch(calls, together, stream) : *status_p;
    return together;
}

/* Move the calls of calls[0]'s communicator to the front, sends and receives before collectives,
 * each in their order. Returns how many there are. */
static int bring_together(weft_call_t *calls, int n, weft_call_t *scratch)
{
    weft_comm_h comm = calls[0].comm;
    int k = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < n; i++) {
            bool mine = calls[i].comm == comm;
            int turn = !mine ? 2 : weft__is_message(calls[i].coll) ? 0 : 1;
            if (turn == round) {
                scratch[k++] = calls[i];
            }
        }
    }
    memcpy(calls, scratch, (size_t)n * sizeof(*calls));
    int own = 0;
    while (own < n && calls[own].comm == comm) {
        own++;
    }
    return own;
}

/* Calls on NULL streams are done, and their errors known, when the group ends. */
static weft_status_t finish_helper(weft_comm_h comm)
{
    const char *text;
    weft_status_t status = weft_stream_synchronize(comm->helper);
    if (status == WEFT_OK && (status = weft_comm_error(comm, &text)) != WEFT_OK) {
        weft__fail(status, "%s", text);
    }
    return status;
}

/* One communicator after the other, again and again: ranks that one thread drives stay abreast, and
 * none has to wait for a call that comes later in this thread. `taken` marks calls that were
 * run. */
static weft_status_t run_rounds(weft_call_t *calls, int n, bool several, weft_call_t *scratch)
{
    weft_status_t status = WEFT_OK;
    bool *taken = (bool *)scratch; /* its room is needed no more */
    memset(taken, 0, (size_t)n * sizeof(*taken));
    for (int left = n; left > 0 && status == WEFT_OK;) {
        for (int i = 0; i < n && status == WEFT_OK;) {
            int end = i, first = i;
            while (end < n && calls[end].comm == calls[i].comm) {
                end++;
            }
            while (first < end && taken[first]) {
                first++;
            }
            if (first < end) {
                int run = run_next(calls + first, end - first, several, &status);
                memset(taken + first, true, (size_t)run * sizeof(*taken));
                left -= run;
            }
            i = end;
        }
    }
    return status;
}

static weft_status_t run_all(weft_call_t *calls, int n)
{
    weft_status_t status = WEFT_OK;
    for (int i = 0; i < n && status == WEFT_OK; i++) { /* it may have been destroyed since */
        status = weft__comm_check(calls[i].comm, weft__coll_info[calls[i].coll].name);
    }
    if (status != WEFT_OK) {
        return status;
    }
    weft_call_t *scratch = malloc((size_t)n * sizeof(*calls));
    if (!scratch) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to run a group of %d calls", n);
    }
    bool several = false;
    for (int i = 1; i < n; i++) {
        several = several || calls[i].comm != calls[0].comm;
    }
    for (int i = 0; i < n;) {
        i += bring_together(calls + i, n - i, scratch);
    }
    status = several ? start_together(calls, n) : WEFT_OK;
    status = status == WEFT_OK ? run_rounds(calls, n, several, scratch) : status;
    status = first_of(status, end_together());
    for (int i = 0; i < n; i++) {
        if (calls[i].comm->helper && (i == 0 || calls[i].comm != calls[i - 1].comm)) {
            status = first_of(status, finish_helper(calls[i].comm));
        }
    }
    free(scratch);
    return status;
}

weft_status_t weft_group_end(void)
{
    if (weft__group_depth == 0) {
        return weft__fail(WEFT_ERR_INVALID, "weft_group_end without weft_group_start");
    }
    if (--weft__group_depth > 0) {
        return WEFT_OK;
    }
    group_t g = group;
    group = (group_t){0};
    weft_status_t status;
    for (int i = 0; i < g.n; i++) {
        atomic_store_explicit(&g.calls[i].comm->deferred, 0, memory_order_relaxed);
    }
    if (g.failed != WEFT_OK) {
        status = weft__fail(g.failed, "the group was not run, because a call in it was refused: %s",
                            g.why ? g.why : "no memory to tell which");
        for (int i = 0; i < g.njoiners; i++) {
            weft__comm_release(g.joiners[i].comm);
        }
    } else {
        status = g.njoiners ? weft__comm_join_all(g.joiners, g.njoiners) : WEFT_OK;
        status = g.n > 0 && status == WEFT_OK ? run_all(g.calls, g.n) : status;
    }
    for (int i = 0; i < g.n; i++) {
        weft__call_cleanup(&g.calls[i]); /* those that were not run */
    }
    free(g.calls);
    free(g.joiners);
    free(g.why);
    return status;
}
