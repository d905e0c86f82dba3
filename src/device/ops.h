/* What a kind of device offers: the public calls of <weft/device.h> without the checks of their
 * arguments, which device.c has made. All devices of a process are of one kind. */
#ifndef WEFT_DEVICE_OPS_H
#define WEFT_DEVICE_OPS_H

#include "device/device.h"

typedef struct weft_device_ops {
    const char *kind; /* as in the setting WEFT_DEVICE */

    weft_status_t (*alloc)(int device, void **ptr_p, size_t bytes);
    weft_status_t (*release)(void *ptr);
    weft_status_t (*stats)(int device, weft_pool_stats_t *stats_p);
    weft_status_t (*trim)(int device, uint64_t keep);
    weft_status_t (*bounds)(const void *ptr, weft_bounds_t *bounds, int *device_p); /* device.h */
    weft_status_t (*host_alloc)(void **ptr_p, size_t bytes);
    weft_status_t (*host_release)(void *ptr);

    /* Optional: weft_register of [ptr, ptr + bytes); what it takes to undo that, or NULL for
     * nothing. */
    weft_status_t (*enlist)(int device, void *ptr, size_t bytes, void **entry_p);
    weft_status_t (*delist)(void *entry);

    /* On `stream`, or with NULL on `device` and done on return. */
    weft_status_t (*copy)(int device, void *dst, const void *src, size_t bytes,
                          weft_stream_h stream);
    weft_status_t (*fill)(int device, void *dst, int value, size_t bytes, weft_stream_h stream);
    weft_status_t (*call)(weft_stream_h stream, void (*fn)(void *arg), void *arg);

    weft_status_t (*stream_create)(int device, weft_stream_h *stream_p);
    weft_status_t (*lane_create)(int device, weft_stream_h *stream_p); /* device.h */
    weft_status_t (*stream_wrap)(int device, void *native, weft_stream_h *stream_p);
    weft_status_t (*stream_native)(weft_stream_h stream, void **native_p);
    weft_status_t (*stream_destroy)(weft_stream_h stream);
    bool (*stream_alive)(weft_stream_h stream); /* virtual GPUs: false also of what is no stream */
    bool (*stream_is_self)(weft_stream_h stream); /* does its work run in the calling thread? */
    weft_status_t (*stream_synchronize)(weft_stream_h stream);
    weft_status_t (*stream_query)(weft_stream_h stream);
    /* Optional: no stream is ever captured. */
    weft_status_t (*stream_capturing)(weft_stream_h stream, bool *capturing_p);
    weft_status_t (*stream_wait)(weft_stream_h stream, weft_event_h event);
    weft_status_t (*synchronize)(int device);

    weft_status_t (*event_create)(weft_event_h *event_p);
    void (*event_destroy)(weft_event_h event);
    bool (*event_alive)(weft_event_h event);
    weft_status_t (*event_record)(int device, weft_event_h event, weft_stream_h stream);
    weft_status_t (*event_query)(weft_event_h event);
    weft_status_t (*event_synchronize)(weft_event_h event);
    weft_status_t (*event_elapsed)(weft_event_h start, weft_event_h end, double *ms_p);
} weft_device_ops_t;

extern const weft_device_ops_t weft__device_cpu, weft__device_cuda;

/* The kind that the setting WEFT_DEVICE chose, decided at the first call. Fails, with the reason,
 * if it asks for GPUs and there are none. */
weft_status_t weft__device_ops(const weft_device_ops_t **ops_p);

#endif
