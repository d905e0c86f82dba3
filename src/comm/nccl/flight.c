/* Calls on their way through streams. */
#include <string.h>

#include "base/clock.h"
#include "comm/nccl/seat.h"

/* Has the event passed? One that cannot be asked has: what is wrong then shows elsewhere. */
static bool passed(const weft_nccl_seat_t *seat, void *event)
{
    bool done = true;
    return seat->place.ops->event_done(seat->place.gpu, event, &done) != 0 || done;
}

static int make_events(weft_nccl_seat_t *seat, weft_nccl_flight_t *flight)
{
    const weft_cuda_device_ops_t *ops = seat->place.ops;
    int error = flight->start ? 0 : ops->event_create(seat->place.gpu, &flight->start);
    if (error == 0 && !flight->end) {
        error = ops->event_create(seat->place.gpu, &flight->end);
    }
    return error;
}

/* The place of a new launch: the oldest, if that has landed. If not, so many are on their way that
 * the newest one can stand for this one as well. */
static weft_nccl_flight_t *choose(weft_nccl_seat_t *seat, bool *extends_p)
{
    weft_nccl_flight_t *next = &seat->flights[(seat->newest + 1) % WEFT_NCCL_FLIGHTS];
    *extends_p = next->used && (next->open || !passed(seat, next->end));
    if (*extends_p) {
        return &seat->flights[seat->newest];
    }
    seat->newest = (seat->newest + 1) % WEFT_NCCL_FLIGHTS;
    next->used = false;
    return next;
}

static int launched(weft_nccl_seat_t *seat, weft_nccl_flight_t *flight, int error)
{
    flight->open = false;
    flight->used = error == 0;
    seat->tail = flight->used ? flight : NULL;
    return error;
}

/* Under the lock: a place for `call` and what follows it. Its start is not recorded, so it has passed. */
static int board(weft_nccl_seat_t *seat, const weft_call_t *call, uint64_t first, void *stream,
                 weft_nccl_flight_t **flight_p, bool *extends_p)
{
    weft_nccl_flight_t *flight = choose(seat, extends_p);
    int error = *extends_p ? 0 : make_events(seat, flight);
    if (!*extends_p) {
        flight->first = first;
        flight->since = 0;
        flight->call = *call;
        flight->call.vectors = NULL; /* not ours */
    }
    flight->stream = stream;
    *flight_p = flight;
    return error;
}

/* Under the lock: make a flight of what trails, so that its end is known. A stream that was destroyed
 * has been waited for. */
static int mark_trail(weft_nccl_seat_t *seat)
{
    weft_nccl_trail_t trail = seat->trail;
    weft_nccl_flight_t *flight;
    bool extends, there = false;
    if (!trail.past.stream) {
        return 0;
    }
    seat->trail.past.stream = NULL;
    int error = board(seat, &trail.call, trail.first, weft__cuda_stream(trail.past.stream), &flight,
                      &extends);
    if (error == 0) {
        error = weft__cuda_record(&trail.past, flight->end, &there);
    }
    flight->last = trail.last;
    launched(seat, flight, error);
    if (error == 0 && !there) {
        seat->tail = NULL;
        flight->used = extends && flight->used;
    }
    return error;
}

/* Of calls in one group of NCCL's, NCCL itself keeps the order. */
static int follow(weft_nccl_seat_t *seat, void *stream)
{
    const weft_nccl_flight_t *tail = seat->tail;
    if (!tail || tail->open || tail->stream == stream) {
        return 0;
    }
    int error = mark_trail(seat);
    tail = seat->tail;
    if (error != 0 || !tail) {
        return error;
    }
    return seat->place.ops->stream_wait(seat->place.gpu, stream, tail->end);
}

/* May this launch do without events? */
static bool trails(weft_nccl_seat_t *seat, const weft_call_t *call, void *stream,
                   weft_stream_h handle)
{
    const weft_nccl_flight_t *tail = seat->tail;
    if (!handle || !tail || tail->open || tail->stream != stream ||
        weft__now_ns() - seat->took_off > seat->trail_ns) {
        return false;
    }
    if (!seat->trail.past.stream) {
        seat->trail = (weft_nccl_trail_t){weft__cuda_past(handle), seat->calls, seat->calls, *call};
        seat->trail.call.vectors = NULL; /* not ours */
    }
    seat->trail.last = seat->calls;
    return true;
}

static int take_off(weft_nccl_seat_t *seat, const weft_call_t *call, void *stream,
                    weft_nccl_flight_t **flight_p)
{
    bool extends, trailing = seat->trail.past.stream != NULL; /* on this stream: follow saw to it */
    int error = board(seat, trailing ? &seat->trail.call : call,
                      trailing ? seat->trail.first : seat->calls, stream, flight_p, &extends);
    if (error == 0 && !extends && !trailing) {
        error = seat->place.ops->event_record(seat->place.gpu, (*flight_p)->start, stream);
    }
    seat->trail.past.stream = NULL;
    seat->took_off = weft__now_ns();
    (*flight_p)->last = seat->calls;
    (*flight_p)->open = (*flight_p)->used = error == 0;
    return error;
}

int weft__nccl_depart(weft_nccl_seat_t *seat, const weft_call_t *call, void *stream,
                      weft_stream_h handle, weft_nccl_flight_t **flight_p)
{
    bool captured = false;
    int error = seat->place.ops->stream_capturing(seat->place.gpu, stream, &captured);
    *flight_p = NULL;
    pthread_mutex_lock(&seat->lock);
    if (!weft__is_message(call->coll)) {
        seat->calls++;
        seat->last = *call;
    }
    if (error == 0 && !captured) {
        /* Who waits for the call, and for nothing before it, needs no events to see how it goes. */
        bool bare = (stream == seat->stream && !seat->tail) || trails(seat, call, stream, handle);
        error = bare ? 0 : follow(seat, stream);
        error = error != 0 || bare ? error : take_off(seat, call, stream, flight_p);
    }
    pthread_mutex_unlock(&seat->lock);
    return error;
}

int weft__nccl_arrive(weft_nccl_seat_t *seat, weft_nccl_flight_t *flight)
{
    if (!flight) {
        return 0;
    }
    pthread_mutex_lock(&seat->lock);
    int error = seat->place.ops->event_record(seat->place.gpu, flight->end, flight->stream);
    launched(seat, flight, error);
    pthread_mutex_unlock(&seat->lock);
    return error;
}

void weft__nccl_landed(weft_nccl_seat_t *seat)
{
    pthread_mutex_lock(&seat->lock);
    seat->tail = NULL;
    seat->trail.past.stream = NULL;
    pthread_mutex_unlock(&seat->lock);
}

/* Under the lock: the oldest flight that has not landed. */
static weft_nccl_flight_t *oldest(weft_nccl_seat_t *seat)
{
    for (int i = 1; i <= WEFT_NCCL_FLIGHTS; i++) {
        weft_nccl_flight_t *flight = &seat->flights[(seat->newest + i) % WEFT_NCCL_FLIGHTS];
        if (flight->used && !flight->open) {
            if (!passed(seat, flight->end)) {
                return flight;
            }
            flight->used = false;
        }
    }
    return NULL;
}

bool weft__nccl_oldest(weft_nccl_seat_t *seat, weft_nccl_sight_t *sight_p)
{
    pthread_mutex_lock(&seat->lock);
    if (weft__now_ns() - seat->took_off > seat->trail_ns) {
        mark_trail(seat); /* what is wrong if it fails shows elsewhere */
    }
    weft_nccl_flight_t *flight = oldest(seat);
    if (flight && flight->since == 0 && passed(seat, flight->start)) {
        flight->since = weft__now_ns();
    }
    bool seen = false;
    if (flight && flight->since != 0) {
        *sight_p = (weft_nccl_sight_t){flight->call, flight->first, flight->last, flight->since};
        seen = true;
    } else if (seat->since != 0) {
        *sight_p = (weft_nccl_sight_t){seat->current, seat->calls, seat->calls, seat->since};
        seen = true;
    }
    pthread_mutex_unlock(&seat->lock);
    return seen;
}

bool weft__nccl_idle(weft_nccl_seat_t *seat)
{
    pthread_mutex_lock(&seat->lock);
    mark_trail(seat);
    bool idle = oldest(seat) == NULL;
    pthread_mutex_unlock(&seat->lock);
    return idle;
}

void weft__nccl_free_flights(weft_nccl_seat_t *seat)
{
    const weft_cuda_device_ops_t *ops = seat->place.ops;
    for (int i = 0; i < WEFT_NCCL_FLIGHTS; i++) {
        void *const events[] = {seat->flights[i].start, seat->flights[i].end};
        for (int k = 0; k < 2; k++) {
            if (events[k]) {
                ops->event_destroy(seat->place.gpu, events[k]);
            }
        }
    }
    memset(seat->flights, 0, sizeof(seat->flights));
}
