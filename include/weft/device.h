/* Weft: devices, their memory, streams and events.
 *
 * A device is a place for a rank, on a GPU or a virtual GPU: memory that other ranks can reach, and
 * streams. All devices of a process are of one kind, which the setting WEFT_DEVICE chooses: cpu
 * (the default), cuda, or auto (cuda where there is a GPU).
 *
 *   cpu    virtual GPUs. The memory is ordinary host memory in a segment that every other rank of
 *          the host maps, so the caller may also read and write it directly.
 *   cuda   device d is on GPU d modulo the number of GPUs that CUDA shows to this process, so that
 *          several ranks may share a GPU. The host reaches the memory with weft_memcpy only.
 *
 * Every thread has a current device (0 until weft_device_set, or the local rank where the process
 * was started by a launcher). Handles remember their device; only calls that create something use
 * the current one.
 *
 * Streams run their work in order, each on a worker of its own. The default stream, NULL, runs in
 * the calling thread: a call on it returns when its work is done. It does not wait for, nor hold
 * up, other streams.
 *
 * Weft does not survive fork() without exec: where the parent had already allocated or made a
 * stream, calls in the child return WEFT_ERR_UNSUPPORTED and change nothing of the parent's. */
#ifndef WEFT_DEVICE_H
#define WEFT_DEVICE_H

#include <weft/status.h>
#include <weft/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- devices ---------------------------------------------------------------------------- */

/* How many devices this process can use. */
weft_status_t weft_device_count(int *count_p);

/* Make `device` current for the calling thread. WEFT_ERR_INVALID if there is no such device. */
weft_status_t weft_device_set(int device);
weft_status_t weft_device_get(int *device_p);

/* "cpu" or "cuda". WEFT_ERR_UNSUPPORTED, with the reason, if WEFT_DEVICE asks for what is not
 * there; so do all calls that create something. */
weft_status_t weft_device_kind(const char **kind_p);

/* Wait until all streams of the current device are idle. Returns the first error of their work. */
weft_status_t weft_device_synchronize(void);

/* ---- memory ----------------------------------------------------------------------------- */

/* Allocate `bytes` on the current device from its pool: other ranks reach what it holds without
 * further ado. Memory of one's own (malloc, cudaMalloc) may be given to calls as well; unless it is
 * registered, it is copied through the pool where another rank would have to reach it. Aligned to
 * 256 bytes, contents undefined. 0 bytes gives a valid pointer that may be freed.
 * WEFT_ERR_NO_MEMORY says how much was asked for, by which device, and how much it had. */
weft_status_t weft_malloc(void **ptr_p, size_t bytes);

/* Give memory back to its device's pool. NULL is allowed. The caller makes sure that no queued
 * work still uses it. Any thread may free. WEFT_ERR_INVALID if `ptr` is not from weft_malloc. */
weft_status_t weft_free(void *ptr);

/* Host memory that a GPU copies from and to at full speed and without holding up the caller
 * (pinned). On virtual GPUs it is plain memory. Freeing NULL is allowed. */
weft_status_t weft_host_malloc(void **ptr_p, size_t bytes);
weft_status_t weft_host_free(void *ptr);

/* Copy or fill `bytes` in stream order. Pointers may be device memory or plain host memory.
 * Regions of a copy may overlap. Device memory must be in use and hold all `bytes`, else
 * WEFT_ERR_INVALID; on GPUs with the setting WEFT_CHECK_MEMORY only. */
weft_status_t weft_memcpy(void *dst, const void *src, size_t bytes, weft_stream_h stream);
weft_status_t weft_memset(void *dst, int value, size_t bytes, weft_stream_h stream);

/* dst[i] = src[i] x *scalar for i < count, in stream order: products as those of collectives,
 * rounded once (types.h). dst == src is allowed; other overlaps are WEFT_ERR_INVALID. `scalar` is
 * one element: in memory of a device (weft_malloc) it is read in stream order, in host memory
 * before this returns, also for a graph that captures the call. All three are aligned to an
 * element. GPUs must reach dst and src themselves: memory of the stream's GPU, or pinned. Otherwise
 * it is WEFT_ERR_INVALID, as are an unknown type and, unless count is 0, NULL. */
weft_status_t weft_scale(void *dst, const void *src, size_t count, weft_dtype_t type,
                         const void *scalar, weft_stream_h stream);

/* Make [ptr, ptr + bytes), which is not from weft_malloc, as good as if it were, for the current
 * device:
 *
 *   memory of the device's GPU    from cudaMalloc, such as PyTorch's: other ranks map the
 *                                 allocation that it is in, and collectives read and write it where
 *                                 it is.
 *   host memory                   is pinned, so that copies from and to it need no third place.
 *   on virtual GPUs               nothing changes: memory of one's own is copied through the pool.
 *                                 Nothing is known of it, so nothing is checked but that it is not
 *                                 NULL or empty.
 *
 * Memory that cannot be registered is copied as before: WEFT_ERR_UNSUPPORTED says why. That is what
 * CUDA does not share (cudaMallocAsync, managed, mapped by hand) or pin, what another device on the
 * same GPU has registered, and what comes after some 190 registrations while communicators are
 * open: register memory once, not for every call. WEFT_ERR_INVALID: it is NULL, has no bytes, is
 * another GPU's, or goes beyond its allocation. Memory from weft_malloc needs no registering, which
 * does no harm. The same place may be registered several times, and is to be unregistered as often,
 * by the same address; the latest goes first.
 *
 * Unregister memory before it is freed, and free memory of a GPU only when all communicators of the
 * device that were open meanwhile are destroyed: until then other processes have it mapped.
 * Unregistering host memory waits for the GPU work of this process. */
weft_status_t weft_register(void *ptr, size_t bytes);
weft_status_t weft_unregister(void *ptr);

typedef struct weft_pool_stats {
    size_t
        capacity; /* bytes the device may hand out: WEFT_DEVICE_MEMORY, or all of the GPU; a virtual
                   * GPU's share of the machine, of which it can have more while others have less */
    size_t in_use;      /* bytes handed out now, after rounding */
    size_t in_use_peak; /* largest in_use so far */
    size_t reserved;    /* bytes held from the system: in_use plus what the pool keeps for reuse */
    uint64_t allocs;    /* weft_malloc calls that succeeded */
    uint64_t frees;     /* weft_free calls */
    uint64_t reused;    /* allocs served from memory the pool had kept */
} weft_pool_stats_t;

/* Statistics of a device's memory pool. */
weft_status_t weft_pool_stats(int device, weft_pool_stats_t *stats_p);

/* Give kept memory back to the system until at most `keep` bytes of unused memory are held. */
weft_status_t weft_pool_trim(int device, size_t keep);

/* ---- streams ---------------------------------------------------------------------------- */

weft_status_t weft_stream_create(weft_stream_h *stream_p);

/* With CUDA, weft_stream_native gives the cudaStream_t behind a stream, for kernels and graphs of
 * one's own, and weft_stream_wrap makes a handle for a cudaStream_t of the current device
 * (destroying the handle leaves that stream as it is). WEFT_ERR_UNSUPPORTED on virtual GPUs. */
weft_status_t weft_stream_native(weft_stream_h stream, void **native_p);
weft_status_t weft_stream_wrap(void *native, weft_stream_h *stream_p);

/* Wait for the stream's work, then free it. Returns the first error of that work. NULL is allowed,
 * and leaves the default stream as it is. */
weft_status_t weft_stream_destroy(weft_stream_h stream);

/* Wait until all work queued so far is done. Returns the first error of work since the last
 * synchronize, and clears it. */
weft_status_t weft_stream_synchronize(weft_stream_h stream);

/* WEFT_OK if all work queued so far is done, WEFT_PENDING if not. */
weft_status_t weft_stream_query(weft_stream_h stream);

/* *capturing_p: 1 while work on the stream goes into a CUDA graph, so that it runs later, and any
 * number of times; else 0. Unlike a query this leaves the graph intact. */
weft_status_t weft_stream_capturing(weft_stream_h stream, int *capturing_p);

/* Make later work of `stream` wait for `event`. An event never recorded does not hold it up. */
weft_status_t weft_stream_wait(weft_stream_h stream, weft_event_h event);

/* Call `fn(arg)` in stream order, on the stream's worker. It must not call back into Weft on the
 * same stream. */
weft_status_t weft_stream_call(weft_stream_h stream, void (*fn)(void *arg), void *arg);

/* ---- events ----------------------------------------------------------------------------- */

weft_status_t weft_event_create(weft_event_h *event_p);

/* Free the event. Work that already waits for it is not affected. NULL is allowed. */
weft_status_t weft_event_destroy(weft_event_h event);

/* Mark the point that `stream` has been filled up to. Recording again moves the mark; waits that
 * were queued before keep the old one. */
weft_status_t weft_event_record(weft_event_h event, weft_stream_h stream);

/* WEFT_OK once the stream has passed the mark (or none was made), WEFT_PENDING before. */
weft_status_t weft_event_query(weft_event_h event);
weft_status_t weft_event_synchronize(weft_event_h event);

/* Milliseconds between two recorded, passed events. WEFT_PENDING if one has not passed yet,
 * WEFT_ERR_INVALID if one was never recorded. */
weft_status_t weft_event_elapsed(weft_event_h start, weft_event_h end, double *ms_p);

#ifdef __cplusplus
}
#endif
#endif
