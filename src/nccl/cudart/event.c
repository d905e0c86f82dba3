/* Events. As with streams, handles are never freed but used again. */
#include <pthread.h>
#include <stdlib.h>

#include "nccl/cudart/state.h"

struct CUevent_st {
    atomic_bool alive;
    int device;
    unsigned flags;
    weft_event_h event;
    atomic_bool recorded;
    struct CUevent_st *next; /* of those not in use */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUevent_st *unused;

/* Pairs with the stores in cudaEventCreateWithFlags and cudaEventDestroy. */
static cudaError_t check(cudaEvent_t event)
{
    return event != NULL && atomic_load_explicit(&event->alive, memory_order_acquire)
               ? cudaSuccess
               : weft__cudart_fail(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event_p, unsigned flags)
{
    int device;
    cudaError_t error = weft__cudart_device(&device);
    bool interprocess = flags & cudaEventInterprocess;
    if (error != cudaSuccess) {
        return error;
    }
    if (event_p == NULL || flags > 7 || (interprocess && !(flags & cudaEventDisableTiming))) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    weft_event_h weft_event;
    error = weft__cudart_from(weft_event_create(&weft_event));
    if (error != cudaSuccess) {
        return error;
    }
    pthread_mutex_lock(&lock);
    struct CUevent_st *event = unused;
    if (event != NULL) {
        unused = event->next;
    }
    pthread_mutex_unlock(&lock);
    if (event == NULL) {
        event = calloc(1, sizeof(*event));
    }
    if (event == NULL) {
        weft_event_destroy(weft_event);
        return weft__cudart_fail(cudaErrorMemoryAllocation);
    }
    event->device = device;
    event->flags = flags;
    event->event = weft_event;
    atomic_store(&event->recorded, false);
    atomic_store_explicit(&event->alive, true, memory_order_release);
    *event_p = event;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

/* What waits for it goes on waiting. */
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    bool alive = true;
    if (event == NULL || !atomic_compare_exchange_strong(&event->alive, &alive, false)) {
        return weft__cudart_fail(cudaErrorInvalidResourceHandle);
    }
    weft_status_t status = weft_event_destroy(event->event);
    pthread_mutex_lock(&lock);
    event->next = unused;
    unused = event;
    pthread_mutex_unlock(&lock);
    return weft__cudart_from(status);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned flags)
{
    weft_cudart_stream_t *stream;
    cudaError_t error = check(event);
    if (error == cudaSuccess) {
        error = weft__cudart_find(handle, &stream);
    }
    if (error == cudaSuccess && flags != cudaEventRecordDefault) {
        error = weft__cudart_fail(cudaErrorInvalidValue); /* in captures only */
    }
    if (error == cudaSuccess && event->device != stream->device) {
        error = weft__cudart_fail(cudaErrorInvalidResourceHandle);
    }
    if (error == cudaSuccess) {
        error = weft__cudart_from(weft__cudart_order(stream));
    }
    if (error == cudaSuccess) {
        error = weft__cudart_from(weft_event_record(event->event, stream->stream));
    }
    if (error == cudaSuccess) {
        atomic_store_explicit(&event->recorded, true, memory_order_relaxed);
    }
    return error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags)
{
    weft_cudart_stream_t *stream;
    cudaError_t error = check(event);
    if (error == cudaSuccess && flags != cudaEventWaitDefault) {
        error = weft__cudart_fail(cudaErrorInvalidValue);
    }
    if (error == cudaSuccess) {
        error = weft__cudart_enter(handle, &stream);
    }
    return error != cudaSuccess ? error
                                : weft__cudart_from(weft_stream_wait(stream->stream, event->event));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    cudaError_t error = check(event);
    if (error == cudaSuccess) {
        error = weft__cudart_from(weft_event_query(event->event));
    }
    return error != cudaSuccess ? error : weft__cudart_after_query("cudaEventQuery", event->device);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    cudaError_t error = check(event);
    if (error != cudaSuccess) {
        return error;
    }
    weft_status_t status = weft_event_synchronize(event->event);
    /* Only a function on the stream that the event is in is refused. */
    error = status == WEFT_ERR_INVALID ? weft__cudart_fail(cudaErrorNotPermitted)
                                       : weft__cudart_from(status);
    return error != cudaSuccess ? error
                                : weft__cudart_after_wait("cudaEventSynchronize", event->device);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    double elapsed;
    cudaError_t error = check(start);
    if (error == cudaSuccess) {
        error = check(end);
    }
    if (error != cudaSuccess) {
        return error;
    }
    if (ms == NULL) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    if (((start->flags | end->flags) & cudaEventDisableTiming) != 0 ||
        start->device != end->device ||
        !atomic_load_explicit(&start->recorded, memory_order_relaxed) ||
        !atomic_load_explicit(&end->recorded, memory_order_relaxed)) {
        return weft__cudart_fail(cudaErrorInvalidResourceHandle);
    }
    error = weft__cudart_from(weft_event_elapsed(start->event, end->event, &elapsed));
    if (error == cudaSuccess) {
        *ms = (float)elapsed;
    }
    return error;
}
