/* Streams, and CUDA's order between the legacy stream and blocking ones.
 *
 * What the legacy stream is given runs after all that blocking streams of its device were given
 * before, and they go on after it. A wait costs an event, so it is queued only where something may
 * be under way:
 *
 *     enter a blocking stream    it is marked. If the legacy stream was entered since this stream
 *                                last waited for it, and is not idle: wait for it
 *     enter the legacy stream    wait for every marked stream that is not idle
 *
 * Between entering a stream and queueing work on it nothing is locked: libnccl queues long after.
 * So a wait that one thread queues may miss work for which another thread has entered the stream
 * already. That is right for the two of them, which have no order, but the second thread's own next
 * call must not find the mark gone. Therefore a mark holds who entered, and only that thread, whose
 * work is queued by then, clears it. A stream that several threads enter stays marked. The same
 * goes for the legacy stream: its entries are numbered, and a blocking stream notes the number that
 * it has waited for only if all entries are the calling thread's.
 *
 * All waits are for what was queued before the wait, so there is no circle.
 *
 * Handles are never freed but used again: one that was destroyed can be told as such. */
#include <pthread.h>
#include <stdlib.h>

#include "nccl/cudart.h"
#include "nccl/cudart/state.h"

#define SEVERAL ((uintptr_t)1) /* as an owner: more than one thread */
#define LEAST_PRIORITY 0
#define GREATEST_PRIORITY -5

typedef struct device {
    pthread_mutex_t lock; /* the list, waits being queued, streams being made */
    weft_cudart_stream_t legacy;
    weft_cudart_stream_t *streams; /* in use */
    weft_cudart_stream_t *ending;  /* destroyed, with work under way */
    weft_cudart_stream_t *unused;
    _Atomic uint64_t entries; /* of the legacy stream */
    atomic_uintptr_t owner;   /* who made them */
    atomic_int marked;        /* blocking streams that are marked */
} device_t;

static device_t devices[MAX_DEVICES];
static pthread_once_t devices_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;
static _Atomic uint64_t last_id = MAX_DEVICES;           /* the first are the legacy streams' */
static _Thread_local char self;                          /* its address stands for the thread */
static _Thread_local weft_cudart_stream_t **own_streams; /* cudaStreamPerThread, by device */

static weft_status_t destroy(device_t *device, weft_cudart_stream_t *stream);

/* ---- devices ---------------------------------------------------------------------------- */

static void end_thread(void *arg)
{
    weft_cudart_stream_t **own = arg;
    for (int i = 0; i < MAX_DEVICES; i++) {
        if (own[i] != NULL) {
            destroy(&devices[i], own[i]);
        }
    }
    free(own);
    own_streams = NULL;
}

static void init_devices(void)
{
    pthread_key_create(&thread_key, end_thread);
    for (int i = 0; i < MAX_DEVICES; i++) {
        pthread_mutex_init(&devices[i].lock, NULL);
        devices[i].legacy.device = i;
        devices[i].legacy.order = ORDER_LEGACY;
        devices[i].legacy.id = (uint64_t)i + 1;
        atomic_init(&devices[i].legacy.alive, true);
    }
}

static device_t *device_of(int device)
{
    pthread_once(&devices_once, init_devices);
    return &devices[device];
}

/* A Weft stream of a device that need not be the current one. */
static weft_status_t create_on(int device, weft_stream_h *stream_p)
{
    int current;
    weft_status_t status = weft_device_get(&current);
    if (status == WEFT_OK) {
        status = weft_device_set(device);
    }
    if (status == WEFT_OK) {
        status = weft_stream_create(stream_p);
        weft_device_set(current);
    }
    return status;
}

/* ---- order ------------------------------------------------------------------------------ */

/* Under the lock: make `after` wait for all that `before` was given. `of` has the event. */
static weft_status_t wait_for(weft_stream_h after, weft_stream_h before, weft_cudart_stream_t *of)
{
    weft_status_t status = of->event == NULL ? weft_event_create(&of->event) : WEFT_OK;
    if (status == WEFT_OK) {
        status = weft_event_record(of->event, before);
    }
    return status == WEFT_OK ? weft_stream_wait(after, of->event) : status;
}

/* Partners of the accesses to marks, entries and owners are those in this file. All are relaxed: a
 * thread whose calls come after another's has synchronized with it by means of its own. */

/* Add this thread to an owner; true if there was none. */
static bool claim(atomic_uintptr_t *owner)
{
    uintptr_t me = (uintptr_t)&self, now = atomic_load_explicit(owner, memory_order_relaxed);
    while (now != me && now != SEVERAL) {
        if (atomic_compare_exchange_weak_explicit(owner, &now, now == 0 ? me : SEVERAL,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            return now == 0;
        }
    }
    return false;
}

static weft_status_t order_blocking(device_t *device, weft_cudart_stream_t *stream)
{
    weft_status_t status = WEFT_OK;
    uint64_t entries = atomic_load_explicit(&device->entries, memory_order_relaxed);
    if (atomic_load_explicit(&stream->seen, memory_order_relaxed) != entries) {
        pthread_mutex_lock(&device->lock);
        weft_stream_h legacy = device->legacy.stream;
        if (legacy != NULL && weft_stream_query(legacy) == WEFT_PENDING) {
            status = wait_for(stream->stream, legacy, stream);
        }
        if (status == WEFT_OK &&
            (atomic_load_explicit(&device->owner, memory_order_relaxed) == (uintptr_t)&self ||
             entries == 0)) {
            atomic_store_explicit(&stream->seen, entries, memory_order_relaxed);
        }
        pthread_mutex_unlock(&device->lock);
    }
    if (claim(&stream->mark)) {
        atomic_fetch_add_explicit(&device->marked, 1, memory_order_relaxed);
    }
    return status;
}

/* Under the lock. */
static weft_status_t legacy_waits(device_t *device, weft_cudart_stream_t *stream)
{
    uintptr_t mark = atomic_load_explicit(&stream->mark, memory_order_relaxed);
    weft_status_t status = WEFT_OK;
    if (stream->order != ORDER_BLOCKING || mark == 0) {
        return WEFT_OK;
    }
    if (!weft__cudart_idle(stream)) {
        status = wait_for(device->legacy.stream, stream->stream, stream);
    }
    if (status == WEFT_OK && mark == (uintptr_t)&self &&
        atomic_compare_exchange_strong_explicit(&stream->mark, &mark, 0, memory_order_relaxed,
                                                memory_order_relaxed)) {
        atomic_fetch_sub_explicit(&device->marked, 1, memory_order_relaxed);
    }
    return status;
}

/* Under the lock. */
static weft_status_t make_legacy(device_t *device)
{
    weft_stream_h stream;
    weft_status_t status = WEFT_OK;
    if (device->legacy.stream == NULL) {
        status = create_on(device->legacy.device, &stream);
        if (status == WEFT_OK) {
            atomic_store(&device->legacy.stream, stream);
        }
    }
    return status;
}

static weft_status_t order_legacy(device_t *device)
{
    weft_status_t status = WEFT_OK;
    if (atomic_load_explicit(&device->legacy.stream, memory_order_acquire) == NULL ||
        atomic_load_explicit(&device->marked, memory_order_relaxed) > 0) {
        pthread_mutex_lock(&device->lock);
        status = make_legacy(device);
        for (weft_cudart_stream_t *at = device->streams; at != NULL && status == WEFT_OK;
             at = at->next) {
            status = legacy_waits(device, at);
        }
        pthread_mutex_unlock(&device->lock);
    }
    claim(&device->owner);
    atomic_fetch_add_explicit(&device->entries, 1, memory_order_relaxed);
    return status;
}

weft_status_t weft__cudart_order(weft_cudart_stream_t *stream)
{
    device_t *device = &devices[stream->device];
    return stream->order == ORDER_FREE       ? WEFT_OK
           : stream->order == ORDER_BLOCKING ? order_blocking(device, stream)
                                             : order_legacy(device);
}

/* ---- handles ---------------------------------------------------------------------------- */

/* Under the lock: streams that were destroyed and have become idle. Errors of their work have
 * nobody left to return them to. */
static void sweep(device_t *device)
{
    weft_cudart_stream_t **at = &device->ending;
    while (*at != NULL) {
        weft_cudart_stream_t *stream = *at;
        if (!weft__cudart_idle(stream)) {
            at = &stream->next;
            continue;
        }
        weft_stream_destroy(stream->stream);
        *at = stream->next;
        stream->next = device->unused;
        device->unused = stream;
    }
}

static weft_status_t create(int number, unsigned flags, int priority,
                            weft_cudart_stream_t **stream_p)
{
    device_t *device = device_of(number);
    weft_stream_h stream;
    weft_status_t status = create_on(number, &stream);
    if (status != WEFT_OK) {
        return status;
    }
    pthread_mutex_lock(&device->lock);
    sweep(device);
    weft_cudart_stream_t *made = device->unused;
    if (made != NULL) {
        device->unused = made->next;
    } else {
        made = calloc(1, sizeof(*made));
    }
    if (made == NULL) {
        pthread_mutex_unlock(&device->lock);
        weft_stream_destroy(stream);
        return WEFT_ERR_NO_MEMORY;
    }
    made->order = flags & cudaStreamNonBlocking ? ORDER_FREE : ORDER_BLOCKING;
    made->device = number;
    made->flags = flags;
    made->priority = priority;
    made->id = atomic_fetch_add(&last_id, 1) + 1;
    atomic_store(&made->stream, stream);
    atomic_store(&made->mark, 0);
    atomic_store(&made->seen, UINT64_MAX); /* it has waited for nothing */
    atomic_store(&made->alive, true);
    made->next = device->streams;
    device->streams = made;
    pthread_mutex_unlock(&device->lock);
    *stream_p = made;
    return WEFT_OK;
}

/* Does not wait for the stream's work, which later work of the legacy stream comes after. */
static weft_status_t destroy(device_t *device, weft_cudart_stream_t *stream)
{
    weft_status_t status = WEFT_OK;
    bool alive = true;
    if (!atomic_compare_exchange_strong(&stream->alive, &alive, false)) {
        return WEFT_ERR_INVALID;
    }
    pthread_mutex_lock(&device->lock);
    weft_cudart_stream_t **at = &device->streams;
    while (*at != stream) {
        at = &(*at)->next;
    }
    *at = stream->next;
    if (stream->order == ORDER_BLOCKING && !weft__cudart_idle(stream)) {
        status = make_legacy(device);
        if (status == WEFT_OK) {
            status = wait_for(device->legacy.stream, stream->stream, stream);
        }
    }
    if (atomic_exchange(&stream->mark, 0) != 0) {
        atomic_fetch_sub(&device->marked, 1);
    }
    stream->next = device->ending;
    device->ending = stream;
    sweep(device);
    pthread_mutex_unlock(&device->lock);
    return status;
}

void weft__cudart_streams_reset(int number)
{
    device_t *device = device_of(number);
    for (;;) {
        pthread_mutex_lock(&device->lock);
        weft_cudart_stream_t *stream = device->streams;
        pthread_mutex_unlock(&device->lock);
        if (stream == NULL) {
            return;
        }
        if (own_streams != NULL && own_streams[number] == stream) {
            own_streams[number] = NULL;
        }
        destroy(device, stream);
    }
}

/* The stream of this thread on a device, made at its first use. */
static weft_status_t find_own(int device, weft_cudart_stream_t **stream_p)
{
    if (own_streams == NULL) {
        own_streams = calloc(MAX_DEVICES, sizeof(weft_cudart_stream_t *));
        if (own_streams == NULL) {
            return WEFT_ERR_NO_MEMORY;
        }
        pthread_setspecific(thread_key, own_streams);
    }
    weft_cudart_stream_t *own = own_streams[device];
    if (own == NULL || !atomic_load_explicit(&own->alive, memory_order_relaxed)) {
        weft_status_t status = create(device, cudaStreamDefault, 0, &own_streams[device]);
        if (status != WEFT_OK) {
            return status;
        }
    }
    *stream_p = own_streams[device];
    return WEFT_OK;
}

static weft_status_t find_on(cudaStream_t handle, int device, weft_cudart_stream_t **stream_p)
{
    if (handle == NULL || handle == cudaStreamLegacy) {
        *stream_p = &device_of(device)->legacy;
        return WEFT_OK;
    }
    if (handle == cudaStreamPerThread) {
        device_of(device);
        return find_own(device, stream_p);
    }
    *stream_p = handle;
    return atomic_load_explicit(&handle->alive, memory_order_acquire) ? WEFT_OK : WEFT_ERR_INVALID;
}

cudaError_t weft__cudart_find(cudaStream_t handle, weft_cudart_stream_t **stream_p)
{
    int device = 0;
    cudaError_t error = (uintptr_t)handle <= (uintptr_t)cudaStreamPerThread
                            ? weft__cudart_device(&device)
                            : cudaSuccess;
    if (error != cudaSuccess) {
        return error;
    }
    weft_status_t status = find_on(handle, device, stream_p);
    return status == WEFT_ERR_INVALID ? weft__cudart_fail(cudaErrorInvalidResourceHandle)
                                      : weft__cudart_from(status);
}

cudaError_t weft__cudart_enter(cudaStream_t handle, weft_cudart_stream_t **stream_p)
{
    cudaError_t error = weft__cudart_find(handle, stream_p);
    return error != cudaSuccess ? error : weft__cudart_from(weft__cudart_order(*stream_p));
}

weft_status_t weft_cudart_enter(void *handle, int device, weft_stream_h *stream_p)
{
    weft_cudart_stream_t *stream;
    if (device < 0 || device >= MAX_DEVICES || stream_p == NULL) {
        return WEFT_ERR_INVALID;
    }
    weft_status_t status = find_on(handle, device, &stream);
    if (status != WEFT_OK || stream->device != device) {
        return status != WEFT_OK ? status : WEFT_ERR_INVALID;
    }
    status = weft__cudart_order(stream);
    if (status == WEFT_OK) {
        *stream_p = atomic_load_explicit(&stream->stream, memory_order_relaxed);
    }
    return status;
}

/* ---- calls ------------------------------------------------------------------------------ */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    int device;
    cudaError_t error = weft__cudart_device(&device);
    if (error != cudaSuccess) {
        return error;
    }
    if (stream == NULL || flags > cudaStreamNonBlocking) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    if (priority > LEAST_PRIORITY) {
        priority = LEAST_PRIORITY;
    }
    if (priority < GREATEST_PRIORITY) {
        priority = GREATEST_PRIORITY;
    }
    return weft__cudart_from(create(device, flags, priority, stream));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, LEAST_PRIORITY);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    if (least != NULL) {
        *least = LEAST_PRIORITY;
    }
    if (greatest != NULL) {
        *greatest = GREATEST_PRIORITY;
    }
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    if ((uintptr_t)stream <= (uintptr_t)cudaStreamPerThread) {
        return weft__cudart_fail(cudaErrorInvalidResourceHandle);
    }
    weft_status_t status = destroy(&devices[stream->device], stream);
    return status == WEFT_ERR_INVALID ? weft__cudart_fail(cudaErrorInvalidResourceHandle)
                                      : weft__cudart_from(status);
}

/* To wait for the legacy stream is to wait for all blocking ones. */
static cudaError_t enter_to_wait(cudaStream_t handle, weft_cudart_stream_t **stream_p)
{
    cudaError_t error = weft__cudart_find(handle, stream_p);
    return error == cudaSuccess && (*stream_p)->order == ORDER_LEGACY
               ? weft__cudart_from(weft__cudart_order(*stream_p))
               : error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    weft_cudart_stream_t *stream;
    cudaError_t error = enter_to_wait(handle, &stream);
    if (error == cudaSuccess) {
        error = weft__cudart_from_work("cudaStreamSynchronize",
                                       weft_stream_synchronize(stream->stream));
    }
    return error != cudaSuccess ? error
                                : weft__cudart_after_wait("cudaStreamSynchronize", stream->device);
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    weft_cudart_stream_t *stream;
    cudaError_t error = enter_to_wait(handle, &stream);
    if (error == cudaSuccess) {
        error = weft__cudart_from_work("cudaStreamQuery", weft_stream_query(stream->stream));
    }
    return error != cudaSuccess ? error
                                : weft__cudart_after_query("cudaStreamQuery", stream->device);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t fn, void *userData)
{
    weft_cudart_stream_t *stream;
    cudaError_t error = fn == NULL ? weft__cudart_fail(cudaErrorInvalidValue)
                                   : weft__cudart_enter(handle, &stream);
    return error != cudaSuccess ? error
                                : weft__cudart_from(weft_stream_call(stream->stream, fn, userData));
}

typedef struct callback {
    cudaStream_t stream;
    cudaStreamCallback_t fn;
    void *arg;
} callback_t;

static void run_callback(void *arg)
{
    callback_t callback = *(callback_t *)arg;
    free(arg);
    callback.fn(callback.stream, cudaSuccess, callback.arg);
}

cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t fn, void *userData,
                                  unsigned flags)
{
    if (fn == NULL || flags != 0) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    callback_t *callback = malloc(sizeof(*callback));
    if (callback == NULL) {
        return weft__cudart_fail(cudaErrorMemoryAllocation);
    }
    *callback = (callback_t){.stream = handle, .fn = fn, .arg = userData};
    cudaError_t error = cudaLaunchHostFunc(handle, run_callback, callback);
    if (error != cudaSuccess) {
        free(callback);
    }
    return error;
}

/* ---- questions -------------------------------------------------------------------------- */

#define ASK(handle, output, value)                                                                 \
    weft_cudart_stream_t *stream;                                                                  \
    cudaError_t error = (output) == NULL ? weft__cudart_fail(cudaErrorInvalidValue)                \
                                         : weft__cudart_find(handle, &stream);                     \
    if (error == cudaSuccess) {                                                                    \
        *(output) = (value);                                                                       \
    }                                                                                              \
    return error

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned *flags)
{
    ASK(handle, flags, stream->flags);
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority)
{
    ASK(handle, priority, stream->priority);
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int *device)
{
    ASK(handle, device, stream->device);
}

cudaError_t cudaStreamGetId(cudaStream_t handle, weft_cudart_ulonglong_t *id)
{
    ASK(handle, id, stream->id);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status)
{
    weft_cudart_stream_t *stream;
    cudaError_t error = status == NULL ? weft__cudart_fail(cudaErrorInvalidValue)
                                       : weft__cudart_find(handle, &stream);
    if (error == cudaSuccess) {
        *status = cudaStreamCaptureStatusNone;
    }
    return error;
}
