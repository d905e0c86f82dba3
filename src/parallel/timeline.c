/* When work on streams ran: see timeline.h. */
#include "parallel/timeline.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

/* Spans of two steps of a deep model; more are not traced until some have been collected. */
#define SPANS 4096

typedef struct span {
    weft_event_h start, end;
    weft_track_t track;
    const char *name;
    int64_t step, bytes;
    bool ended;
} span_t;

struct weft_timeline {
    weft_trace_t *trace;
    weft_event_h base; /* passed at base_ns of the host's clock */
    uint64_t base_ns;
    int64_t step;     /* the present one */
    int first, count; /* of the ring */
    span_t spans[SPANS];
};

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
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a timeline of %d spans", SPANS);
    }
    timeline->trace = trace;
    weft_status_t status = mark_base(timeline);
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
    for (int i = 0; i < SPANS; i++) {
        if (timeline->spans[i].start != NULL) {
            weft_event_destroy(timeline->spans[i].start);
        }
        if (timeline->spans[i].end != NULL) {
            weft_event_destroy(timeline->spans[i].end);
        }
    }
    if (timeline->base != NULL) {
        weft_event_destroy(timeline->base);
    }
    free(timeline);
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
    if (timeline == NULL || timeline->count == SPANS) {
        return -1;
    }
    int number = (timeline->first + timeline->count) % SPANS;
    span_t *span = &timeline->spans[number];
    if (!has_events(span) || weft_event_record(span->start, stream) != WEFT_OK) {
        return -1; /* a trace with a gap; the work itself is not affected */
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
        span_t *span = &timeline->spans[number];
        span->ended = weft_event_record(span->end, stream) == WEFT_OK;
    }
}

void weft__timeline_collect(weft_timeline_t *timeline)
{
    while (timeline != NULL && timeline->count > 0) {
        span_t *span = &timeline->spans[timeline->first];
        double start_ms, end_ms;
        if (!span->ended || weft_event_query(span->end) != WEFT_OK ||
            weft_event_elapsed(timeline->base, span->start, &start_ms) != WEFT_OK ||
            weft_event_elapsed(timeline->base, span->end, &end_ms) != WEFT_OK) {
            return;
        }
        weft__trace_span(timeline->trace, span->track, span->name,
                         timeline->base_ns + (uint64_t)(start_ms * 1e6),
                         timeline->base_ns + (uint64_t)(end_ms * 1e6), span->step, span->bytes);
        timeline->first = (timeline->first + 1) % SPANS;
        timeline->count--;
    }
}
