/* When work on streams ran: see timeline.h. */
#include "parallel/timeline.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

/* Spans whose end has not been seen yet, at first, and at most: those of two steps. */
#define SPANS 1024
#define SPANS_MOST (1 << 18)
#define NUMBERS (1 << 30) /* a multiple of every room */

typedef struct span {
    weft_event_h start, end;
    weft_track_t track;
    const char *name;
    int64_t step, bytes;
    bool ended;
} span_t;

static const char *const names[] = {
#define NAME(name, text) text,
    WEFT_TRACK_TABLE(NAME)
#undef NAME
};
const weft_tracks_t weft__tracks = {.count = WEFT_TRACK_COUNT, .names = names};

struct weft_timeline {
    weft_trace_t *trace;
    weft_event_h base; /* passed at base_ns of the host's clock */
    uint64_t base_ns;
    int64_t step;     /* the present one */
    int first, count; /* numbers [first, first + count) are under way */
    int room;         /* a power of two; number n is at spans[n % room] */
    span_t *spans;
};

static span_t *span_at(const weft_timeline_t *timeline, int number)
{
    return &timeline->spans[number & (timeline->room - 1)];
}

static weft_status_t mark_base(weft_timeline_t *timeline)
{
    weft_status_t status = weft_event_create(&timeline->base);
    if (status == WEFT_OK) {
        status = weft_event_record(timeline->base, NULL);
    }
    if (status == WEFT_OK) {
        status = weft_event_synchronize(timeline->base);
        timeline->base_ns = weft__now_ns();
    }
    return status;
}

weft_status_t weft__timeline_create(weft_trace_t *trace, weft_timeline_t **timeline_p)
{
    *timeline_p = NULL;
    if (trace == NULL) {
        return WEFT_OK;
    }
    weft_timeline_t *timeline = calloc(1, sizeof(*timeline));
    if (timeline == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a timeline");
    }
    timeline->trace = trace;
    timeline->room = SPANS;
    timeline->spans = calloc(SPANS, sizeof(span_t));
    weft_status_t status = timeline->spans != NULL
                               ? mark_base(timeline)
                               : weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a timeline");
    if (status != WEFT_OK) {
        weft__timeline_destroy(timeline);
        return status;
    }
    *timeline_p = timeline;
    return WEFT_OK;
}

void weft__timeline_destroy(weft_timeline_t *timeline)
{
    if (timeline == NULL) {
        return;
    }
    for (int i = 0; i < timeline->room && timeline->spans != NULL; i++) {
        weft_event_destroy(timeline->spans[i].start);
        weft_event_destroy(timeline->spans[i].end);
    }
    weft_event_destroy(timeline->base);
    free(timeline->spans);
    free(timeline);
}

/* Twice the room. All places are taken, so that each goes to another one together with its
 * events. */
static bool grow(weft_timeline_t *timeline)
{
    int room = 2 * timeline->room;
    span_t *spans = room <= SPANS_MOST ? calloc((size_t)room, sizeof(span_t)) : NULL;
    if (spans == NULL) {
        return false;
    }
    for (int i = 0; i < timeline->count; i++) {
        spans[(timeline->first + i) & (room - 1)] = *span_at(timeline, timeline->first + i);
    }
    free(timeline->spans);
    timeline->spans = spans;
    timeline->room = room;
    return true;
}

static bool has_events(span_t *span)
{
    return (span->start != NULL || weft_event_create(&span->start) == WEFT_OK) &&
           (span->end != NULL || weft_event_create(&span->end) == WEFT_OK);
}

void weft__timeline_step(weft_timeline_t *timeline, int64_t step)
{
    if (timeline != NULL) {
        timeline->step = step;
    }
}

int weft__timeline_begin(weft_timeline_t *timeline, weft_track_t track, const char *name,
                         int64_t bytes, weft_stream_h stream)
{
    if (timeline == NULL) {
        return -1;
    }
    bool fits = timeline->count < timeline->room || grow(timeline);
    int number = (timeline->first + timeline->count) % NUMBERS;
    span_t *span = span_at(timeline, number);
    if (!fits || !has_events(span) || weft_event_record(span->start, stream) != WEFT_OK) {
        weft__trace_lose(timeline->trace); /* the work itself is not affected */
        return -1;
    }
    span->track = track;
    span->name = name;
    span->step = timeline->step;
    span->bytes = bytes;
    span->ended = false;
    timeline->count++;
    return number;
}

void weft__timeline_end(weft_timeline_t *timeline, int number, weft_stream_h stream)
{
    if (timeline != NULL && number >= 0) {
        span_t *span = span_at(timeline, number);
        span->ended = weft_event_record(span->end, stream) == WEFT_OK;
    }
}

void weft__timeline_collect(weft_timeline_t *timeline)
{
    while (timeline != NULL && timeline->count > 0) {
        span_t *span = span_at(timeline, timeline->first);
        double start_ms, end_ms;
        if (!span->ended || weft_event_query(span->end) != WEFT_OK ||
            weft_event_elapsed(timeline->base, span->start, &start_ms) != WEFT_OK ||
            weft_event_elapsed(timeline->base, span->end, &end_ms) != WEFT_OK) {
            return;
        }
        weft__trace_span(timeline->trace, span->track, span->name,
                         timeline->base_ns + (uint64_t)(start_ms * 1e6),
                         timeline->base_ns + (uint64_t)(end_ms * 1e6), span->step, span->bytes);
        timeline->first = (timeline->first + 1) % NUMBERS;
        timeline->count--;
    }
}
