/* Traces: spans in memory, parts as text, one file for the viewer.
 *
 * A part is the rank's number and its events, one per line, each a JSON object with times in
 * nanoseconds of the host's clock. Merging subtracts the earliest time of all parts, so the file
 * starts at 0, and adds the names of processes (ranks) and threads (tracks). */
#include "base/trace.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/output.h"

typedef struct span {
    const char *name;
    uint64_t start, end;
    int64_t step, bytes;
    int track;
    int whole; /* set when the rest is written; read by whoever looks at spans */
} span_t;

struct weft_trace {
    int rank;
    size_t capacity;
    size_t lost;  /* never measured; raised by recording threads */
    size_t taken; /* spans asked for, also those that did not fit; raised by recording threads */
    span_t *spans;
};

weft_status_t weft__trace_open(int rank, size_t capacity, weft_trace_t **trace_p)
{
    weft_trace_t *trace = calloc(1, sizeof(*trace));
    capacity = capacity < 1024 ? 1024 : capacity;
    if (trace != NULL) {
        trace->rank = rank;
        trace->capacity = capacity;
        trace->spans = calloc(capacity, sizeof(*trace->spans));
    }
    if (trace == NULL || trace->spans == NULL) {
        free(trace);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a trace of %zu spans", capacity);
    }
    *trace_p = trace;
    return WEFT_OK;
}

void weft__trace_close(weft_trace_t *trace)
{
    if (trace != NULL) {
        free(trace->spans);
        free(trace);
    }
}

void weft__trace_lose(weft_trace_t *trace)
{
    __atomic_fetch_add(&trace->lost, 1, __ATOMIC_RELAXED);
}

void weft__trace_span(weft_trace_t *trace, int track, const char *name, uint64_t start_ns,
                      uint64_t end_ns, int64_t step, int64_t bytes)
{
    if (trace == NULL) {
        return;
    }
    /* Relaxed: it only hands out places; what is written there is published by `whole`. */
    size_t at = __atomic_fetch_add(&trace->taken, 1, __ATOMIC_RELAXED);
    if (at >= trace->capacity) {
        return;
    }
    span_t *span = &trace->spans[at];
    span->name = name;
    span->start = start_ns;
    span->end = end_ns > start_ns ? end_ns : start_ns;
    span->step = step;
    span->bytes = bytes;
    span->track = track;
    /* Pairs with the load in next_span. */
    __atomic_store_n(&span->whole, 1, __ATOMIC_RELEASE);
}

/* The next whole span from *at_p on, which moves behind it; NULL after the last. */
static const span_t *next_span(const weft_trace_t *trace, size_t *at_p)
{
    size_t taken = __atomic_load_n(&trace->taken, __ATOMIC_RELAXED);
    taken = taken < trace->capacity ? taken : trace->capacity;
    while (*at_p < taken) {
        const span_t *span = &trace->spans[(*at_p)++];
        /* Pairs with the store at the end of weft__trace_span. */
        if (__atomic_load_n(&span->whole, __ATOMIC_ACQUIRE)) {
            return span;
        }
    }
    return NULL;
}

/* ---- parts ---------------------------------------------------------------------------------- */

static uint64_t earliest(const weft_trace_t *trace)
{
    uint64_t start = UINT64_MAX;
    size_t at = 0;
    for (const span_t *span; (span = next_span(trace, &at)) != NULL;) {
        start = span->start < start ? span->start : start;
    }
    return start;
}

weft_status_t weft__trace_save(const weft_trace_t *trace, weft_trace_part_t *part_p)
{
    weft_trace_part_t part = {NULL, 0};
    FILE *out = open_memstream(&part.text, &part.size);
    if (out == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the trace of rank %d", trace->rank);
    }
    size_t taken = __atomic_load_n(&trace->taken, __ATOMIC_RELAXED), at = 0;
    size_t lost = __atomic_load_n(&trace->lost, __ATOMIC_RELAXED);
    lost += taken > trace->capacity ? taken - trace->capacity : 0;
    fprintf(out, "%d %" PRIu64 " %zu\n", trace->rank, earliest(trace), lost);
    for (const span_t *span; (span = next_span(trace, &at)) != NULL;) {
        fprintf(out, "%d %" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " %s\n", span->track,
                span->start, span->end - span->start, span->step, span->bytes, span->name);
    }
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(part.text);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the trace of rank %d", trace->rank);
    }
    *part_p = part;
    return WEFT_OK;
}

typedef struct part {
    FILE *file;
    int rank;
    uint64_t start;
    size_t lost;
} part_t;

static bool open_part(const weft_trace_part_t *from, part_t *part)
{
    part->file = from->size > 0 ? fmemopen(from->text, from->size, "r") : NULL;
    if (part->file == NULL) {
        return false;
    }
    if (fscanf(part->file, "%d %" SCNu64 " %zu\n", &part->rank, &part->start, &part->lost) != 3) {
        fclose(part->file);
        part->file = NULL;
        return false;
    }
    return true;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* An event that names a rank or a track. */
static void write_name(weft_json_t *json, const char *what, int rank, int track, const char *name)
{
    weft__json_object(json, NULL);
    weft__json_string(json, "ph", "M");
    weft__json_string(json, "name", what);
    weft__json_int(json, "pid", rank);
    weft__json_int(json, "tid", track);
    weft__json_object(json, "args");
    weft__json_string(json, "name", name);
    weft__json_end(json);
    weft__json_end(json);
}

static void write_span(weft_json_t *json, int rank, const span_t *span)
{
    weft__json_object(json, NULL);
    weft__json_string(json, "ph", "X");
    weft__json_string(json, "name", span->name);
    weft__json_int(json, "pid", rank);
    weft__json_int(json, "tid", span->track);
    weft__json_double(json, "ts", (double)span->start / 1000); /* microseconds */
    weft__json_double(json, "dur", (double)span->end / 1000);
    if (span->step >= 0 || span->bytes >= 0) {
        weft__json_object(json, "args");
        if (span->step >= 0) {
            weft__json_int(json, "step", span->step);
        }
        if (span->bytes >= 0) {
            weft__json_int(json, "bytes", span->bytes);
        }
        weft__json_end(json);
    }
    weft__json_end(json);
}

/* Here `end` of a span is its length. */
static void merge_part(weft_json_t *json, const weft_tracks_t *tracks, const part_t *part,
                       uint64_t zero)
{
    char name[256], line[512];
    snprintf(name, sizeof(name), part->lost > 0 ? "rank %d (%zu spans did not fit)" : "rank %d",
             part->rank, part->lost);
    write_name(json, "process_name", part->rank, 0, name);
    bool named[WEFT_TRACKS_MOST] = {false}; /* rows without spans are not shown */
    while (fgets(line, sizeof(line), part->file) != NULL) {
        span_t span = {.name = name};
        int at = 0;
        if (sscanf(line, "%d %" SCNu64 " %" SCNu64 " %" SCNd64 " %" SCNd64 " %n", &span.track,
                   &span.start, &span.end, &span.step, &span.bytes, &at) != 5) {
            continue;
        }
        if (span.track >= 0 && span.track < tracks->count && !named[span.track]) {
            named[span.track] = true;
            write_name(json, "thread_name", part->rank, span.track, tracks->names[span.track]);
        }
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(line + at, "\n"), line + at);
        span.start = span.start > zero ? span.start - zero : 0;
        write_span(json, part->rank, &span);
    }
}

static weft_status_t write_merged(const char *path, const weft_tracks_t *tracks, part_t *parts,
                                  int count, uint64_t zero)
{
    weft_output_t *out;
    WEFT_TRY(weft__output_open(path, &out));
    weft_json_t json;
    weft__json_start(&json, weft__output_stream(out));
    json.compact = true;
    weft__json_object(&json, NULL);
    weft__json_string(&json, "displayTimeUnit", "ms");
    weft__json_array(&json, "traceEvents");
    for (int i = 0; i < count; i++) {
        if (parts[i].file != NULL) {
            merge_part(&json, tracks, &parts[i], zero);
        }
    }
    weft__json_end(&json);
    if (tracks->about != NULL) {
        weft__json_object(&json, "otherData");
        tracks->about(&json, tracks->ctx);
        weft__json_end(&json);
    }
    weft__json_end(&json);
    return weft__output_end(out, weft__json_finish(&json));
}

weft_status_t weft__trace_merge(const char *path, const weft_tracks_t *tracks,
                                const weft_trace_part_t *from, int count)
{
    part_t *parts = calloc((size_t)count + 1, sizeof(*parts));
    if (parts == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to merge %d traces", count);
    }
    uint64_t zero = UINT64_MAX;
    int there = 0;
    for (int i = 0; i < count; i++) {
        if (open_part(&from[i], &parts[i])) {
            there++;
            zero = parts[i].start < zero ? parts[i].start : zero;
        }
    }
    weft_status_t status = there > 0 ? write_merged(path, tracks, parts, count, zero)
                                     : weft__fail(WEFT_ERR_NOT_FOUND, "no rank left a trace for %s",
                                                  path);
    for (int i = 0; i < count; i++) {
        if (parts[i].file != NULL) {
            fclose(parts[i].file);
        }
    }
    free(parts);
    return status;
}
