/* Calls on their way through streams. */
#include <string.h>

#include "base/clock.h"
#include "comm/nccl/member.h"

/* Has the event passed? One that cannot be asked has: what is wrong then shows elsewhere. */
static bool passed(const weft_nccl_member_t *member, void *event)
{
    bool done = true;
    return member->binding.ops->event_done(member->binding.gpu, event, &done) != 0 || done;
}

static int make_events(weft_nccl_member_t *member, weft_nccl_inflight_t *record)
{
    const weft_cuda_device_ops_t *ops = member->binding.ops;
    int error = record->start ? 0 : ops->event_create(member->binding.gpu, &record->start);
    if (error == 0 && !record->end) {
        error = ops->event_create(member->binding.gpu, &record->end);
    }
    return error;
}

/* The place of a new launch: the oldest, if that has landed. If not, so many are on their way that
 * the newest one can stand for this one as well. */
static weft_nccl_inflight_t *choose(weft_nccl_member_t *member, bool *extends_p)
{
    weft_nccl_inflight_t *next = &member->inflight[(member->newest + 1) % WEFT_NCCL_INFLIGHT];
    *extends_p = next->used && (next->open || !passed(member, next->end));
    if (*extends_p) {
        return &member->inflight[member->newest];
    }
    member->newest = (member->newest + 1) % WEFT_NCCL_INFLIGHT;
    next->used = false;
    return next;
}

static int launched(weft_nccl_member_t *member, weft_nccl_inflight_t *record, int error)
{
    record->open = false;
    record->used = error == 0;
    member->tail = record->used ? record : NULL;
    return error;
}

/* Under the lock: a place for `call` and what follows it. Its start is not recorded, so it has
 * passed. */
static int board(weft_nccl_member_t *member, const weft_call_t *call, uint64_t first, void *stream,
                 weft_nccl_inflight_t **record_p, bool *extends_p)
{
    weft_nccl_inflight_t *record = choose(member, extends_p);
    int error = *extends_p ? 0 : make_events(member, record);
    if (!*extends_p) {
        record->first = first;
        record->since = 0;
        record->call = *call;
        record->call.vectors = NULL; /* not ours */
    }
    record->stream = stream;
    *record_p = record;
    return error;
}

/* Under the lock: make an in-flight record of what trails, so that its end is known. A stream that
 * was destroyed has been waited for. */
static int mark_unmarked(weft_nccl_member_t *member)
{
    weft_nccl_unmarked_t unmarked = member->unmarked;
    weft_nccl_inflight_t *record;
    bool extends, there = false;
    if (!unmarked.past.stream) {
        return 0;
    }
    member->unmarked.past.stream = NULL;
    int error = board(member, &unmarked.call, unmarked.first,
                      weft__cuda_stream(unmarked.past.stream), &record, &extends);
    if (error == 0) {
        error = weft__cuda_record(&unmarked.past, record->end, &there);
    }
    record->last = unmarked.last;
    launched(member, record, error);
    if (error == 0 && !there) {
        member->tail = NULL;
        record->used = extends && record->used;
    }
    return error;
}

/* Of calls in one group of NCCL's, NCCL itself keeps the order. */
static int follow(weft_nccl_member_t *member, void *stream)
{
    const weft_nccl_inflight_t *tail = member->tail;
    if (!tail || tail->open || tail->stream == stream) {
        return 0;
    }
    int error = mark_unmarked(member);
    tail = member->tail;
    if (error != 0 || !tail) {
        return error;
    }
    return member->binding.ops->stream_wait(member->binding.gpu, stream, tail->end);
}

/* May this launch do without events? */
static bool unmarked(weft_nccl_member_t *member, const weft_call_t *call, void *stream,
                     weft_stream_h handle)
{
    const weft_nccl_inflight_t *tail = member->tail;
    if (!handle || !tail || tail->open || tail->stream != stream ||
        weft__now_ns() - member->took_off > member->unmarked_ns) {
        return false;
    }
    if (!member->unmarked.past.stream) {
        member->unmarked = (weft_nccl_unmarked_t){weft__cuda_past(handle), member->calls,
                                                  member->calls, *call};
        member->unmarked.call.vectors = NULL; /* not ours */
    }
    member->unmarked.last = member->calls;
    return true;
}

static int take_off(weft_nccl_member_t *member, const weft_call_t *call, void *stream,
                    weft_nccl_inflight_t **record_p)
{
    bool extends,
        trailing = member->unmarked.past.stream != NULL; /* on this stream: follow saw to it */
    int error = board(member, trailing ? &member->unmarked.call : call,
                      trailing ? member->unmarked.first : member->calls, stream, record_p,
                      &extends);
    if (error == 0 && !extends && !trailing) {
        error = member->binding.ops->event_record(member->binding.gpu, (*record_p)->start, stream);
    }
    member->unmarked.past.stream = NULL;
    member->took_off = weft__now_ns();
    (*record_p)->last = member->calls;
    (*record_p)->open = (*record_p)->used = error == 0;
    return error;
}

int weft__nccl_depart(weft_nccl_member_t *member, const weft_call_t *call, void *stream,
                      weft_stream_h handle, weft_nccl_inflight_t **record_p)
{
    bool captured = false;
    int error = member->binding.ops->stream_capturing(member->binding.gpu, stream, &captured);
    *record_p = NULL;
    pthread_mutex_lock(&member->lock);
    if (!weft__is_message(call->coll)) {
        member->calls++;
        member->last = *call;
    }
    if (error == 0 && !captured) {
        /* Who waits for the call, and for nothing before it, needs no events to see how it goes. */
        bool bare = (stream == member->stream && !member->tail) ||
                    unmarked(member, call, stream, handle);
        error = bare ? 0 : follow(member, stream);
        error = error != 0 || bare ? error : take_off(member, call, stream, record_p);
    }
    pthread_mutex_unlock(&member->lock);
    return error;
}

int weft__nccl_arrive(weft_nccl_member_t *member, weft_nccl_inflight_t *record)
{
    if (!record) {
        return 0;
    }
    pthread_mutex_lock(&member->lock);
    int error = member->binding.ops->event_record(member->binding.gpu, record->end, record->stream);
    launched(member, record, error);
    pthread_mutex_unlock(&member->lock);
    return error;
}

void weft__nccl_landed(weft_nccl_member_t *member)
{
    pthread_mutex_lock(&member->lock);
    member->tail = NULL;
    member->unmarked.past.stream = NULL;
    pthread_mutex_unlock(&member->lock);
}

/* Under the lock: the oldest in-flight record that has not landed. */
static weft_nccl_inflight_t *oldest(weft_nccl_member_t *member)
{
    for (int i = 1; i <= WEFT_NCCL_INFLIGHT; i++) {
        weft_nccl_inflight_t *record = &member->inflight[(member->newest + i) % WEFT_NCCL_INFLIGHT];
        if (record->used && !record->open) {
            if (!passed(member, record->end)) {
                return record;
            }
            record->used = false;
        }
    }
    return NULL;
}

bool weft__nccl_oldest(weft_nccl_member_t *member, weft_nccl_sight_t *sight_p)
{
    pthread_mutex_lock(&member->lock);
    if (weft__now_ns() - member->took_off > member->unmarked_ns) {
        mark_unmarked(member); /* what is wrong if it fails shows elsewhere */
    }
    weft_nccl_inflight_t *record = oldest(member);
    if (record && record->since == 0 && passed(member, record->start)) {
        record->since = weft__now_ns();
    }
    bool seen = false;
    if (record && record->since != 0) {
        *sight_p = (weft_nccl_sight_t){record->call, record->first, record->last, record->since};
        seen = true;
    } else if (member->since != 0) {
        *sight_p = (weft_nccl_sight_t){member->current, member->calls, member->calls,
                                       member->since};
        seen = true;
    }
    pthread_mutex_unlock(&member->lock);
    return seen;
}

bool weft__nccl_idle(weft_nccl_member_t *member)
{
    pthread_mutex_lock(&member->lock);
    mark_unmarked(member);
    bool idle = oldest(member) == NULL;
    pthread_mutex_unlock(&member->lock);
    return idle;
}

void weft__nccl_free_inflight(weft_nccl_member_t *member)
{
    const weft_cuda_device_ops_t *ops = member->binding.ops;
    for (int i = 0; i < WEFT_NCCL_INFLIGHT; i++) {
        void *const events[] = {member->inflight[i].start, member->inflight[i].end};
        for (int k = 0; k < 2; k++) {
            if (events[k]) {
                ops->event_destroy(member->binding.gpu, events[k]);
            }
        }
    }
    memset(member->inflight, 0, sizeof(member->inflight));
}
