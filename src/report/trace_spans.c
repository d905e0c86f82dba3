#include "report/trace_spans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "report/values.h"

const weft_json_value_t *weft__trace_events(const weft_json_value_t *root)
{
    const weft_json_value_t *events = root != NULL && root->kind == WEFT_JSON_ARRAY
                                          ? root
                                          : weft__json_get(root, "traceEvents");
    return events != NULL && events->kind == WEFT_JSON_ARRAY ? events : NULL;
}

static bool read_event(const weft_json_value_t *event, weft_trace_event_t *span)
{
    double start = weft__value_number(event, "ts"), length = weft__value_number(event, "dur");
    if (!weft__json_to_int(weft__json_get(event, "pid"), &span->rank) ||
        !weft__json_to_int(weft__json_get(event, "tid"), &span->track) ||
        !(fabs(start) < 1e18 && length >= 0 && length < 1e18)) {
        return false;
    }
    span->name = weft__value_text(event, "name");
    span->start = start / 1000;
    span->end = (start + length) / 1000;
    span->step = weft__value_number(weft__json_get(event, "args"), "step");
    return true;
}

weft_status_t weft__trace_spans(const weft_json_value_t *root, weft_trace_spans_t *spans_p)
{
    const weft_json_value_t *events = weft__trace_events(root);
    weft_trace_spans_t spans = {0};
    WEFT_TRY(weft__values_alloc(&spans.at, events != NULL ? events->length : 0, sizeof(*spans.at)));
    for (const weft_json_value_t *event = events != NULL ? weft__json_first(events) : NULL;
         event != NULL; event = weft__json_next(events, event)) {
        if (!weft__json_is(weft__json_get(event, "ph"), "X")) {
            continue;
        }
        if (read_event(event, &spans.at[spans.count])) {
            spans.count++;
        } else {
            spans.unreadable++;
        }
    }
    *spans_p = spans;
    return WEFT_OK;
}

const char *weft__trace_name(const weft_json_value_t *root, int64_t rank, int64_t track)
{
    const weft_json_value_t *events = weft__trace_events(root);
    const char *what = track < 0 ? "process_name" : "thread_name";
    for (const weft_json_value_t *event = events != NULL ? weft__json_first(events) : NULL;
         event != NULL; event = weft__json_next(events, event)) {
        int64_t number;
        if (weft__json_is(weft__json_get(event, "ph"), "M") &&
            weft__json_is(weft__json_get(event, "name"), what) &&
            weft__json_to_int(weft__json_get(event, "pid"), &number) && number == rank &&
            (track < 0 ||
             (weft__json_to_int(weft__json_get(event, "tid"), &number) && number == track))) {
            return weft__json_text(weft__json_get(weft__json_get(event, "args"), "name"), NULL);
        }
    }
    return NULL;
}

/* ---- the step ------------------------------------------------------------------------------- */

static int by_step(const void *a, const void *b)
{
    const weft_trace_window_t *x = a, *y = b;
    return (x->step > y->step) - (x->step < y->step);
}

static int by_length(const void *a, const void *b)
{
    const weft_trace_window_t *x = a, *y = b;
    double p = x->end - x->start, q = y->end - y->start;
    return p != q ? (p > q) - (p < q) : by_step(a, b);
}

/* One entry for each step, from its earliest start to its latest end; returns how many. */
static size_t join_steps(weft_trace_window_t *steps, size_t count)
{
    size_t kept = 0;
    qsort(steps, count, sizeof(*steps), by_step);
    for (size_t i = 0; i < count; i++) {
        weft_trace_window_t *last = kept > 0 ? &steps[kept - 1] : NULL;
        if (last != NULL && last->step == steps[i].step) {
            last->start = fmin(last->start, steps[i].start);
            last->end = fmax(last->end, steps[i].end);
        } else {
            steps[kept++] = steps[i];
        }
    }
    return kept;
}

weft_status_t weft__trace_choose(const weft_trace_spans_t *spans, weft_trace_window_t *window_p)
{
    weft_trace_window_t *steps, window = {.start = NAN, .end = NAN, .step = NAN};
    size_t count = 0;
    WEFT_TRY(weft__values_alloc(&steps, spans->count, sizeof(*steps)));
    for (size_t i = 0; i < spans->count; i++) {
        const weft_trace_event_t *span = &spans->at[i];
        window.start = fmin(window.start, span->start);
        window.end = fmax(window.end, span->end);
        if (!isnan(span->step) && strcmp(span->name, "step") == 0) {
            steps[count++] = (weft_trace_window_t){
                .start = span->start, .end = span->end, .step = span->step};
        }
    }
    count = join_steps(steps, count);
    if (count > 0) {
        size_t skip = count > 1;
        qsort(steps + skip, count - skip, sizeof(*steps), by_length);
        window = steps[skip + (count - skip - 1) / 2];
        window.steps = count;
    }
    free(steps);
    *window_p = window;
    return WEFT_OK;
}
