/* Events: marks in streams.
 *
 * Every record makes a new mark, which the event and the stream's queue then share; a wait that is
 * queued takes a share too. So recording again, or destroying the event, changes nothing for those
 * who wait, and the last one to let go frees the mark. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "device/cpu/stream.h"

enum { MARK_AHEAD, MARK_AWAITED, MARK_PASSED };

struct weft_mark {
    atomic_uint state; /* AHEAD of the stream, also AWAITED by sleepers, PASSED; a futex */
    atomic_int shares;
    uint64_t passed_ns;   /* valid once PASSED */
    weft_stream_h stream; /* NULL: the default stream */
};

struct weft_event {
    atomic_bool alive;
    pthread_mutex_t lock;
    weft_mark_t *mark;            /* NULL: never recorded */
    struct weft_event *next_free; /* destroyed events are used again, never freed */
};

static pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
static weft_event_h free_events;

/* ---- marks ------------------------------------------------------------------------------ */

static void mark_release(weft_mark_t *mark)
{
    /* Pairs with itself: the last one sees everything the others did with the mark. */
    if (mark != NULL && atomic_fetch_sub_explicit(&mark->shares, 1, memory_order_acq_rel) == 1) {
        free(mark);
    }
}

static void mark_pass(weft_mark_t *mark)
{
    mark->passed_ns = weft__now_ns();
    /* Pairs with mark_passed and mark_wait: who sees PASSED sees the time and the work before. */
    if (atomic_exchange_explicit(&mark->state, MARK_PASSED, memory_order_acq_rel) == MARK_AWAITED) {
        syscall(SYS_futex, &mark->state, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    }
}

static bool mark_passed(weft_mark_t *mark)
{
    /* Pairs with the exchange in mark_pass. */
    return atomic_load_explicit(&mark->state, memory_order_acquire) == MARK_PASSED;
}

static void mark_wait(weft_mark_t *mark)
{
    weft_spin_t spin = weft__spin_start();
    while (!mark_passed(mark)) {
        unsigned state = MARK_AHEAD;
        if (weft__spin_more(&spin)) {
            continue;
        }
        /* Pairs with the exchange in mark_pass: either it sees AWAITED, or we see PASSED. */
        atomic_compare_exchange_strong(&mark->state, &state, MARK_AWAITED);
        if (state != MARK_PASSED) {
            syscall(SYS_futex, &mark->state, FUTEX_WAIT_PRIVATE, MARK_AWAITED, NULL, NULL, 0);
        }
    }
}

/* The event's mark, with a share of it; NULL if there is none. */
static weft_mark_t *take_mark(weft_event_h event)
{
    pthread_mutex_lock(&event->lock);
    weft_mark_t *mark = event->mark;
    if (mark != NULL) {
        /* Ordered by the lock; the event's own share keeps the count above 0. */
        atomic_fetch_add_explicit(&mark->shares, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&event->lock);
    return mark;
}

static void swap_mark(weft_event_h event, weft_mark_t *mark)
{
    pthread_mutex_lock(&event->lock);
    weft_mark_t *old = event->mark;
    event->mark = mark;
    pthread_mutex_unlock(&event->lock);
    mark_release(old);
}

/* ---- events ----------------------------------------------------------------------------- */

weft_status_t weft__event_create(weft_event_h *event_p)
{
    pthread_mutex_lock(&free_lock);
    weft_event_h event = free_events;
    if (event != NULL) {
        free_events = event->next_free;
    }
    pthread_mutex_unlock(&free_lock);
    if (event == NULL) {
        event = calloc(1, sizeof(*event));
        if (event == NULL) {
            return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for an event");
        }
        pthread_mutex_init(&event->lock, NULL);
    }
    /* Pairs with the load in weft__event_alive. */
    atomic_store_explicit(&event->alive, true, memory_order_release);
    *event_p = event;
    return WEFT_OK;
}

void weft__event_destroy(weft_event_h event)
{
    bool alive = true;
    /* Of two that destroy the same event one wins. Pairs with the load in weft__event_alive. */
    if (!atomic_compare_exchange_strong(&event->alive, &alive, false)) {
        return;
    }
    swap_mark(event, NULL);
    pthread_mutex_lock(&free_lock);
    event->next_free = free_events;
    free_events = event;
    pthread_mutex_unlock(&free_lock);
}

bool weft__event_alive(weft_event_h event)
{
    /* Pairs with the stores in weft__event_create and weft__event_destroy. */
    return atomic_load_explicit(&event->alive, memory_order_acquire);
}

static weft_status_t run_record(const weft_work_t *work)
{
    mark_pass(work->mark);
    mark_release(work->mark);
    return WEFT_OK;
}

static weft_status_t run_wait(const weft_work_t *work)
{
    mark_wait(work->mark);
    mark_release(work->mark);
    return WEFT_OK;
}

weft_status_t weft__event_record(weft_event_h event, weft_stream_h stream)
{
    weft_status_t status;
    weft_mark_t *mark = calloc(1, sizeof(*mark));
    if (mark == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "weft_event_record: no memory for a mark");
    }
    mark->stream = stream;
    if (stream == NULL) {
        atomic_init(&mark->shares, 1);
        mark_pass(mark);
    } else {
        weft_work_t work = {.run = run_record, .mark = mark};
        atomic_init(&mark->shares, 2); /* the event's and the queue's */
        status = weft__stream_enqueue(stream, &work);
        if (status != WEFT_OK) {
            free(mark);
            return status;
        }
    }
    swap_mark(event, mark);
    return WEFT_OK;
}

weft_status_t weft__stream_wait(weft_stream_h stream, weft_event_h event)
{
    weft_status_t status = WEFT_OK;
    weft_mark_t *mark = take_mark(event);
    /* A stream is past its own marks by the time it comes here. */
    if (mark == NULL || mark->stream == stream || mark_passed(mark)) {
        mark_release(mark);
        return WEFT_OK;
    }
    weft_work_t work = {.run = run_wait, .mark = mark};
    status = weft__stream_enqueue(stream, &work);
    if (status != WEFT_OK) {
        mark_release(mark);
    }
    return status;
}

weft_status_t weft__event_query(weft_event_h event)
{
    weft_mark_t *mark = take_mark(event);
    weft_status_t status = mark == NULL || mark_passed(mark) ? WEFT_OK : WEFT_PENDING;
    mark_release(mark);
    return status;
}

weft_status_t weft__event_synchronize(weft_event_h event)
{
    weft_status_t status = WEFT_OK;
    weft_mark_t *mark = take_mark(event);
    if (mark == NULL) {
        return WEFT_OK;
    }
    if (!mark_passed(mark) && weft__stream_is_self(mark->stream)) {
        status = weft__fail(WEFT_ERR_INVALID,
                            "a function on a stream waits for an event that its own stream has "
                            "still to pass: it would wait for ever");
    } else {
        mark_wait(mark);
    }
    mark_release(mark);
    return status;
}

weft_status_t weft__event_elapsed(weft_event_h start, weft_event_h end, double *ms_p)
{
    weft_status_t status = WEFT_OK;
    weft_mark_t *first = take_mark(start);
    weft_mark_t *last = take_mark(end);
    if (first == NULL || last == NULL) {
        status = weft__fail(WEFT_ERR_INVALID, "weft_event_elapsed: the %s event was never recorded",
                            first == NULL ? "start" : "end");
    } else if (!mark_passed(first) || !mark_passed(last)) {
        status = WEFT_PENDING;
    } else {
        *ms_p = (double)(int64_t)(last->passed_ns - first->passed_ns) / 1e6;
    }
    mark_release(first);
    mark_release(last);
    return status;
}
