/* Streams and events of virtual GPUs: a queue of small work items and one worker thread each.
 * These are the public calls without the checks of their arguments (device.c has those), for
 * streams other than NULL. */
#ifndef WEFT_DEVICE_CPU_STREAM_H
#define WEFT_DEVICE_CPU_STREAM_H

#include <stdbool.h>

#include "device/device.h"

typedef struct weft_mark weft_mark_t;

/* What a worker does next; small enough to be copied into the queue. */
typedef struct weft_work {
    weft_status_t (*run)(const struct weft_work *work);
    union {
        struct {
            weft_status_t (*fn)(void *arg);
            void *arg;
        } push;
        struct {
            void (*fn)(void *arg);
            void *arg;
        } call;
        struct {
            void *dst;
            const void *src;
            size_t bytes;
        } copy;
        struct {
            void *dst;
            size_t bytes;
            int value;
        } fill;
        weft_mark_t *mark;
    };
} weft_work_t;

/* ---- streams ---------------------------------------------------------------------------- */

weft_status_t weft__stream_create(int device, weft_stream_h *stream_p);
weft_status_t weft__stream_create_lane(int device, weft_stream_h *stream_p); /* device.h */
weft_status_t weft__stream_destroy(weft_stream_h stream);

/* Not destroyed? Handles are never unmapped, so that this can be asked of any that once was. */
bool weft__stream_alive(weft_stream_h stream);

/* Is the calling thread the stream's own worker? It would wait for itself. */
bool weft__stream_is_self(weft_stream_h stream);

weft_status_t weft__stream_enqueue(weft_stream_h stream, const weft_work_t *work);
weft_status_t weft__stream_synchronize(weft_stream_h stream);
bool weft__stream_idle(weft_stream_h stream);

/* All streams of a device; the first error is taken, those of other streams stay theirs. */
weft_status_t weft__streams_synchronize(int device);

/* ---- events ----------------------------------------------------------------------------- */

weft_status_t weft__event_create(weft_event_h *event_p);
void weft__event_destroy(weft_event_h event);
bool weft__event_alive(weft_event_h event);
weft_status_t weft__event_record(weft_event_h event, weft_stream_h stream); /* also NULL */
weft_status_t weft__event_query(weft_event_h event);
weft_status_t weft__event_synchronize(weft_event_h event);
weft_status_t weft__event_elapsed(weft_event_h start, weft_event_h end, double *ms_p);
weft_status_t weft__stream_wait(weft_stream_h stream, weft_event_h event);

/* ---- waiting ---------------------------------------------------------------------------- */

/* A few microseconds of polling before a thread sleeps: shorter than a wake-up, which pays where
 * the other side runs on another core, and never where we share one. */
typedef struct weft_spin {
    uint64_t until_ns; /* 0: do not */
} weft_spin_t;

weft_spin_t weft__spin_start(void);
/* Pause; false when it is time to sleep. */
bool weft__spin_more(const weft_spin_t *spin);

#endif
