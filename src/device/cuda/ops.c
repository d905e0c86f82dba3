/* GPUs as a kind of device: streams, events and copies. Handles are never freed, so that one that
 * was destroyed is recognized; each keeps its native counterpart. */
#include "device/ops.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "device/cpu/memory.h"
#include "device/cuda/memory.h"

/* Somebody who launched kernels on a stream, and knows whether they went well. */
typedef struct check {
    weft_cuda_check_fn ask;
    void *ctx;
} check_t;

struct weft_stream {
    atomic_bool alive; /* released by create, cleared by destroy; acquired by stream_alive */
    uint64_t life;     /* how often the handle was given out; under streams_lock */
    int device, gpu;
    void *native;
    bool wrapped;         /* the program's own */
    pthread_mutex_t lock; /* of checks: a stream's own, as every call takes it */
    int checks, room;
    check_t *check;
    struct weft_stream *next, *next_free;
};

struct weft_event {
    atomic_bool alive;
    pthread_mutex_t lock;
    int gpu;
    void *native; /* made by the first record, on the stream's GPU */
    bool recorded;
    struct weft_event *next_free;
};

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static weft_stream_h streams, free_streams; /* all that were ever made; those destroyed */
static weft_event_h free_events;

/* ---- memory ----------------------------------------------------------------------------- */

static int stream_gpu(int device, weft_stream_h stream)
{
    return stream != NULL ? stream->gpu : weft__cuda_gpu(device);
}

void *weft__cuda_stream(weft_stream_h stream)
{
    return stream != NULL ? stream->native : WEFT_CUDA_THREAD_STREAM;
}

int weft__cuda_stream_gpu(weft_stream_h stream)
{
    return stream->gpu;
}

bool weft__cuda_wrapped(weft_stream_h stream)
{
    return stream->wrapped;
}

/* Work on the default stream is done on return. */
static weft_status_t settle(int error, int gpu, weft_stream_h stream, const char *what)
{
    if (error == 0 && stream == NULL) {
        error = weft__cuda()->stream_sync(gpu, WEFT_CUDA_THREAD_STREAM);
    }
    return weft__cuda_status(error, what);
}

/* Regions that overlap go through a third one. */
static weft_status_t copy_overlapping(int gpu, int device, void *dst, const void *src, size_t bytes,
                                      weft_stream_h stream)
{
    void *between, *native = weft__cuda_stream(stream);
    WEFT_TRY(weft__cuda_alloc(device, &between, bytes));
    int error = weft__cuda()->copy(gpu, between, src, bytes, native);
    error = error ? error : weft__cuda()->copy(gpu, dst, between, bytes, native);
    error = error ? error
                  : weft__cuda()->stream_sync(gpu, native); /* `between` is used until then */
    weft__cuda_free(between);
    return weft__cuda_status(error, "weft_memcpy");
}

static weft_status_t copy(int device, void *dst, const void *src, size_t bytes,
                          weft_stream_h stream)
{
    int gpu = stream_gpu(device, stream);
    uintptr_t to = (uintptr_t)dst, from = (uintptr_t)src;
    if (to == from) {
        return WEFT_OK;
    }
    if (to < from + bytes && from < to + bytes) {
        return copy_overlapping(gpu, stream != NULL ? stream->device : device, dst, src, bytes,
                                stream);
    }
    return settle(weft__cuda()->copy(gpu, dst, src, bytes, weft__cuda_stream(stream)), gpu, stream,
                  "weft_memcpy");
}

typedef struct host_fill {
    void *dst;
    int value;
    size_t bytes;
} host_fill_t;

static void run_host_fill(void *arg)
{
    host_fill_t *work = arg;
    memset(work->dst, work->value, work->bytes);
    free(work);
}

/* Memory that GPUs do not reach is filled by the host, in stream order. */
static weft_status_t fill_plain(void *dst, int value, size_t bytes, weft_stream_h stream)
{
    bool capturing = false;
    if (stream != NULL &&
        (weft__cuda()->stream_capturing(stream->gpu, stream->native, &capturing) != 0 ||
         capturing)) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "weft_memset: plain host memory cannot be filled in a graph; use memory "
                          "from weft_malloc or weft_host_malloc");
    }
    host_fill_t *work = malloc(sizeof(*work));
    if (work == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "weft_memset: no memory to queue it");
    }
    *work = (host_fill_t){dst, value, bytes};
    if (stream == NULL) {
        run_host_fill(work);
        return WEFT_OK;
    }
    int error = weft__cuda()->stream_call(stream->gpu, stream->native, run_host_fill, work);
    if (error != 0) {
        free(work);
    }
    return weft__cuda_status(error, "weft_memset");
}

static weft_status_t fill(int device, void *dst, int value, size_t bytes, weft_stream_h stream)
{
    int gpu = stream_gpu(device, stream), where = 0;
    weft_cuda_slab_t slab;
    if (!weft__cuda_find(dst, bytes, &slab) && weft__cuda()->where(dst, &where) == 0 &&
        where == -2) {
        return fill_plain(dst, value, bytes, stream);
    }
    return settle(weft__cuda()->fill(gpu, dst, value, bytes, weft__cuda_stream(stream)), gpu,
                  stream, "weft_memset");
}

static weft_status_t call(weft_stream_h stream, void (*fn)(void *arg), void *arg)
{
    if (stream == NULL) {
        fn(arg);
        return WEFT_OK;
    }
    return weft__cuda_status(weft__cuda()->stream_call(stream->gpu, stream->native, fn, arg),
                             "weft_stream_call");
}

/* ---- streams ---------------------------------------------------------------------------- */

static weft_status_t take_stream(int device, void *native, bool wrapped, weft_stream_h *stream_p)
{
    pthread_mutex_lock(&streams_lock);
    weft_stream_h stream = free_streams;
    if (stream != NULL) {
        free_streams = stream->next_free;
    } else if ((stream = calloc(1, sizeof(*stream))) != NULL) {
        pthread_mutex_init(&stream->lock, NULL);
        stream->next = streams;
        streams = stream;
    }
    if (stream != NULL) {
        stream->life++;
    }
    pthread_mutex_unlock(&streams_lock);
    if (stream == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a stream");
    }
    stream->device = device;
    stream->gpu = weft__cuda_gpu(device);
    stream->native = native;
    stream->wrapped = wrapped;
    /* Pairs with the load in stream_alive. */
    atomic_store_explicit(&stream->alive, true, memory_order_release);
    *stream_p = stream;
    return WEFT_OK;
}

static weft_status_t stream_create(int device, weft_stream_h *stream_p)
{
    void *native;
    int gpu = weft__cuda_gpu(device), error = weft__cuda()->stream_create(gpu, &native);
    if (error != 0) {
        return weft__cuda_status(error, "weft_stream_create");
    }
    weft_status_t status = take_stream(device, native, false, stream_p);
    if (status != WEFT_OK) {
        weft__cuda()->stream_destroy(gpu, native);
    }
    return status;
}

static weft_status_t stream_wrap(int device, void *native, weft_stream_h *stream_p)
{
    return take_stream(device, native, true, stream_p);
}

static weft_status_t stream_native(weft_stream_h stream, void **native_p)
{
    *native_p = weft__cuda_stream(stream);
    return WEFT_OK;
}

static bool stream_alive(weft_stream_h stream)
{
    /* Pairs with the stores in take_stream and stream_destroy. */
    return atomic_load_explicit(&stream->alive, memory_order_acquire);
}

static bool stream_is_self(weft_stream_h stream)
{
    (void)stream; /* functions on streams run in a thread of CUDA's, which refuses their calls */
    return false;
}

/* The first complaint of those who launched kernels on the stream. */
static weft_status_t ask_checks(weft_stream_h stream, int error)
{
    weft_status_t status = WEFT_OK;
    pthread_mutex_lock(&stream->lock);
    for (int i = 0; i < stream->checks && status == WEFT_OK; i++) {
        status = stream->check[i].ask(stream->check[i].ctx, error);
        if (status != WEFT_OK) { /* told once */
            stream->check[i] = stream->check[--stream->checks];
        }
    }
    pthread_mutex_unlock(&stream->lock);
    return status;
}

static bool make_room(weft_stream_h stream)
{
    int room = stream->room > 0 ? 2 * stream->room : 8;
    check_t *more = realloc(stream->check, (size_t)room * sizeof(*more));
    if (more == NULL) {
        return false;
    }
    stream->check = more;
    stream->room = room;
    return true;
}

weft_status_t weft__cuda_remember(weft_stream_h stream, weft_cuda_check_fn ask, void *ctx)
{
    bool known = false;
    pthread_mutex_lock(&stream->lock);
    for (int i = 0; i < stream->checks && !known; i++) {
        known = stream->check[i].ctx == ctx;
    }
    if (!known && (stream->checks < stream->room || make_room(stream))) {
        stream->check[stream->checks++] = (check_t){ask, ctx};
        known = true;
    }
    pthread_mutex_unlock(&stream->lock);
    return known ? WEFT_OK
                 : weft__fail(WEFT_ERR_NO_MEMORY, "no memory to note whose calls are on a stream");
}

void weft__cuda_forget(void *ctx)
{
    pthread_mutex_lock(&streams_lock);
    for (weft_stream_h stream = streams; stream != NULL; stream = stream->next) {
        int kept = 0;
        pthread_mutex_lock(&stream->lock);
        for (int i = 0; i < stream->checks; i++) {
            if (stream->check[i].ctx != ctx) {
                stream->check[kept++] = stream->check[i];
            }
        }
        stream->checks = kept;
        pthread_mutex_unlock(&stream->lock);
    }
    pthread_mutex_unlock(&streams_lock);
}

static weft_status_t stream_synchronize(weft_stream_h stream)
{
    int error = weft__cuda()->stream_sync(stream->gpu, stream->native);
    WEFT_TRY(ask_checks(stream, error));
    return weft__cuda_status(error, "weft_stream_synchronize");
}

static weft_status_t stream_query(weft_stream_h stream)
{
    bool idle = false;
    int error = weft__cuda()->stream_idle(stream->gpu, stream->native, &idle);
    return error != 0 ? weft__cuda_status(error, "weft_stream_query")
                      : (idle ? WEFT_OK : WEFT_PENDING);
}

static weft_status_t stream_destroy(weft_stream_h stream)
{
    weft_status_t status = stream_synchronize(stream);
    bool alive = true;
    /* Of two that destroy the same stream one wins. Pairs with the load in stream_alive. */
    if (!atomic_compare_exchange_strong(&stream->alive, &alive, false)) {
        return status;
    }
    pthread_mutex_lock(&stream->lock);
    stream->checks = 0;
    pthread_mutex_unlock(&stream->lock);
    pthread_mutex_lock(&streams_lock);
    if (!stream->wrapped) {
        weft__cuda()->stream_destroy(stream->gpu, stream->native);
    }
    stream->next_free = free_streams;
    free_streams = stream;
    pthread_mutex_unlock(&streams_lock);
    return status;
}

weft_cuda_past_t weft__cuda_past(weft_stream_h stream)
{
    return (weft_cuda_past_t){stream, stream->life}; /* the caller uses it: it does not end now */
}

/* Under the lock, as is the end of a stream. */
static bool still_there(const weft_cuda_past_t *past)
{
    return past->stream != NULL && stream_alive(past->stream) && past->stream->life == past->life;
}

bool weft__cuda_idle(const weft_cuda_past_t *past)
{
    bool idle = true;
    pthread_mutex_lock(&streams_lock);
    if (still_there(past) &&
        weft__cuda()->stream_idle(past->stream->gpu, past->stream->native, &idle) != 0) {
        idle = true; /* a complaint of the driver, which the caller will get */
    }
    pthread_mutex_unlock(&streams_lock);
    return idle;
}

void weft__cuda_drain(const weft_cuda_past_t *past)
{
    while (!weft__cuda_idle(past)) {
        usleep(20);
    }
}

int weft__cuda_record(const weft_cuda_past_t *past, void *event, bool *recorded_p)
{
    int error = 0;
    pthread_mutex_lock(&streams_lock);
    *recorded_p = still_there(past);
    if (*recorded_p) {
        error = weft__cuda()->event_record(past->stream->gpu, event, past->stream->native);
    }
    pthread_mutex_unlock(&streams_lock);
    return error;
}

/* Streams of this device one by one: another device on the same GPU may have kernels that wait. */
static weft_status_t synchronize(int device)
{
    weft_status_t status = WEFT_OK;
    pthread_mutex_lock(&streams_lock);
    weft_stream_h stream = streams;
    pthread_mutex_unlock(&streams_lock);
    for (; stream != NULL; stream = stream->next) { /* new ones are put in front; none is removed */
        if (stream_alive(stream) && stream->device == device) {
            weft_status_t own = stream_synchronize(stream);
            status = status != WEFT_OK ? status : own;
        }
    }
    return status;
}

/* ---- events ----------------------------------------------------------------------------- */

static weft_status_t event_create(weft_event_h *event_p)
{
    pthread_mutex_lock(&streams_lock);
    weft_event_h event = free_events;
    if (event != NULL) {
        free_events = event->next_free;
    }
    pthread_mutex_unlock(&streams_lock);
    if (event == NULL) {
        event = calloc(1, sizeof(*event));
        if (event == NULL) {
            return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for an event");
        }
        pthread_mutex_init(&event->lock, NULL);
    }
    event->recorded = false;
    /* Pairs with the load in event_alive. */
    atomic_store_explicit(&event->alive, true, memory_order_release);
    *event_p = event;
    return WEFT_OK;
}

static void event_destroy(weft_event_h event)
{
    bool alive = true;
    if (!atomic_compare_exchange_strong(&event->alive, &alive, false)) {
        return;
    }
    if (event->native != NULL) {
        weft__cuda()->event_destroy(event->gpu, event->native);
        event->native = NULL;
    }
    pthread_mutex_lock(&streams_lock);
    event->next_free = free_events;
    free_events = event;
    pthread_mutex_unlock(&streams_lock);
}

static bool event_alive(weft_event_h event)
{
    /* Pairs with the stores in event_create and event_destroy. */
    return atomic_load_explicit(&event->alive, memory_order_acquire);
}

static weft_status_t event_record(int device, weft_event_h event, weft_stream_h stream)
{
    int gpu = stream_gpu(device, stream), error = 0;
    pthread_mutex_lock(&event->lock);
    if (event->native != NULL && event->gpu != gpu) {
        weft__cuda()->event_destroy(event->gpu, event->native);
        event->native = NULL;
    }
    if (event->native == NULL) {
        event->gpu = gpu;
        error = weft__cuda()->event_create(gpu, &event->native);
    }
    if (error == 0) {
        error = weft__cuda()->event_record(gpu, event->native, weft__cuda_stream(stream));
        event->recorded = event->recorded || error == 0;
        if (error == 0 && stream == NULL) { /* work on the default stream is done on return */
            error = weft__cuda()->event_sync(gpu, event->native);
        }
    }
    pthread_mutex_unlock(&event->lock);
    return weft__cuda_status(error, "weft_event_record");
}

static bool was_recorded(weft_event_h event)
{
    pthread_mutex_lock(&event->lock);
    bool recorded = event->recorded;
    pthread_mutex_unlock(&event->lock);
    return recorded;
}

static weft_status_t event_query(weft_event_h event)
{
    bool done = true;
    int error = was_recorded(event) ? weft__cuda()->event_done(event->gpu, event->native, &done)
                                    : 0;
    return error != 0 ? weft__cuda_status(error, "weft_event_query")
                      : (done ? WEFT_OK : WEFT_PENDING);
}

static weft_status_t event_synchronize(weft_event_h event)
{
    int error = was_recorded(event) ? weft__cuda()->event_sync(event->gpu, event->native) : 0;
    return weft__cuda_status(error, "weft_event_synchronize");
}

static weft_status_t stream_capturing(weft_stream_h stream, bool *capturing_p)
{
    return weft__cuda_status(
        weft__cuda()->stream_capturing(stream->gpu, stream->native, capturing_p),
        "weft_stream_capturing");
}

static weft_status_t stream_wait(weft_stream_h stream, weft_event_h event)
{
    if (stream == NULL) {
        return event_synchronize(event);
    }
    int error = was_recorded(event)
                    ? weft__cuda()->stream_wait(stream->gpu, stream->native, event->native)
                    : 0;
    return weft__cuda_status(error, "weft_stream_wait");
}

static weft_status_t event_elapsed(weft_event_h start, weft_event_h end, double *ms_p)
{
    float ms = 0;
    if (!was_recorded(start) || !was_recorded(end)) {
        return weft__fail(WEFT_ERR_INVALID, "weft_event_elapsed: the %s event was never recorded",
                          was_recorded(start) ? "end" : "start");
    }
    WEFT_TRY(event_query(start));
    WEFT_TRY(event_query(end));
    int error = weft__cuda()->event_elapsed(start->gpu, start->native, end->native, &ms);
    *ms_p = ms;
    return weft__cuda_status(error, "weft_event_elapsed");
}

const weft_device_ops_t weft__device_cuda = {
    .kind = "cuda",
    .alloc = weft__cuda_alloc,
    .release = weft__cuda_free,
    .stats = weft__cuda_stats,
    .trim = weft__cuda_trim,
    .bounds = weft__cuda_bounds,
    .host_alloc = weft__cuda_pin,
    .host_release = weft__cuda_unpin,
    .enlist = weft__cuda_enlist,
    .delist = weft__cuda_delist,
    .copy = copy,
    .fill = fill,
    .call = call,
    .stream_create = stream_create,
    .lane_create = stream_create,
    .stream_wrap = stream_wrap,
    .stream_native = stream_native,
    .stream_destroy = stream_destroy,
    .stream_alive = stream_alive,
    .stream_is_self = stream_is_self,
    .stream_synchronize = stream_synchronize,
    .stream_query = stream_query,
    .stream_capturing = stream_capturing,
    .stream_wait = stream_wait,
    .synchronize = synchronize,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_alive = event_alive,
    .event_record = event_record,
    .event_query = event_query,
    .event_synchronize = event_synchronize,
    .event_elapsed = event_elapsed,
};
