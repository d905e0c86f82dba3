/* The spans of a trace, and one step of it. */
#ifndef WEFT_REPORT_TRACE_SPANS_H
#define WEFT_REPORT_TRACE_SPANS_H

#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>

#include "base/json_read.h"

typedef struct weft_trace_event {
    int64_t rank, track; /* process and thread of the trace */
    const char *name;
    double start, end; /* milliseconds */
    double step;       /* NaN: none */
} weft_trace_event_t;

typedef struct weft_trace_spans {
    weft_trace_event_t *at;
    size_t count;
    size_t unreadable; /* events of spans without rank or times */
} weft_trace_spans_t;

/* What is shown of a trace. */
typedef struct weft_trace_window {
    double start, end; /* milliseconds */
    double step;       /* its number; NaN: the trace has no steps, and this is all of it */
    size_t steps;      /* from how many it was chosen */
} weft_trace_window_t;

/* All spans (complete events, "ph": "X"); `root` outlives them. at is malloced. */
weft_status_t weft__trace_spans(const weft_json_value_t *root, weft_trace_spans_t *spans_p);

/* The events of a trace; NULL if there is no array of them. */
const weft_json_value_t *weft__trace_events(const weft_json_value_t *root);

/* The name that the trace gives a rank (track < 0) or one of its tracks; NULL: none. */
const char *weft__trace_name(const weft_json_value_t *root, int64_t rank, int64_t track);

/* The step whose length is the median, the first one not counted: it has to warm up. */
weft_status_t weft__trace_choose(const weft_trace_spans_t *spans, weft_trace_window_t *window_p);

#endif
