/* Inside of the CUDA runtime on virtual GPUs: what its files share.
 *
 * The library is made of libweft's public calls alone. A cudaStream_t is a Weft stream and what it
 * takes to keep CUDA's order with the legacy stream; a cudaEvent_t is a Weft event.
 *
 *     cuda...()          checks arguments, finds the stream (stream.c)
 *       order            queues waits between the legacy stream and blocking ones (stream.c)
 *       weft_...()       queues the work, or does it now where the stream is idle (copy.c)
 *     cudaError_t        every failure is also the calling thread's last error (error.c)
 */
#ifndef WEFT_NCCL_CUDART_STATE_H
#define WEFT_NCCL_CUDART_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <weft/cudart/cuda_runtime_api.h>
#include <weft/weft.h>

#define MAX_DEVICES 256 /* libweft has no more */

/* ---- errors (error.c) ------------------------------------------------------------------- */

/* Make it the last error of this thread, unless it is cudaSuccess; returns it. */
cudaError_t weft__cudart_fail(cudaError_t error);

/* The error for a status of a call that returned at once. */
cudaError_t weft__cudart_from(weft_status_t status);

/* The error for a status of work on a stream that `call` has waited for. Its sentence goes to
 * stderr, since programs print no more than the name of an error. A collective that was aborted is
 * no error: on a GPU its kernel just ends. */
cudaError_t weft__cudart_from_work(const char *call, weft_status_t status);

/* After `call` has waited for work of `device`: a collective that failed leaves wrong data, so that
 * until the program gives its communicator up every wait fails, with the sentence on stderr once.
 * As with NCCL, whose kernel would wait for ever, a query is told that the work is not done. */
cudaError_t weft__cudart_after_wait(const char *call, int device);
cudaError_t weft__cudart_after_query(const char *call, int device);

/* The last error as it is: calls of the driver leave it alone. */
cudaError_t weft__cudart_swap_last(cudaError_t error);

/* A line on stderr. */
void weft__cudart_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- devices (device.c) ----------------------------------------------------------------- */

/* The current device. Fails where the process does not run on virtual GPUs, and says why, once. */
cudaError_t weft__cudart_device(int *device_p);

/* cudaErrorInvalidDevice if there is none of that number. */
cudaError_t weft__cudart_check_device(int device);

/* Wait for all work of a device. */
cudaError_t weft__cudart_synchronize(const char *call, int device);

/* ---- memory (ranges.c) ------------------------------------------------------------------ */

typedef struct weft_cudart_range {
    uintptr_t base;
    size_t bytes;
    enum cudaMemoryType type;
    int device;
    bool registered; /* the program's own memory */
    unsigned flags;
} weft_cudart_range_t;

/* Remember memory; cudaErrorHostMemoryAlreadyRegistered if a part of it is known. */
cudaError_t weft__cudart_range_add(const weft_cudart_range_t *range);

/* What `ptr` is inside of; false: nothing is known of it. Some nanoseconds for what this thread
 * asked for last. */
bool weft__cudart_range_find(const void *ptr, weft_cudart_range_t *range_p);

/* Forget what begins at `ptr`, if `wanted` says yes to it. */
bool weft__cudart_range_take(const void *ptr, bool (*wanted)(const weft_cudart_range_t *range),
                             weft_cudart_range_t *range_p);

/* Forget one range of the memory of `device`, for a reset; false when there is none. */
bool weft__cudart_range_take_any(int device, weft_cudart_range_t *range_p);

/* ---- streams (stream.c) ----------------------------------------------------------------- */

typedef enum weft_cudart_order {
    ORDER_LEGACY,   /* after and before all blocking streams of the device */
    ORDER_BLOCKING, /* after and before the legacy stream */
    ORDER_FREE
} weft_cudart_order_t;

struct CUstream_st {
    atomic_bool alive;
    weft_cudart_order_t order;
    int device;
    unsigned flags;
    int priority;
    uint64_t id;
    _Atomic(weft_stream_h) stream; /* the legacy stream's is made at its first use */
    weft_event_h event;            /* for order with the legacy stream; NULL: not needed so far */
    atomic_uintptr_t mark;         /* blocking: who has entered it since the legacy stream waited */
    _Atomic uint64_t seen;         /* blocking: entries of the legacy stream that it waits for */
    struct CUstream_st *next;      /* of the same device; or of those not in use */
};
typedef struct CUstream_st weft_cudart_stream_t;

/* The stream of a handle, on the current device where the handle leaves that open.
 * cudaErrorInvalidResourceHandle if it is destroyed. */
cudaError_t weft__cudart_find(cudaStream_t handle, weft_cudart_stream_t **stream_p);

/* Before work is queued: queue the waits that CUDA's order asks for. */
weft_status_t weft__cudart_order(weft_cudart_stream_t *stream);

/* Both. */
cudaError_t weft__cudart_enter(cudaStream_t handle, weft_cudart_stream_t **stream_p);

/* Is everything done that the stream was given, waits included? */
static inline bool weft__cudart_idle(weft_cudart_stream_t *stream)
{
    return weft_stream_query(stream->stream) == WEFT_OK;
}

/* Destroy all streams of a device, for a reset. */
void weft__cudart_streams_reset(int device);

#endif
