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

/* Of calls in one group of NCCL's, NCCL itself keeps the order. */
static int follow(weft_nccl_seat_t *seat, void *stream)
{
    const weft_nccl_flight_t *tail = seat->tail;
    if (!tail || tail->open || tail->stream == stream) {
        return 0;
    }
    return seat->place.ops->stream_wait(seat->place.gpu, stream, tail->end);
}

static int take_off(weft_nccl_seat_t *seat, const weft_call_t *call, void *stream,
                    weft_nccl_flight_t **flight_p)
{
    bool extends;
    int error = 0;
    weft_nccl_flight_t *flight = choose(seat, &extends);
    if (!extends) {
        error = make_events(seat, flight);
        if (error == 0) {
            error = seat->place.ops->event_record(seat->place.gpu, flight->start, stream);
        }
        flight->first = seat->calls;
        flight->since = 0;
        flight->call = *call;
        flight->call.vectors = NULL; /* not ours */
    }
    flight->last = seat->calls;
    flight->stream = stream;
    flight->open = flight->used = error == 0;
    *flight_p = flight;
    return error;
}

int weft__nccl_depart(weft_nccl_seat_t *seat, const weft_call_t *call, void *stream,
                      weft_nccl_flight_t **flight_p)
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
        bool waited_for = stream == seat->stream && !seat->tail;
        error = follow(seat, stream);
        error = error != 0 || waited_for ? error : take_off(seat, call, stream, flight_p);
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
    flight->open = false;
    flight->used = error == 0;
    seat->tail = flight->used ? flight : NULL;
    pthread_mutex_unlock(&seat->lock);
    return error;
}

void weft__nccl_landed(weft_nccl_seat_t *seat)
{
    pthread_mutex_lock(&seat->lock);
    seat->tail = NULL;
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
