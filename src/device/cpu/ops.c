/* Virtual GPUs as a kind of device. */
#include "device/ops.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "device/cpu/memory.h"
#include "device/cpu/stream.h"

#define HOST_GRANULE ((size_t)4096)

static weft_status_t host_alloc(void **ptr_p, size_t bytes)
{
    size_t granules = bytes / HOST_GRANULE + (bytes % HOST_GRANULE != 0 || bytes == 0);
    /* Rounded up, the last sizes would be 0 again. */
    void *ptr = granules > SIZE_MAX / HOST_GRANULE
                    ? NULL
                    : aligned_alloc(HOST_GRANULE, granules * HOST_GRANULE);
    if (ptr == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "weft_host_malloc: no %zu bytes of memory", bytes);
    }
    *ptr_p = ptr;
    return WEFT_OK;
}

static weft_status_t host_release(void *ptr)
{
    free(ptr);
    return WEFT_OK;
}

static weft_status_t run_copy(const weft_work_t *work)
{
    memmove(work->copy.dst, work->copy.src, work->copy.bytes);
    return WEFT_OK;
}

static weft_status_t run_fill(const weft_work_t *work)
{
    memset(work->fill.dst, work->fill.value, work->fill.bytes);
    return WEFT_OK;
}

static weft_status_t run_call(const weft_work_t *work)
{
    work->call.fn(work->call.arg);
    return WEFT_OK;
}

/* Now, on the default stream, or in the order of another. */
static weft_status_t run_on(weft_stream_h stream, const weft_work_t *work)
{
    return stream == NULL ? work->run(work) : weft__stream_enqueue(stream, work);
}

static weft_status_t copy(int device, void *dst, const void *src, size_t bytes,
                          weft_stream_h stream)
{
    weft_work_t work = {.run = run_copy, .copy = {.dst = dst, .src = src, .bytes = bytes}};
    (void)device;
    return run_on(stream, &work);
}

static weft_status_t fill(int device, void *dst, int value, size_t bytes, weft_stream_h stream)
{
    weft_work_t work = {.run = run_fill, .fill = {.dst = dst, .bytes = bytes, .value = value}};
    (void)device;
    return run_on(stream, &work);
}

static weft_status_t call(weft_stream_h stream, void (*fn)(void *arg), void *arg)
{
    weft_work_t work = {.run = run_call, .call = {.fn = fn, .arg = arg}};
    return run_on(stream, &work);
}

static weft_status_t stream_wrap(int device, void *native, weft_stream_h *stream_p)
{
    (void)device;
    (void)native;
    (void)stream_p;
    return weft__fail(WEFT_ERR_UNSUPPORTED,
                      "weft_stream_wrap: virtual GPUs have no streams but Weft's own");
}

static weft_status_t stream_native(weft_stream_h stream, void **native_p)
{
    (void)stream;
    (void)native_p;
    return weft__fail(WEFT_ERR_UNSUPPORTED,
                      "weft_stream_native: virtual GPUs have no streams but Weft's own");
}

static weft_status_t stream_query(weft_stream_h stream)
{
    return weft__stream_idle(stream) ? WEFT_OK : WEFT_PENDING;
}

static weft_status_t event_record(int device, weft_event_h event, weft_stream_h stream)
{
    (void)device;
    return weft__event_record(event, stream);
}

static weft_status_t stream_wait(weft_stream_h stream, weft_event_h event)
{
    return stream == NULL ? weft__event_synchronize(event) : weft__stream_wait(stream, event);
}

const weft_device_ops_t weft__device_cpu = {
    .kind = "cpu",
    .alloc = weft__heap_malloc,
    .release = weft__heap_free,
    .stats = weft__heap_stats,
    .trim = weft__heap_trim,
    .bounds = weft__heap_bounds,
    .host_alloc = host_alloc,
    .host_release = host_release,
    .copy = copy,
    .fill = fill,
    .call = call,
    .stream_create = weft__stream_create,
    .lane_create = weft__stream_create_lane,
    .stream_wrap = stream_wrap,
    .stream_native = stream_native,
    .stream_destroy = weft__stream_destroy,
    .stream_alive = weft__stream_alive,
    .stream_is_self = weft__stream_is_self,
    .stream_synchronize = weft__stream_synchronize,
    .stream_query = stream_query,
    .stream_wait = stream_wait,
    .synchronize = weft__streams_synchronize,
    .event_create = weft__event_create,
    .event_destroy = weft__event_destroy,
    .event_alive = weft__event_alive,
    .event_record = event_record,
    .event_query = weft__event_query,
    .event_synchronize = weft__event_synchronize,
    .event_elapsed = weft__event_elapsed,
};
