/* Devices: the edge of the public API. Arguments are checked here and nowhere below; the work is
 * done by the kind of device, in cpu/ or cuda/. */
#include "device/device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/settings.h"
#include "device/cpu/memory.h"
#include "device/cuda.h"
#include "device/cuda/load.h"
#include "device/ops.h"

/* -1: not chosen. The settings are only read when somebody asks. */
static atomic_int default_device = -1;
static _Thread_local int current_device = -1;

/* ---- the kind of device ------------------------------------------------------------------ */

static struct {
    pthread_once_t once;
    const weft_device_ops_t *ops; /* NULL: what was asked for is not to be had */
    char why[512];
} kind = {.once = PTHREAD_ONCE_INIT};

static int start_device(void);

/* Where a GPU may be, but the module to use it is missing, programs are slow by mistake: one rank
 * of a host says so. */
static void say_why_virtual(const char *why)
{
    bool loud = weft__cuda_broken_module() && start_device() == 0;
    weft__log(loud ? WEFT_LOG_WARN : WEFT_LOG_INFO,
              "virtual GPUs are used, not real ones (WEFT_DEVICE=auto): %s", why);
}

static void choose_kind(void)
{
    const char *asked = weft__settings()->device, *why = "";
    bool cuda = strcmp(asked, "cuda") == 0, automatic = strcmp(asked, "auto") == 0;
    if (!cuda && !automatic && strcmp(asked, "cpu") != 0) {
        snprintf(kind.why, sizeof(kind.why), "WEFT_DEVICE is \"%s\"; it can be cpu, cuda or auto",
                 asked);
    } else if ((cuda || automatic) && weft__cuda_load(&why)) {
        kind.ops = &weft__device_cuda;
    } else if (cuda) {
        snprintf(kind.why, sizeof(kind.why),
                 "there is no GPU to use, but cuda was asked for (WEFT_DEVICE): %s; with cpu ranks "
                 "run on virtual GPUs",
                 why);
    } else {
        kind.ops = &weft__device_cpu;
        if (automatic) {
            say_why_virtual(why);
        }
    }
}

weft_status_t weft__device_ops(const weft_device_ops_t **ops_p)
{
    pthread_once(&kind.once, choose_kind);
    *ops_p = kind.ops;
    return kind.ops != NULL ? WEFT_OK : weft__fail(WEFT_ERR_UNSUPPORTED, "%s", kind.why);
}

/* Streams and events only come from a kind that there is. */
static const weft_device_ops_t *ops_now(void)
{
    return kind.ops != NULL ? kind.ops : &weft__device_cpu;
}

bool weft__device_is_cuda(void)
{
    const weft_device_ops_t *ops;
    return weft__device_ops(&ops) == WEFT_OK && ops == &weft__device_cuda;
}

weft_status_t weft_device_kind(const char **kind_p)
{
    const weft_device_ops_t *ops;
    weft_status_t status = weft__device_ops(&ops);
    if (status == WEFT_OK && kind_p == NULL) {
        return weft__fail(WEFT_ERR_INVALID, "weft_device_kind: the place for the result is NULL");
    }
    if (status == WEFT_OK) {
        *kind_p = ops->kind;
    }
    return status;
}

/* ---- checks of arguments ---------------------------------------------------------------- */

static weft_status_t check_output(const char *call, const void *output)
{
    if (output == NULL) {
        return weft__fail(WEFT_ERR_INVALID, "%s: the place for the result is NULL", call);
    }
    return WEFT_OK;
}

weft_status_t weft__device_check(const char *call, int device)
{
    int count;
    weft_device_count(&count);
    if (device < 0 || device >= count) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s: there is no device %d, only 0 to %d (the setting WEFT_DEVICES)",
                          call, device, count - 1);
    }
    return WEFT_OK;
}

/* Of a stream that may be NULL, where `self` says whether its own worker may make this call. */
static weft_status_t check_stream(const char *call, weft_stream_h stream, bool self)
{
    if (stream == NULL) {
        return WEFT_OK;
    }
    if (!ops_now()->stream_alive(stream)) {
        return weft__fail(WEFT_ERR_INVALID, "%s: " WEFT_STREAM_GONE, call);
    }
    if (!self && ops_now()->stream_is_self(stream)) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s: called by a function that runs on the same stream: it would wait "
                          "for itself for ever",
                          call);
    }
    return weft__fork_guard(call);
}

static weft_status_t check_event(const char *call, weft_event_h event)
{
    if (event == NULL || !ops_now()->event_alive(event)) {
        return weft__fail(WEFT_ERR_INVALID, "%s: the event is %s", call,
                          event == NULL ? "NULL" : "destroyed already");
    }
    return weft__fork_guard(call);
}

static weft_status_t check_memory(const char *call, const char *name, const void *ptr, size_t bytes)
{
    if (bytes > 0 && ptr == NULL) {
        return weft__fail(WEFT_ERR_INVALID, "%s: %s is NULL and bytes is %zu", call, name, bytes);
    }
    if ((uintptr_t)ptr + bytes < (uintptr_t)ptr) {
        return weft__fail(WEFT_ERR_INVALID, "%s: %zu bytes at %s = %p go past the end of memory",
                          call, bytes, name, ptr);
    }
    return WEFT_OK;
}

/* ---- devices ---------------------------------------------------------------------------- */

static int clamp_device(int device)
{
    return device < 0 ? 0 : device % WEFT_MAX_DEVICES;
}

static int start_device(void)
{
    /* Pairs with the store in weft__device_set_default. */
    int device = atomic_load_explicit(&default_device, memory_order_relaxed);
    return device >= 0 ? device : clamp_device(weft__settings()->local_rank);
}

void weft__device_set_default(int device)
{
    /* Pairs with the load in start_device. */
    atomic_store_explicit(&default_device, clamp_device(device), memory_order_relaxed);
}

static int device_now(void)
{
    return current_device >= 0 ? current_device : start_device();
}

weft_status_t weft_device_count(int *count_p)
{
    const weft_settings_t *settings = weft__settings();
    int count = settings->devices > settings->local_size ? settings->devices : settings->local_size;
    WEFT_TRY(check_output("weft_device_count", count_p));
    if (count <= start_device()) {
        count = start_device() + 1;
    }
    *count_p = count > WEFT_MAX_DEVICES ? WEFT_MAX_DEVICES : count;
    return WEFT_OK;
}

weft_status_t weft_device_set(int device)
{
    WEFT_TRY(weft__device_check("weft_device_set", device));
    current_device = device;
    return WEFT_OK;
}

weft_status_t weft_device_get(int *device_p)
{
    WEFT_TRY(check_output("weft_device_get", device_p));
    *device_p = device_now();
    return WEFT_OK;
}

weft_status_t weft_device_synchronize(void)
{
    const weft_device_ops_t *ops;
    WEFT_TRY(weft__fork_guard("weft_device_synchronize"));
    WEFT_TRY(weft__device_ops(&ops));
    return ops->synchronize(device_now());
}

/* ---- memory ----------------------------------------------------------------------------- */

weft_status_t weft__device_malloc(int device, void **ptr_p, size_t bytes)
{
    const weft_device_ops_t *ops;
    WEFT_TRY(weft__device_ops(&ops));
    return ops->alloc(device, ptr_p, bytes);
}

weft_status_t weft_malloc(void **ptr_p, size_t bytes)
{
    WEFT_TRY(check_output("weft_malloc", ptr_p));
    return weft__device_malloc(device_now(), ptr_p, bytes);
}

weft_status_t weft_free(void *ptr)
{
    return ptr == NULL ? WEFT_OK : ops_now()->release(ptr);
}

/* The serial of what is known for ever. */
static const _Atomic uint64_t never_changes = 1;

void weft__bounds_set(weft_bounds_t *bounds, uintptr_t base, uintptr_t end,
                      const _Atomic uint64_t *serial_p, uint64_t serial)
{
    atomic_store_explicit(&bounds->base, base, memory_order_relaxed);
    atomic_store_explicit(&bounds->end, end, memory_order_relaxed);
    atomic_store_explicit(&bounds->serial, serial, memory_order_relaxed);
    atomic_store_explicit(&bounds->serial_p, serial_p, memory_order_relaxed);
}

void weft__bounds_clear(weft_bounds_t *bounds)
{
    weft__bounds_set(bounds, UINTPTR_MAX, 0, &never_changes, 0);
}

void weft__bounds_open(weft_bounds_t *bounds)
{
    weft__bounds_set(bounds, 0, UINTPTR_MAX, &never_changes, 1);
}

weft_status_t weft__bounds_find(const void *ptr, weft_bounds_t *bounds, int *device_p)
{
    return ops_now()->bounds(ptr, bounds, device_p);
}

weft_status_t weft_host_malloc(void **ptr_p, size_t bytes)
{
    const weft_device_ops_t *ops;
    WEFT_TRY(check_output("weft_host_malloc", ptr_p));
    WEFT_TRY(weft__device_ops(&ops));
    return ops->host_alloc(ptr_p, bytes);
}

weft_status_t weft_host_free(void *ptr)
{
    return ptr == NULL ? WEFT_OK : ops_now()->host_release(ptr);
}

weft_status_t weft_pool_stats(int device, weft_pool_stats_t *stats_p)
{
    const weft_device_ops_t *ops;
    WEFT_TRY(weft__device_check("weft_pool_stats", device));
    WEFT_TRY(check_output("weft_pool_stats", stats_p));
    WEFT_TRY(weft__device_ops(&ops));
    return ops->stats(device, stats_p);
}

weft_status_t weft_pool_trim(int device, size_t keep)
{
    const weft_device_ops_t *ops;
    WEFT_TRY(weft__device_check("weft_pool_trim", device));
    WEFT_TRY(weft__device_ops(&ops));
    return ops->trim(device, keep);
}

/* Is [ptr, ptr + bytes) in one allocation that is in use, if it is of a pool at all? */
static weft_status_t check_bounds(const char *call, bool dst, const void *ptr, size_t bytes)
{
    static _Thread_local weft_bounds_t known[2]; /* of the last src and dst: most are used again */
    weft_bounds_t *bounds = &known[dst];
    const char *name = dst ? "dst" : "src";
    int device = 0;
    bool checks = bytes > 0 && (!weft__device_is_cuda() || weft__settings()->check_memory) &&
                  !weft__bounds_hold(bounds, ptr, bytes);
    weft_status_t status = checks ? weft__bounds_find(ptr, bounds, &device) : WEFT_PENDING;
    if (status == WEFT_ERR_NOT_FOUND) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s: %s, %zu bytes at %p, is memory of device %d that is not in use: it "
                          "was freed, or weft_malloc never gave it",
                          call, name, bytes, ptr, device);
    }
    if (status == WEFT_OK && !weft__bounds_hold(bounds, ptr, bytes)) {
        uintptr_t base = atomic_load_explicit(&bounds->base, memory_order_relaxed);
        size_t has = atomic_load_explicit(&bounds->end, memory_order_relaxed) - base;
        return weft__fail(WEFT_ERR_INVALID,
                          "%s: %s needs %zu bytes at %p, but that is byte %zu of an allocation "
                          "(weft_malloc) of %zu bytes",
                          call, name, bytes, ptr, (uintptr_t)ptr - base, has);
    }
    return WEFT_OK;
}

weft_status_t weft__device_check_copy(const char *call, const void *dst, const void *src,
                                      size_t bytes, weft_stream_h stream)
{
    const weft_device_ops_t *ops;
    WEFT_TRY(check_memory(call, "dst", dst, bytes));
    WEFT_TRY(check_memory(call, "src", src, bytes));
    WEFT_TRY(check_stream(call, stream, true));
    WEFT_TRY(weft__device_ops(&ops));
    WEFT_TRY(check_bounds(call, true, dst, bytes));
    return check_bounds(call, false, src, bytes);
}

weft_status_t weft_memcpy(void *dst, const void *src, size_t bytes, weft_stream_h stream)
{
    WEFT_TRY(weft__device_check_copy("weft_memcpy", dst, src, bytes, stream));
    return bytes == 0 ? WEFT_OK : ops_now()->copy(device_now(), dst, src, bytes, stream);
}

weft_status_t weft_memset(void *dst, int value, size_t bytes, weft_stream_h stream)
{
    const weft_device_ops_t *ops;
    weft_status_t status = check_memory("weft_memset", "dst", dst, bytes);
    if (status == WEFT_OK) {
        status = check_stream("weft_memset", stream, true);
    }
    if (status == WEFT_OK) {
        status = weft__device_ops(&ops);
    }
    status = status == WEFT_OK ? check_bounds("weft_memset", true, dst, bytes) : status;
    return status != WEFT_OK || bytes == 0 ? status
                                           : ops->fill(device_now(), dst, value, bytes, stream);
}

/* ---- streams ---------------------------------------------------------------------------- */

weft_status_t weft__stream_create_on(int device, weft_stream_h *stream_p)
{
    const weft_device_ops_t *ops;
    WEFT_TRY(weft__fork_guard("weft_stream_create"));
    WEFT_TRY(weft__device_ops(&ops));
    return ops->stream_create(device, stream_p);
}

bool weft__stream_exists(weft_stream_h stream)
{
    return ops_now()->stream_alive(stream);
}

weft_status_t weft_stream_create(weft_stream_h *stream_p)
{
    WEFT_TRY(check_output("weft_stream_create", stream_p));
    return weft__stream_create_on(device_now(), stream_p);
}

weft_status_t weft__comm_stream_create(weft_stream_h *stream_p)
{
    const weft_device_ops_t *ops;
    WEFT_TRY(weft__device_ops(&ops));
    return ops->lane_create(device_now(), stream_p);
}

weft_status_t weft_stream_wrap(void *native, weft_stream_h *stream_p)
{
    const weft_device_ops_t *ops;
    WEFT_TRY(check_output("weft_stream_wrap", stream_p));
    WEFT_TRY(weft__device_ops(&ops));
    return ops->stream_wrap(device_now(), native, stream_p);
}

weft_status_t weft_stream_native(weft_stream_h stream, void **native_p)
{
    const weft_device_ops_t *ops;
    WEFT_TRY(check_output("weft_stream_native", native_p));
    WEFT_TRY(check_stream("weft_stream_native", stream, true));
    WEFT_TRY(weft__device_ops(&ops));
    return ops->stream_native(stream, native_p);
}

weft_status_t weft_stream_destroy(weft_stream_h stream)
{
    if (stream == NULL) {
        return WEFT_OK;
    }
    WEFT_TRY(check_stream("weft_stream_destroy", stream, false));
    return ops_now()->stream_destroy(stream);
}

weft_status_t weft_stream_synchronize(weft_stream_h stream)
{
    weft_status_t status = check_stream("weft_stream_synchronize", stream, false);
    return status != WEFT_OK || stream == NULL ? status : ops_now()->stream_synchronize(stream);
}

weft_status_t weft_stream_query(weft_stream_h stream)
{
    weft_status_t status = check_stream("weft_stream_query", stream, true);
    return status != WEFT_OK || stream == NULL ? status : ops_now()->stream_query(stream);
}

weft_status_t weft_stream_capturing(weft_stream_h stream, int *capturing_p)
{
    bool capturing = false;
    WEFT_TRY(check_output("weft_stream_capturing", capturing_p));
    WEFT_TRY(check_stream("weft_stream_capturing", stream, true));
    if (stream != NULL && ops_now()->stream_capturing != NULL) {
        WEFT_TRY(ops_now()->stream_capturing(stream, &capturing));
    }
    *capturing_p = capturing;
    return WEFT_OK;
}

weft_status_t weft_stream_wait(weft_stream_h stream, weft_event_h event)
{
    WEFT_TRY(check_event("weft_stream_wait", event));
    WEFT_TRY(check_stream("weft_stream_wait", stream, true));
    return ops_now()->stream_wait(stream, event);
}

weft_status_t weft_stream_call(weft_stream_h stream, void (*fn)(void *arg), void *arg)
{
    const weft_device_ops_t *ops;
    if (fn == NULL) {
        return weft__fail(WEFT_ERR_INVALID, "weft_stream_call: the function is NULL");
    }
    WEFT_TRY(check_stream("weft_stream_call", stream, true));
    WEFT_TRY(weft__device_ops(&ops));
    return ops->call(stream, fn, arg);
}

/* ---- events ----------------------------------------------------------------------------- */

weft_status_t weft_event_create(weft_event_h *event_p)
{
    const weft_device_ops_t *ops;
    WEFT_TRY(check_output("weft_event_create", event_p));
    WEFT_TRY(weft__device_ops(&ops));
    return ops->event_create(event_p);
}

weft_status_t weft_event_destroy(weft_event_h event)
{
    if (event == NULL) {
        return WEFT_OK;
    }
    WEFT_TRY(check_event("weft_event_destroy", event));
    ops_now()->event_destroy(event);
    return WEFT_OK;
}

weft_status_t weft_event_record(weft_event_h event, weft_stream_h stream)
{
    WEFT_TRY(check_event("weft_event_record", event));
    WEFT_TRY(check_stream("weft_event_record", stream, true));
    return ops_now()->event_record(device_now(), event, stream);
}

weft_status_t weft_event_query(weft_event_h event)
{
    WEFT_TRY(check_event("weft_event_query", event));
    return ops_now()->event_query(event);
}

weft_status_t weft_event_synchronize(weft_event_h event)
{
    WEFT_TRY(check_event("weft_event_synchronize", event));
    return ops_now()->event_synchronize(event);
}

weft_status_t weft_event_elapsed(weft_event_h start, weft_event_h end, double *ms_p)
{
    WEFT_TRY(check_event("weft_event_elapsed", start));
    WEFT_TRY(check_event("weft_event_elapsed", end));
    WEFT_TRY(check_output("weft_event_elapsed", ms_p));
    return ops_now()->event_elapsed(start, end, ms_p);
}
