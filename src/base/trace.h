/* Traces for Perfetto (ui.perfetto.dev) and chrome://tracing: what every rank did when.
 *
 * A rank records spans in memory, which costs two clock reads and one store per span, and makes its
 * part when it ends; one rank merges the parts into one file. Tracks are the rows below a
 * rank; what may happen at the same time has rows of its own:
 *
 *     weft__trace_open(rank, 1 << 20, &trace);
 *     uint64_t start = weft__now_ns();
 *     ... work ...
 *     weft__trace_span(trace, COMPUTE, "forward", start, weft__now_ns(), -1, -1);
 *     weft__trace_save(trace, &parts[rank]);
 *     weft__trace_merge("run/trace.json", &tracks, parts, ranks);
 *
 * A NULL trace records nothing, so that callers need not ask whether one is wanted. */
#ifndef WEFT_BASE_TRACE_H
#define WEFT_BASE_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>

#include "base/json.h"

typedef struct weft_trace weft_trace_t;

#define WEFT_TRACE_START "{\"displayTimeUnit\"" /* what a file that merge wrote begins with */

/* The rows of a rank have numbers from 0 on; what they are is the recorder's to say. */
typedef struct weft_tracks {
    int count; /* at most WEFT_TRACKS_MOST */
    const char *const *names;
    void (*about)(weft_json_t *json,
                  void *ctx); /* optional: what is known of the run, as keys and */
    void *ctx;                /* values of the object otherData */
} weft_tracks_t;
#define WEFT_TRACKS_MOST 32

/* Room for `capacity` spans (rounded up to 1024 at least); pages are touched as they fill. When
 * it is full, later spans are counted and dropped, and the saved trace says so. */
weft_status_t weft__trace_open(int rank, size_t capacity, weft_trace_t **trace_p);
void weft__trace_close(weft_trace_t *trace);

/* Count a span that could not be measured, for what the saved trace says. Any thread. */
void weft__trace_lose(weft_trace_t *trace);

/* Record one span, in nanoseconds of weft__now_ns (all processes of a host have the same clock; a
 * span of a GPU is converted by the caller). `name` is kept as a pointer: a literal, or something
 * that outlives the trace. `step` and `bytes` are shown with the span unless negative. Any
 * thread; lock-free. */
void weft__trace_span(weft_trace_t *trace, int track, const char *name, uint64_t start_ns,
                      uint64_t end_ns, int64_t step, int64_t bytes);

/* The spans of a rank, as text. */
typedef struct weft_trace_part {
    char *text; /* malloced */
    size_t size;
} weft_trace_part_t;

/* The part of this rank. No span may be recorded meanwhile. */
weft_status_t weft__trace_save(const weft_trace_t *trace, weft_trace_part_t *part_p);

/* Join parts into one trace that starts at time 0. An empty part is left out; WEFT_ERR_NOT_FOUND if
 * all are. */
weft_status_t weft__trace_merge(const char *path, const weft_tracks_t *tracks,
                                const weft_trace_part_t *parts, int count);

#endif
