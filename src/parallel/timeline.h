/* When work on streams ran, for traces and for the share of communication.
 *
 * A span is two events on a stream, so measuring never waits; the times are asked for later, when
 * the events have passed. The same for virtual and real GPUs: their events have clocks that this
 * maps to the host's. */
#ifndef WEFT_PARALLEL_TIMELINE_H
#define WEFT_PARALLEL_TIMELINE_H

#include <weft/device.h>

#include "base/trace.h"

/* The rows of a rank in a trace. */
#define WEFT_TRACK_TABLE(X)                                                                        \
    X(WEFT_TRACK_STEP, "step")                                                                     \
    X(WEFT_TRACK_COMPUTE, "compute")                                                               \
    X(WEFT_TRACK_COMM, "communication: gradients")                                                 \
    X(WEFT_TRACK_WEIGHTS, "communication: weights")                                                \
    X(WEFT_TRACK_TENSOR, "communication: tensor parallel")                                         \
    X(WEFT_TRACK_STAGE, "communication: wait for a stage")                                         \
    X(WEFT_TRACK_FORWARD, "communication: to the next stage")                                      \
    X(WEFT_TRACK_BACKWARD, "communication: to the stage before")                                   \
    X(WEFT_TRACK_DATA, "data")                                                                     \
    X(WEFT_TRACK_SAVE, "checkpoint")

typedef enum weft_track {
#define WEFT_TRACK_ENUM(name, text) name,
    WEFT_TRACK_TABLE(WEFT_TRACK_ENUM)
#undef WEFT_TRACK_ENUM
        WEFT_TRACK_COUNT
} weft_track_t;
extern const weft_tracks_t weft__tracks;

typedef struct weft_timeline weft_timeline_t;

/* Record into `trace`; NULL: no timeline is made, *timeline_p is NULL, and the functions below do
 * nothing. */
weft_status_t weft__timeline_create(weft_trace_t *trace, weft_timeline_t **timeline_p);
void weft__timeline_destroy(weft_timeline_t *timeline);

/* Spans that begin from here on belong to that step. */
void weft__timeline_step(weft_timeline_t *timeline, int64_t step);

/* Begin a span on `stream`; returns its number for the end, -1 if there is none. `name` is kept as
 * a pointer; `bytes` may be -1. Spans may overlap. One thread. */
int weft__timeline_begin(weft_timeline_t *timeline, weft_track_t track, const char *name,
                         int64_t bytes, weft_stream_h stream);
void weft__timeline_end(weft_timeline_t *timeline, int span, weft_stream_h stream);

/* Put spans that have ended into the trace. */
void weft__timeline_collect(weft_timeline_t *timeline);

#endif
